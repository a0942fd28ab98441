"""The base class of all optimizers: parameter groups, state, hooks, saving and loading.

An elementwise optimizer only names its state (`_init_state`) and makes one call over all parameters of a group
(`_update`); everything around it is here.
"""

import contextlib
import copy
import types
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from itertools import chain

import wisp
from wisp import _core
from wisp._tensor import has_shells
from wisp.optim._custom import (  # noqa: F401 (programs import them from here)
    DeviceDict,
    ParamsT,
    StateDict,
    _capturable_doc,
    _default_to_fused_or_foreach,
    _differentiable_doc,
    _disable_dynamo_if_unsupported,
    _dispatch_sqrt,
    _foreach_doc,
    _fused_doc,
    _get_scalar_dtype,
    _get_value,
    _maximize_doc,
    _params_doc,
    _stack_if_compiling,
    _to_scalar,
    _use_grad_for_differentiable,
    _view_as_real,
)
from wisp.utils.hooks import RemovableHandle

_clear_grads = getattr(_core, "_clear_grads", None)


def _get_capturable_supported_devices(supports_xla=True):
    """Where a step can be part of a graph: on GPUs."""
    return ["cuda"]


class _RequiredParameter:
    """Stands for a hyperparameter without a default."""

    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()

_global_pre_hooks = OrderedDict()
_global_post_hooks = OrderedDict()
_HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
_SWITCHES = "maximize differentiable capturable foreach fused amsgrad decoupled_weight_decay nesterov centered".split()


def _register(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _with_hooks(step):
    """`step` as a method that runs the registered hooks around it (once, if steps call each other by super())."""

    def hooked_step(self, *args, **kwargs):
        self._opt_called = True
        hooks = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        if not (hooks or _global_pre_hooks or _global_post_hooks) or self.__dict__.get("_inside_step"):
            return step(self, *args, **kwargs)
        args = (self, *args)
        for hook in chain(_global_pre_hooks.values(), self._optimizer_step_pre_hooks.values()):
            result = hook(self, args, kwargs)
            if result is not None:
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {result}.")
                args, kwargs = result
        self._inside_step = True
        try:
            loss = step(*args, **kwargs)
        finally:
            del self._inside_step
        for hook in chain(self._optimizer_step_post_hooks.values(), _global_post_hooks.values()):
            hook(self, args, kwargs)
        return loss

    hooked_step.__name__, hooked_step.__doc__ = "step", step.__doc__
    hooked_step.__wrapped__ = step
    hooked_step.hooked = True
    return hooked_step


def _parts(group, most=1024):
    """The group, or groups of some of its parameters, whose tensors stay in a cache while a step goes over them again and again."""
    params = group["params"]
    if len(params) <= most:
        return [group]
    return [{**group, "params": params[i : i + most]} for i in range(0, len(params), most)]


class Optimizer:
    """Base class of all optimizers.

    `params` is an iterable of tensors, of (name, tensor) pairs, or of dicts, each a group of parameters with
    hyperparameters of its own; `defaults` holds the hyperparameters of groups that do not say otherwise.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__ and not getattr(cls.step, "hooked", False):
            cls.step = _with_hooks(cls.step)

    # of optimizers that wrap another one and never call this class's __init__
    _optimizer_step_pre_hooks = _optimizer_step_post_hooks = types.MappingProxyType({})

    def __init__(self, params, defaults):
        if isinstance(params, wisp.Tensor):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {_typename(params)}"
            )
        self.defaults = defaults
        for name in _HOOKS:
            setattr(self, name, OrderedDict())
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())
        differentiable = "differentiable" in self.defaults
        self.defaults.setdefault("differentiable", False)
        # groups saved by an older version may lack a hyperparameter; steps used to be plain numbers
        for group in self.param_groups:
            for name in _SWITCHES:
                if name in self.defaults and (name != "differentiable" or differentiable):
                    group.setdefault(name, None if name in ("foreach", "fused") else False)
        if type(self)._step_is_tensor:
            for values in self.state.values():
                if isinstance(values, dict) and isinstance(values.get("step"), (int, float)):
                    values["step"] = _scalar(values["step"])

    def __repr__(self):
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    # ------------------------------------------------------------ stepping
    _step_is_tensor = False  # of the classes here that count steps; one of a program keeps what it has
    _numbers = ("step",)  # what the step reads on the CPU, unless it is captured
    _needs_whole = False  # an update is more than a function of each element: parameters cut over ranks won't do

    def step(self, closure=None):
        """Update the parameters. `closure`, if given, computes the loss anew; its value is returned."""
        loss = None
        if closure is not None:
            with wisp.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if not group.get("fused") or self._unscale(group):
                for part in _parts(group):
                    self._update(part)
        return loss

    def _unscale(self, group):
        """Divide the gradients of a fused group by `grad_scale`; False where `found_inf` says that its step is to be left out. Both are set
        by a program that scales its loss itself."""
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if scale is None and found is None:
            return True
        from wisp.optim._functional import usable

        return usable([p.grad for p in group["params"] if p.grad is not None], scale, found)

    def _update(self, group):
        raise NotImplementedError

    def _init_state(self, state, parameter, group):
        """Fill the empty dict `state` of a parameter that is seen for the first time."""

    def _begin(self, parameter, group):
        """Give a parameter its first state: all of it at once, so that an interrupt leaves the whole or nothing."""
        state = {}
        self._init_state(state, parameter, group)
        self.state[parameter].update(state)

    def _gather(self, group):
        """-> the parameters of a group that have a gradient, their gradients, and their state dicts."""
        params = [p for p in group["params"] if p.grad is not None]
        state = self.state
        states = [state[p] for p in params]
        if not all(states):
            for p, values in zip(params, states):
                if not values:
                    self._begin(p, group)
        return params, [p.grad for p in params], states

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters, or fill them with zeros."""
        if set_to_none and _clear_grads is not None:
            for group in self.param_groups:
                _clear_grads(group["params"])
            return
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    p.grad.zero_()

    # ------------------------------------------------------------ parameter groups
    def add_param_group(self, param_group):
        """Add a group: a dict with "params" and, where they differ from the defaults, hyperparameters."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of "
                "tensors in sets will change between runs. Please use a list instead."
            )
        params = [params] if isinstance(params, wisp.Tensor) else list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names:
            if len(names) != len(params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            params = [p[1] for p in params]
            param_group["param_names"] = names
        param_group["params"] = params

        for p in params:
            if not isinstance(p, wisp.Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(p)}")
            if getattr(p, "_is_sharded", False):
                raise ValueError(
                    "a parameter was cut over ranks by fully_shard after it was taken from the model; make the optimizer from "
                    "model.parameters() after fully_shard"
                )
            if self._needs_whole and getattr(p, "device_mesh", None) is not None and p.device_mesh.size() > 1:
                raise NotImplementedError(
                    f"{type(self).__name__} needs whole parameters, and fully_shard has cut them over ranks; use an "
                    "optimizer that works on each element (Adam, AdamW, SGD ...), or DistributedDataParallel"
                )
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error", stacklevel=3
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if names else "without names"
                raise ValueError(f"all optimizer param groups should be with/without names. cannot add param group {kind} to the optimizer")
        if not set(params).isdisjoint(p for group in self.param_groups for p in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    # ------------------------------------------------------------ saving and loading
    def state_dict(self):
        """The state as plain dicts, in which a parameter is the number of its place in the groups."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number, groups, start = {}, [], 0
        for group in self.param_groups:
            for i, p in enumerate(group["params"], start):
                number.setdefault(id(p), i)
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
            start += len(group["params"])
        state = {number[id(key)] if isinstance(key, wisp.Tensor) else key: _cut_alike(value, key) for key, value in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict):
        """Take over a `state_dict()` of an optimizer of the same class and the same groups."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        groups, saved = self.param_groups, copy.deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(new["params"]) != len(old["params"]) for new, old in zip(saved, groups)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        owner = {number: (p, new) for old, new in zip(groups, saved) for number, p in zip(new["params"], old["params"])}
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in owner:
                parameter, group = owner[key]
                numbers = () if group.get("capturable", False) else self._numbers
                state[parameter] = _fit(_cut_alike(value, parameter), parameter, numbers)
            else:
                state[key] = value
        for old, new in zip(groups, saved):
            new["params"] = old["params"]
            if "param_names" in old:
                new.setdefault("param_names", old["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # ------------------------------------------------------------ hooks
    def register_step_pre_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` before a step; it may return other (args, kwargs)."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` after a step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` before `state_dict()`."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` after `state_dict()`; it may return another one."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` before `load_state_dict()`; it may return another one."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` after `load_state_dict()`."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)


Optimizer.step = _with_hooks(Optimizer.step)


def _cut_alike(state, parameter):
    """The state of a parameter that is cut over ranks (a DTensor), with tensors that are cut in the same way."""
    return parameter._cut_alike(state) if hasattr(parameter, "device_mesh") and isinstance(state, dict) else state


def _fit(value, parameter, numbers, key=None):
    """A copy of loaded state with its tensors in the dtype and on the device of the parameter, but `numbers`, which stay on the CPU."""
    if isinstance(value, wisp.Tensor):
        if key == "step":
            return value if key in numbers else value.to(dtype=wisp.float32, device=parameter.device)
        dtype = parameter.dtype if parameter.is_floating_point() else value.dtype
        return value.to(dtype=dtype, device="cpu" if key in numbers else parameter.device)
    if isinstance(value, dict):
        return {name: _fit(item, parameter, numbers, name) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return type(value)(_fit(item, parameter, numbers) for item in value)
    return value


# ---------------------------------------------------------------- helpers of the optimizers
def _typename(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _scalar(value, device="cpu"):
    """A 0-dim tensor, the form in which step counts are kept: on the CPU, where the step reads them."""
    dtype = wisp.float64 if wisp.get_default_dtype() == wisp.float64 else wisp.float32
    return wisp.tensor(float(value), dtype=dtype, device=device)


def _new_step(parameter, group):
    return _scalar(0.0, parameter.device if group.get("capturable") else "cpu")


def _rule(name, group, params):
    """The step of an optimizer, and its learning rate. The core's fused step takes numbers; formulas serve autograd, and graphs that
    count their own steps on the GPU and follow a learning rate there."""
    from wisp.optim import _formulas

    if group["differentiable"]:
        return getattr(_formulas, f"{name}_step"), _number(group["lr"])
    if has_shells(params) or (group.get("capturable") and any(p.is_cuda for p in params)):
        return wisp.no_grad()(getattr(_formulas, f"{name}_step")), group["lr"]
    return getattr(wisp._core, f"_{name}_step"), _number(group["lr"])


def _settings(arguments):
    """The `locals()` of an optimizer's constructor as the defaults of its groups."""
    return {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}


def _zeros(parameter):
    return wisp.zeros_like(parameter, requires_grad=False)


def _check_lr(lr):
    if isinstance(lr, wisp.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= lr:
        raise ValueError(f"Invalid learning rate: {lr}")


def _check_nonnegative(**values):
    for name, value in values.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {value}")


def _check_betas(betas):
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def _check_fused(fused, foreach, differentiable):
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _number(value):
    """A hyperparameter, which may be a tensor of one element, as a float for the core."""
    return value if type(value) is float else float(value)


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """A context in which an optimizer works on other parameters, with the state and hyperparameters of a `state_dict()`.

    In-place changes of the state's tensors are seen in `swapin_optim_state`; afterwards the optimizer is as before.

    >>> import wisp
    >>> p, other = wisp.ones(1, requires_grad=True), wisp.zeros(1, requires_grad=True)
    >>> optimizer = wisp.optim.SGD([p], lr=1.0)
    >>> other.grad = wisp.ones(1)
    >>> with wisp.optim.swap_in_optimizer_params_and_state(optimizer, {"p": other}, optimizer.state_dict()):
    ...     optimizer.step()
    >>> p.item(), other.item()
    (1.0, -1.0)
    """
    parameters = list(swapin_parameters.values() if isinstance(swapin_parameters, dict) else swapin_parameters)
    groups, states = swapin_optim_state["param_groups"], swapin_optim_state["state"]
    counts = [len(group["params"]) for group in optimizer.param_groups]
    if counts != [len(group["params"]) for group in groups] or sum(counts) != len(parameters):
        raise ValueError(
            f"swap_in_optimizer_params_and_state: the optimizer has groups of {counts} parameters, which "
            f"{len(parameters)} parameters in groups of {[len(group['params']) for group in groups]} do not fit"
        )
    state, before = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        optimizer.state = defaultdict(dict)
        for live, group in zip(optimizer.param_groups, groups):
            live.update({name: value for name, value in group.items() if name != "params"})
            live["params"], parameters = parameters[: len(group["params"])], parameters[len(group["params"]) :]
            for p, number in zip(live["params"], group["params"]):
                if number in states:
                    optimizer.state[p] = dict(states[number])
        yield
    finally:
        for live, contents in zip(optimizer.param_groups, before):
            live.clear()
            live.update(contents)
        optimizer.state = state
