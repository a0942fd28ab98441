"""Forward-mode derivatives: tensors that carry a tangent, which every operator propagates.

>>> import wisp
>>> import wisp.autograd.forward_ad as fwAD
>>> with fwAD.dual_level():
...     x = fwAD.make_dual(wisp.tensor(3.0), wisp.tensor(1.0))
...     fwAD.unpack_dual(x * x).tangent
tensor(6.)
"""

import collections
import threading

import wisp
from wisp import _core
from wisp.autograd.grad_mode import _Mode

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_entered = threading.local()  # .levels: those of this thread that were entered here, outermost first


def _levels():
    if not hasattr(_entered, "levels"):
        _entered.levels = []
    return _entered.levels


def enter_dual_level():
    """Enter a level of forward mode and return it; tangents made at it live until `exit_dual_level`."""
    _levels().append(_core._enter_dual_level())
    return _levels()[-1]


def exit_dual_level(*, level=None):
    """Leave the innermost level of forward mode; its tangents are gone."""
    levels = _levels()
    if not levels:
        raise RuntimeError("exit_dual_level: no level of forward mode was entered; call enter_dual_level() first")
    if level is not None and level != levels[-1]:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    _core._exit_dual_level(levels.pop())


def __getattr__(name):
    if name == "_current_level":  # how deep this thread is in levels, counted from 0
        return len(_levels()) - 1
    raise AttributeError(f"module 'wisp.autograd.forward_ad' has no attribute {name!r}")


class _set_fwd_grad_enabled(_Mode):
    """Whether tangents are seen and propagated: as a call at once, or as a context manager until its end."""

    def __init__(self, mode):
        self.mode, self.prev = mode, _is_fwd_grad_enabled()
        _set_enabled(mode)

    def _again(self):
        return _set_fwd_grad_enabled(self.mode)

    def __enter__(self):
        pass

    def __exit__(self, *_):
        _set_enabled(self.prev)


def _is_fwd_grad_enabled():
    """Whether tangents are seen."""
    return getattr(_entered, "hidden", None) is None


def _set_enabled(on):
    if on and not _is_fwd_grad_enabled():
        _core._hide_tangents(_entered.hidden)
        _entered.hidden = None
    elif not on and _is_fwd_grad_enabled():
        _entered.hidden = _core._hide_tangents(0)


def _current(level, what):
    if level is not None:
        return level
    levels = _levels()
    if not levels:
        raise RuntimeError(f"Trying to {what} a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    return levels[-1]


def make_dual(tensor, tangent, *, level=None):
    """`tensor` together with the tangent of a derivative: results computed from it carry tangents, too."""
    level = _current(level, "create")
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(value, wisp.Tensor):
            raise TypeError(f"make_dual: expected {name} to be a Tensor, got {type(value).__name__}")
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {value.dtype}")
    if _core._has_tangent(tangent) and _core._tangent(tangent, level) is not None:
        raise RuntimeError("make_dual: the tangent has a forward gradient at the same level itself; use unpack_dual of it")
    return _core._make_dual(tensor, tangent, level)


class UnpackedDualTensor(collections.namedtuple("UnpackedDualTensor", "primal tangent")):
    """What `unpack_dual` returns: the tensor without its tangent, and the tangent or None."""

    __slots__ = ()


def unpack_dual(tensor, *, level=None):
    """-> (primal, tangent) of a tensor computed at this level; the tangent is None if it has none."""
    if level is None and not _levels():
        return UnpackedDualTensor(tensor, None)
    level = _current(level, "unpack")
    return UnpackedDualTensor(_core._primal(tensor, level), _core._tangent(tensor, level))


class dual_level(_Mode):
    """Context in which forward mode is on: see the example of this module."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *error):
        exit_dual_level()
