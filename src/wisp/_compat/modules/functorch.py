"""`functorch`, the older name of `torch.func`: its transforms, and modules as functions of their parameters."""

import copy

import wisp
from wisp.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "make_functional",
    "make_functional_with_buffers",
    "stack_module_state",
    "vjp",
    "vmap",
]


class FunctionalModuleWithBuffers(wisp.nn.Module):
    """A module without values of its own: called with parameters, buffers and arguments."""

    def __init__(self, stateless_model, param_names, buffer_names):
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, tuple(param_names), tuple(buffer_names)

    def forward(self, params, buffers, *args, **kwargs):
        state = {**dict(zip(self.param_names, params)), **dict(zip(self.buffer_names, buffers))}
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """The same for a module without buffers: called with parameters and arguments."""

    def forward(self, params, *args, **kwargs):
        return super().forward(params, (), *args, **kwargs)


def make_functional_with_buffers(model, disable_autograd_tracking=False):
    """A function of (parameters, buffers, arguments), and the parameters and buffers of a copy of the module."""
    parameters, buffers = dict(copy.deepcopy(model).named_parameters()), dict(copy.deepcopy(model).named_buffers())
    for parameter in parameters.values():
        parameter.requires_grad_(parameter.requires_grad and not disable_autograd_tracking)
    stateless = copy.deepcopy(model).to("meta")
    function = FunctionalModuleWithBuffers(stateless, parameters, buffers)
    return function, tuple(parameters.values()), tuple(buffers.values())


def make_functional(model, disable_autograd_tracking=False):
    """A function of (parameters, arguments), and the parameters of a copy of the module, which must have no buffers."""
    if next(model.buffers(), None) is not None:
        raise ValueError("make_functional(model): `model` has buffers; use make_functional_with_buffers(model) instead")
    function, parameters, _ = make_functional_with_buffers(model, disable_autograd_tracking)
    return FunctionalModule(function.stateless_model, function.param_names, ()), parameters


def combine_state_for_ensemble(models):
    """Models of one class as one function, with their parameters and buffers stacked, for vmap."""
    if len(models) == 0:
        raise RuntimeError("combine_state_for_ensemble: expected at least one model, got 0.")
    functions, parameters, buffers = zip(*(make_functional_with_buffers(model) for model in models))
    stacked = [tuple(wisp.stack(same).detach() for same in zip(*values)) for values in (parameters, buffers)]
    return functions[0], tuple(value.requires_grad_() for value in stacked[0]), stacked[1]
