"""The default random generator: seeding, its state, and a context that gives the state back.

>>> import wisp
>>> g = wisp.manual_seed(0)
>>> with wisp.random.fork_rng():
...     a = wisp.rand(3)
>>> bool((a == wisp.rand(3)).all())
True
"""

import contextlib as _contextlib

from wisp import _reference
from wisp._core import default_generator

__all__ = """
    default_generator fork_rng get_rng_state initial_seed manual_seed seed set_rng_state thread_safe_generator""".split()


def thread_safe_generator():
    """The generator that a data loader's thread should draw from, or None for the default one, as everywhere here.

    >>> import wisp
    >>> wisp.random.thread_safe_generator() is None
    True
    """


def manual_seed(seed):
    """Start the default generator from `seed`; returns the generator."""
    return default_generator.manual_seed(int(seed))


def seed():
    """Start the default generator from a number that the system drew; returns that number."""
    return default_generator.seed()


def initial_seed():
    """The number that the default generator was started from."""
    return default_generator.initial_seed()


def get_rng_state():
    """The state of the default generator, as a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Put the default generator into a state from `get_rng_state`."""
    default_generator.set_state(new_state)


@_contextlib.contextmanager
def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """Whatever is drawn inside leaves the default generator as it was."""
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


_reference.attach(__name__, globals())
