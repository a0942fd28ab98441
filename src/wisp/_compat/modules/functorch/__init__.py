"""`functorch`, the older name of `torch.func`: its transforms, and modules as functions of their parameters."""

import copy
import functools
import warnings

import wisp
from wisp import func
from wisp.func import functional_call, linearize, stack_module_state

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


def _renamed(name, home="torch.func"):
    """A transform that says, when it is used, by which name it is found today."""
    transform = getattr(func, name)

    @functools.wraps(transform)
    def called(*args, **kwargs):
        warnings.warn(
            f"We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{name}` is deprecated. "
            f"Please use `{home}.{name}` instead",
            FutureWarning,
            stacklevel=2,
        )
        return transform(*args, **kwargs)

    return called


vmap = _renamed("vmap", "torch")
grad, grad_and_value, vjp, jvp = map(_renamed, ("grad", "grad_and_value", "vjp", "jvp"))
jacrev, jacfwd, hessian, functionalize = map(_renamed, ("jacrev", "jacfwd", "hessian", "functionalize"))


class FunctionalModuleWithBuffers(wisp.nn.Module):
    """A module without values of its own: called with parameters, buffers and arguments."""

    def __init__(self, stateless_model, param_names, buffer_names, tied=None):
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, tuple(param_names), tuple(buffer_names)
        self.tied = tied or {}  # further names of a tensor -> its first one

    def forward(self, params, buffers, *args, **kwargs):
        state = {**dict(zip(self.param_names, params)), **dict(zip(self.buffer_names, buffers))}
        state.update({name: state[first] for name, first in self.tied.items()})
        return functional_call(self.stateless_model, state, args, kwargs, tie_weights=False)


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
    first, tied = {}, {}
    for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            if first.setdefault(id(tensor), name) != name:
                tied[name] = first[id(tensor)]
    function = FunctionalModuleWithBuffers(stateless, parameters, buffers, tied)
    return function, tuple(parameters.values()), tuple(buffers.values())


def make_functional(model, disable_autograd_tracking=False):
    """A function of (parameters, arguments), and the parameters of a copy of the module, which must have no buffers."""
    if next(model.buffers(), None) is not None:
        raise ValueError("make_functional(model): `model` has buffers; use make_functional_with_buffers(model) instead")
    function, parameters, _ = make_functional_with_buffers(model, disable_autograd_tracking)
    return FunctionalModule(function.stateless_model, function.param_names, (), function.tied), parameters


def combine_state_for_ensemble(models):
    """Models of one class as one function, with their parameters and buffers stacked, for vmap."""
    if len(models) == 0:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    functions, parameters, buffers = zip(*(make_functional_with_buffers(model) for model in models))
    stacked = [tuple(wisp.stack(same).detach() for same in zip(*values)) for values in (parameters, buffers)]
    return functions[0], tuple(value.requires_grad_() for value in stacked[0]), stacked[1]


def functional_init_with_buffers(model_class, ensemble_shape=(), device="cpu"):
    """A function that makes a module, or several with their values stacked: their parameters, buffers, function and the names of both."""

    def make(*args, **kwargs):
        if len(ensemble_shape) > 1:
            raise ValueError("NYI: ensemble_shape with more than 1 element")
        models = [model_class(*args, **kwargs).to(device) for _ in range(ensemble_shape[0] if ensemble_shape else 1)]
        if not ensemble_shape:
            function, parameters, buffers = make_functional_with_buffers(models[0])
        elif ensemble_shape[0] <= 0:
            raise ValueError(f"num_models {ensemble_shape[0]} should be > 0")
        else:
            function, parameters, buffers = combine_state_for_ensemble(models)

        def call(parameters, buffers, args):
            return function(parameters, buffers, *args)

        return parameters, buffers, call, function.param_names, function.buffer_names

    return make


def functional_init(model_class, ensemble_shape=(), device="cpu"):
    """As `functional_init_with_buffers`, for a module without buffers: its parameters, function and names."""
    make_all = functional_init_with_buffers(model_class, ensemble_shape, device)

    def make(*args, **kwargs):
        parameters, buffers, function, names, _ = make_all(*args, **kwargs)
        if buffers:
            raise ValueError("functional_init: the module has buffers; use functional_init_with_buffers")
        return parameters, lambda parameters, args: function(parameters, (), args), names

    return make
