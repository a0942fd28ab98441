"""Helpers of PyTorch's optimizers that programs import for optimizers of their own, from `optim.optimizer`."""

import functools
import typing
from collections.abc import Iterable

import wisp

ParamsT = typing.Union[Iterable[wisp.Tensor], Iterable[dict[str, typing.Any]], Iterable[tuple[str, wisp.Tensor]]]
StateDict: typing.TypeAlias = dict[str, typing.Any]
DeviceDict = dict[typing.Optional[wisp.device], wisp.Tensor]

# Parts of docstrings.
_params_doc = "params (iterable): tensors to optimize, or dicts of parameter groups"
_foreach_doc = "foreach (bool, optional): accepted; every step is one call for all tensors"
_fused_doc = "fused (bool, optional): accepted; every step is fused"
_capturable_doc = "capturable (bool, optional): keep the count of steps on the device"
_differentiable_doc = "differentiable (bool, optional): let gradients flow through the step"
_maximize_doc = "maximize (bool, optional): go up instead of down"


def _use_grad_for_differentiable(step):
    """Decorate `step`: gradients are recorded only if the optimizer is differentiable."""

    @functools.wraps(step)
    def decorated(self, *args, **kwargs):
        with wisp.set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            return step(self, *args, **kwargs)

    return decorated


def _get_value(x):
    """A number of a tensor or a number."""
    return x.item() if isinstance(x, wisp.Tensor) else x


def _stack_if_compiling(x):
    return x


def _dispatch_sqrt(x):
    """The square root of a tensor or a number."""
    return x.sqrt() if isinstance(x, wisp.Tensor) else x**0.5


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    """(fused, foreach) where neither is asked for: the plain formula."""
    return False, False


def _view_as_real(params, *state_and_grads):
    """Replace complex tensors, in the lists, by views with real and imaginary parts."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = wisp.view_as_real(tensors[i])


def _get_scalar_dtype(is_fused=None):
    return wisp.float32 if is_fused or wisp.get_default_dtype() != wisp.float64 else wisp.float64


def _to_scalar(x):
    """A tensor of one element without dimensions; numbers as they are."""
    return x.squeeze() if isinstance(x, wisp.Tensor) and x.dim() else x


def _disable_dynamo_if_unsupported(single_tensor_fn=None):
    """A decorator that changes nothing: there is no compiler to keep away."""
    return lambda function: function
