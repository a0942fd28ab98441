"""The optimizers as functions of lists: parameters, gradients and state, which is changed in place.

>>> import wisp
>>> from wisp.optim.sgd import sgd
>>> p, g = wisp.ones(2), wisp.ones(2)
>>> sgd([p], [g], [None], lr=0.1, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False)
>>> p
tensor([0.9000, 0.9000])
"""

import wisp
from wisp import _core
from wisp.optim import _formulas

# PyTorch's arguments of each: lists, options that may be left out, and numbers by name.
_FORMS = {
    "adadelta": (
        "params grads square_avgs acc_deltas state_steps",
        "capturable foreach differentiable has_complex",
        "lr rho eps weight_decay maximize",
    ),
    "adagrad": (
        "params grads state_sums state_steps",
        "fused grad_scale found_inf has_sparse_grad foreach differentiable has_complex",
        "lr weight_decay lr_decay eps maximize",
    ),
    "adam": (
        "params grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps",
        "foreach capturable differentiable fused grad_scale found_inf has_complex decoupled_weight_decay",
        "amsgrad beta1 beta2 lr weight_decay eps maximize",
    ),
    "adamax": (
        "params grads exp_avgs exp_infs state_steps",
        "foreach maximize differentiable capturable has_complex",
        "eps beta1 beta2 lr weight_decay",
    ),
    "adamw": (
        "params grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps",
        "foreach capturable differentiable fused grad_scale found_inf has_complex",
        "amsgrad beta1 beta2 lr weight_decay eps maximize",
    ),
    "asgd": (
        "params grads axs mus etas state_steps",
        "foreach maximize differentiable capturable has_complex",
        "lambd lr t0 alpha weight_decay",
    ),
    "nadam": (
        "params grads exp_avgs exp_avg_sqs mu_products state_steps",
        "decoupled_weight_decay foreach capturable differentiable has_complex maximize",
        "beta1 beta2 lr weight_decay momentum_decay eps",
    ),
    "radam": (
        "params grads exp_avgs exp_avg_sqs state_steps",
        "decoupled_weight_decay foreach differentiable capturable has_complex maximize",
        "beta1 beta2 lr weight_decay eps",
    ),
    "rmsprop": (
        "params grads square_avgs grad_avgs momentum_buffer_list state_steps",
        "foreach maximize differentiable capturable has_complex",
        "lr alpha eps weight_decay momentum centered",
    ),
    "rprop": (
        "params grads prevs step_sizes state_steps",
        "foreach capturable maximize differentiable has_complex",
        "step_size_min step_size_max etaminus etaplus",
    ),
    "sgd": (
        "params d_p_list momentum_buffer_list",
        "has_sparse_grad foreach fused grad_scale found_inf",
        "weight_decay momentum lr dampening nesterov maximize",
    ),
}
_CORE_NAMES = {
    "d_p_list": "grads",
    "decoupled_weight_decay": "decoupled",
    "momentum_buffer_list": "momentum_buffers",
    "state_steps": "steps",
}
_SWITCHES = ("maximize", "decoupled_weight_decay")  # options that the step itself reads


def _form(name):
    lists, options, numbers = (words.split() for words in _FORMS[name])
    known = lists + options

    def function(*args, **named):
        if len(args) > len(known):
            raise TypeError(f"{name}() takes at most {len(known)} positional arguments, got {len(args)}")
        given = dict(zip(known, args))
        for key in named:
            if key in given or key not in known and key not in numbers:
                raise TypeError(f"{name}() got {'two values for' if key in given else 'an unexpected'} argument {key!r}")
        given |= named
        missing = [key for key in lists + numbers if key not in given]
        if missing:
            raise TypeError(f"{name}() needs the arguments {', '.join(missing)}")
        values = {key: given.get(key) for key in lists + numbers} | {key: bool(given.get(key)) for key in _SWITCHES if key in known}
        grads = values[lists[1]]
        if not usable(grads, given.get("grad_scale"), given.get("found_inf")):
            return
        rule = name
        if name == "adamw":
            rule, values["decoupled_weight_decay"] = "adam", True
        differentiable = given.get("differentiable")
        formula = differentiable or any(g.is_sparse for g in grads)
        step = getattr(_formulas, f"{rule}_step") if formula else getattr(_core, f"_{rule}_step")
        for key in () if differentiable else numbers:  # the core's steps take plain numbers
            if isinstance(values[key], wisp.Tensor):
                values[key] = values[key].item()
        with wisp.set_grad_enabled(bool(differentiable)):
            step(**{_CORE_NAMES.get(key, key): value for key, value in values.items()})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"One step of {name} on lists of tensors.\n\nArguments: {', '.join(known)}; by name: {', '.join(numbers)}."
    return function


def usable(grads, grad_scale, found_inf):
    """Divides gradients by the scale that a GradScaler multiplied the loss by; False if the step is to be left out."""
    if found_inf is not None and found_inf.item():
        return False
    if grad_scale is not None:
        for g in grads:
            g.div_(grad_scale.to(g.device))
    return True


globals().update({name: _form(name) for name in _FORMS})
