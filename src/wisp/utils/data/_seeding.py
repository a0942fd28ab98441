"""Random numbers of samples: before each sample, Python's, NumPy's and Wisp's global generators get a state that
depends on (seed of the epoch, key of the sample) alone, so what is loaded does not depend on the number of workers.

In the main process the caller's own states are put back after each batch.
"""

import ctypes
import random
import threading
import zlib

import numpy

from wisp import _core

_WORDS = 624


def _twister_at(address, position_first, expected):
    """(address of the words, address of the position) if the twister lies there as expected, else (0, 0)."""
    words = address + 4 if position_first else address
    position = address if position_first else address + 4 * _WORDS
    found = list((ctypes.c_uint32 * _WORDS).from_address(words)) + [ctypes.c_int32.from_address(position).value]
    return (words, position) if found == expected else (0, 0)


def _python_twister():
    instance = random._inst
    base = random.Random.__base__
    if base.__basicsize__ < object.__basicsize__ + 4 * (_WORDS + 1):
        return 0, 0
    return _twister_at(id(instance) + object.__basicsize__, True, list(instance.getstate()[1]))


def _numpy_twister():
    bits = numpy.random.mtrand._rand._bit_generator
    if type(bits) is not numpy.random.MT19937:
        return 0, 0
    state = bits.state["state"]
    return _twister_at(bits.ctypes.state_address, False, [*map(int, state["key"]), int(state["pos"])])


_known = [None, None, None]  # the two generators, and where their states lie: users may exchange NumPy's


def _addresses():
    bits = numpy.random.mtrand._rand._bit_generator
    if _known[0] is not random._inst or _known[1] is not bits:
        _known[:] = random._inst, bits, (*_python_twister(), *_numpy_twister())
    return _known[2]


def _gauss_of_numpy():
    state = numpy.random.mtrand._rand.get_state(legacy=False)
    return (state["has_gauss"], state["gauss"])


def _forget_gauss():
    rand = numpy.random.mtrand._rand
    if hasattr(numpy.random, "set_bit_generator"):
        numpy.random.set_bit_generator(rand._bit_generator)
    else:
        state = rand.get_state(legacy=False)
        rand.set_state({**state, "has_gauss": 0, "gauss": 0.0})


def _number_of(key):
    """A number for any key, the same in every process."""
    try:
        return key.__index__()
    except AttributeError:
        return zlib.crc32(repr(key).encode()) | len(repr(key)) << 32


# The thread that has put its own states into the generators, and how many times over. The generators are global, so a
# second thread must keep its hands off meanwhile.
_holder = [None, 0]
_thread = threading.get_ident


def after_fork():
    """In a new process: whoever held the generators is not here."""
    _holder[:] = None, 0


class Seeds:
    """`with seeds:` puts the caller's random states aside; `seeds.seed_key(key)` starts all generators from (seed, key).

    With `stream` the states go on where the last `with` left them: for what draws its numbers piece by piece.
    """

    def __init__(self, seed, stream=None):
        self._numpy_known = self._numpy_gauss = None
        self._core = _core._SampleSeeds(random._inst, *_addresses(), _forget_gauss, _number_of)
        self._core.seed = seed
        self.seed_key = self._core.seed_key
        if stream is not None:
            with self:
                self.seed_key(stream)

    def report_progress(self, address):
        """Count the samples begun in the integer at an address."""
        self._core.progress = address

    def __enter__(self):
        me = _thread()
        if _holder[0] is None:
            _holder[0] = me
        elif _holder[0] != me:
            return self
        _holder[1] += 1
        core = self._core
        mark = core.numpy_mark()
        if mark != self._numpy_known or self._numpy_gauss[0]:  # reading it takes 30 us: only if it may have changed
            self._numpy_known, self._numpy_gauss = mark, _gauss_of_numpy()
            if self._numpy_gauss[0]:
                _forget_gauss()
        core.swap()
        return self

    def __exit__(self, *exception):
        if _holder[0] != _thread():
            return
        drawn = self._core.swap()
        if self._numpy_gauss[0]:
            rand = numpy.random.mtrand._rand
            rand.set_state({**rand.get_state(legacy=False), "has_gauss": 1, "gauss": self._numpy_gauss[1]})
        elif drawn:
            _forget_gauss()
        _holder[1] -= 1
        if not _holder[1]:
            _holder[0] = None
