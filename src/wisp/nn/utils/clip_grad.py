"""Clipping of gradients, by their total norm or element by element."""

import math
import operator
import warnings

import wisp
from wisp import _core

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

_KIND = operator.attrgetter("dtype", "device")
_UNSCALED = (wisp.float32, wisp.bfloat16, wisp.float16)  # a factor in float is fine enough


# Lists of tensors are gone over in parts of this many, whose tensors stay in a cache from one look at them to the next.
_PART = 1024


def _in_parts(tensors):
    return (tensors[i : i + _PART] for i in range(0, len(tensors), _PART))


def _grads_in_parts(parameters):
    return filter(None, ([p.grad for p in part if p.grad is not None] for part in _in_parts(parameters)))


def _as_list(tensors):
    return [tensors] if isinstance(tensors, wisp.Tensor) else tensors if isinstance(tensors, (list, tuple)) else list(tensors)


def _sum_of_squares(parts):
    """Of all tensors of the parts together, in double; None unless they are plain floats of one dtype and device."""
    types, kinds, total = set(), set(), None
    for part in parts:
        types.update(map(type, part))
        kinds.update(map(_KIND, part))
        if len(kinds) > 1 or not part[0].dtype.is_floating_point or any(hasattr(kind, "device_mesh") for kind in types):
            return None
        total = _core._sum_of_squares(part, total)
    return total


def _total_norm(parts, norm_type, error_if_nonfinite):
    """The norm of all tensors of the parts, which `parts()` makes whenever they are asked for."""
    norm_type = float(norm_type)
    first = next(iter(parts()), None)
    if first is None:
        return wisp.tensor(0.0)
    squares = _sum_of_squares(parts()) if norm_type == 2.0 else None
    if squares is not None:
        total = squares.sqrt().to(first[0].dtype)
    else:
        total = _norm_of_norms([t for part in parts() for t in part], norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def _norm_of_norms(tensors, norm_type):
    if any(hasattr(kind, "device_mesh") for kind in set(map(type, tensors))):
        from wisp.distributed.tensor._dtensor import total_norm

        return total_norm(tensors, norm_type)
    norms = [wisp.linalg.vector_norm(t.detach(), norm_type) for t in tensors]
    return wisp.linalg.vector_norm(wisp.stack([norm.to(tensors[0].device) for norm in norms]), norm_type)


@wisp.no_grad()
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors together, as if they were one vector.

    >>> import wisp
    >>> wisp.nn.utils.get_total_norm([wisp.tensor([3.0]), wisp.tensor([4.0])])
    tensor(5.)
    """
    tensors = _as_list(tensors)
    return _total_norm(lambda: _in_parts(tensors), norm_type, error_if_nonfinite)


@wisp.no_grad()
def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scale the gradients by `max_norm / total_norm` if that is below one."""
    _clip(_grads_in_parts(_as_list(parameters)), max_norm, total_norm)


def _clip(parts, max_norm, total_norm):
    scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    factor = scale.item() if scale.device.type == "cpu" else None
    if factor == 1.0:
        return
    for grads in parts:
        if factor is not None and all(grad.device.type == "cpu" for grad in grads):
            _core._scale_tensors(grads, factor)
        # Multiplying by one where nothing is to clip spares a wait for the device.
        elif all(grad.device == scale.device and grad.dtype in _UNSCALED for grad in grads):
            _core._unscale_tensors(grads, scale.to(wisp.float32), wisp.empty((), device=scale.device))
        else:
            for grad in grads:
                grad.mul_(scale.to(grad.device))


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale all gradients so that their total norm is at most `max_norm`; returns the norm before.

    >>> import wisp
    >>> p = wisp.zeros(2, requires_grad=True)
    >>> p.grad = wisp.tensor([3.0, 4.0])
    >>> wisp.nn.utils.clip_grad_norm_([p], max_norm=1.0)
    tensor(5.)
    >>> p.grad
    tensor([0.6000, 0.8000])
    """
    is_list = isinstance(parameters, (wisp.Tensor, list, tuple))
    parameters = _as_list(parameters)
    if not is_list and not parameters:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    with wisp.no_grad():
        total_norm = _total_norm(lambda: _grads_in_parts(parameters), norm_type, error_if_nonfinite)
        _clip(_grads_in_parts(parameters), max_norm, total_norm)
    return total_norm


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The old name of `clip_grad_norm_`."""
    warnings.warn("`clip_grad_norm` is now deprecated in favor of `clip_grad_norm_`.", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@wisp.no_grad()
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clamp every element of the gradients to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    for grads in _grads_in_parts(_as_list(parameters)):
        for grad in grads:
            grad.clamp_(min=-clip_value, max=clip_value)


_get_total_norm, _clip_grads_with_norm_ = get_total_norm, clip_grads_with_norm_  # as PyTorch called them first
