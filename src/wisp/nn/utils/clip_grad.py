"""Clipping of gradients, by their total norm or element by element."""

import math
import operator
import warnings

import wisp
from wisp import _core

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

_KIND = operator.attrgetter("dtype", "device")
_UNSCALED = (wisp.float32, wisp.bfloat16, wisp.float16)  # a factor in float is fine enough


def _grads(parameters):
    if isinstance(parameters, wisp.Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


@wisp.no_grad()
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors together, as if they were one vector.

    >>> import wisp
    >>> wisp.nn.utils.get_total_norm([wisp.tensor([3.0]), wisp.tensor([4.0])])
    tensor(5.)
    """
    tensors = [tensors] if isinstance(tensors, wisp.Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return wisp.tensor(0.0)
    device, dtype = tensors[0].device, tensors[0].dtype
    if any(hasattr(kind, "device_mesh") for kind in set(map(type, tensors))):
        from wisp.distributed.tensor._dtensor import total_norm

        total = total_norm(tensors, norm_type)
    elif norm_type == 2.0 and dtype.is_floating_point and len(set(map(_KIND, tensors))) == 1:
        total = _core._total_norm(tensors)
    else:
        norms = [wisp.linalg.vector_norm(t.detach(), norm_type) for t in tensors]
        total = wisp.linalg.vector_norm(wisp.stack([norm.to(device) for norm in norms]), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@wisp.no_grad()
def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scale the gradients by `max_norm / total_norm` if that is below one."""
    _clip(_grads(parameters), max_norm, total_norm)


def _clip(grads, max_norm, total_norm):
    scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    factor = scale.item() if scale.device.type == "cpu" else None
    if factor == 1.0:
        return
    if factor is not None and all(grad.device.type == "cpu" for grad in grads):
        _core._scale_tensors(grads, factor)
        return
    # Multiplying by one where nothing is to clip spares a wait for the device.
    if all(grad.device == scale.device and grad.dtype in _UNSCALED for grad in grads):
        _core._unscale_tensors(grads, scale.to(wisp.float32), wisp.empty((), device=scale.device))
        return
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
    if isinstance(parameters, wisp.Tensor):
        parameters = [parameters]
    else:
        exhausted = not isinstance(parameters, (list, tuple))
        parameters = list(parameters)
        if exhausted and not parameters:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    grads = _grads(parameters)
    total_norm = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    with wisp.no_grad():
        _clip(grads, max_norm, total_norm)
    return total_norm


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The old name of `clip_grad_norm_`."""
    warnings.warn("`clip_grad_norm` is now deprecated in favor of `clip_grad_norm_`.", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@wisp.no_grad()
def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clamp every element of the gradients to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    for grad in _grads(parameters):
        grad.clamp_(min=-clip_value, max=clip_value)


_get_total_norm, _clip_grads_with_norm_ = get_total_norm, clip_grads_with_norm_  # as PyTorch called them first
