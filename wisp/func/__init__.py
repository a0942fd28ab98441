"""Transforms of functions: gradients, Jacobians, products with them, and mapping over a batch.

    >>> import wisp
    >>> wisp.func.grad(wisp.func.grad(wisp.sin))(wisp.tensor(1.0))
    tensor(-0.8415)
"""

from wisp.func import _batching_rules  # noqa: F401
from wisp.func._derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from wisp.func._modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from wisp.func._vmap import vmap

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
