"""Transforms of functions: gradients, Jacobians, products with them, and mapping over a batch.

>>> import wisp
>>> wisp.func.grad(wisp.func.grad(wisp.sin))(wisp.tensor(1.0))
tensor(-0.8415)
"""

from wisp import _reference
from wisp.func import _batching_rules  # noqa: F401
from wisp.func._batching import BatchedTensor as _BatchedTensor
from wisp.func._derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from wisp.func._modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from wisp.func._rearrange import rearrange
from wisp.func._vmap import vmap

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "rearrange",
    "vjp",
    "vmap",
]


def functionalize(func, *, remove="mutations"):
    """The function itself: functions that write in place can be differentiated and mapped here as they are.

    >>> import wisp
    >>> wisp.func.functionalize(lambda x: x.clone().add_(1))(wisp.zeros(2))
    tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize: remove must be 'mutations' or 'mutations_and_views', got {remove!r}")
    return func


def debug_unwrap(tensor, *, recurse=True):
    """The tensor that holds all samples, of one inside of vmap: of all levels, or with `recurse=False` of the innermost.

    >>> import wisp
    >>> wisp.func.debug_unwrap(wisp.ones(2))
    tensor([1., 1.])
    """
    while isinstance(tensor, _BatchedTensor):
        tensor = tensor._physical
        if not recurse:
            break
    return tensor


_reference.attach(__name__, globals())
