"""The state of a model and its optimizers by parameters' names, whatever wraps the model; and back."""

import dataclasses

import wisp
from wisp import distributed
from wisp.distributed.tensor import DTensor
from wisp.nn.modules.state import _IncompatibleKeys

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


@dataclasses.dataclass
class StateDictOptions:
    """How state is given and taken: whole tensors instead of parts, on the CPU, without frozen parameters, tolerant of other keys, and
    `broadcast_from_rank0`, when rank 0 alone has whole tensors."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _wrapper_names(model):
    """The prefixes of wrappers in names of this model: DistributedDataParallel's "module." where there is one."""
    names = [name + "." for name in _WRAPPERS]
    ddp = [
        name + ".module." if name else "module."
        for name, module in model.named_modules()
        if isinstance(module, wisp.nn.parallel.DistributedDataParallel)
    ]
    return names, ddp


def _clean(name, wrappers):
    names, ddp = wrappers
    for prefix in ddp:
        if name.startswith(prefix):
            name = prefix[: -len("module.")] + name[len(prefix) :]
    for prefix in names:
        name = name.replace(prefix, "")
    return name


def _names(model):
    """{parameter: name without wrappers}."""
    wrappers = _wrapper_names(model)
    return {parameter: _clean(name, wrappers) for name, parameter in model.named_parameters()}


def _given(value, options):
    if isinstance(value, DTensor) and options.full_state_dict:
        value = value.full_tensor()
    if isinstance(value, wisp.Tensor) and options.cpu_offload:
        value = value.cpu()
    return value


def _nothing_here(options):
    """Whole tensors on the CPU are given to rank 0 alone, as in PyTorch."""
    return options.full_state_dict and options.cpu_offload and distributed.is_initialized() and distributed.get_rank() > 0


def _show_parts(model):
    for module in model.modules():
        if hasattr(module, "_fsdp_unit"):
            module.reshard()


def _raw_state(model):
    """The model's state_dict with parts as DTensors, whatever FullyShardedDataParallel was told."""
    from wisp.distributed.fsdp import FullyShardedDataParallel, StateDictType

    _show_parts(model)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return model.state_dict()


def get_model_state_dict(model, *, submodules=None, options=None):
    """The state of a model, in one process or cut over many, by the names that its parameters have without wrappers.

    >>> import wisp
    >>> from wisp.distributed.checkpoint.state_dict import get_model_state_dict
    >>> list(get_model_state_dict(wisp.nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    options = options or StateDictOptions()
    wrappers = _wrapper_names(model)
    frozen = {_clean(name, wrappers) for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    prefixes = None
    if submodules:
        prefixes = [_clean(name, wrappers) + "." for name, module in model.named_modules() if module in submodules]
    result = {}
    for name, value in _raw_state(model).items():
        name = _clean(name, wrappers)
        if options.ignore_frozen_params and name in frozen:
            continue
        if prefixes is not None:
            found = [prefix for prefix in prefixes if name.startswith(prefix)]
            if not found:
                continue
            name = name if options.keep_submodule_prefixes else name[len(found[0]) :]
        result[name] = _given(value, options)
    return {} if _nothing_here(options) else result


def _ready_state(optimizer):
    """Give parameters that have not been stepped the state that they would begin with, so that there is something to load into."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and not optimizer.state[parameter]:
                optimizer._begin(parameter, group)
                if isinstance(optimizer, wisp.optim.SGD) and group["momentum"]:
                    optimizer.state[parameter]["momentum_buffer"] = wisp.zeros_like(parameter, requires_grad=False)


def _optimizers(optimizers):
    return [optimizers] if isinstance(optimizers, wisp.optim.Optimizer) else list(optimizers)


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options=None):
    """The state of a model's optimizers by parameters' names: {"state": {name: {...}}, "param_groups": [{"params": [name, ...], ...}]}."""
    options = options or StateDictOptions()
    _show_parts(model)
    names = _names(model)
    chosen = None
    if submodules:
        chosen = {parameter for module in submodules for parameter in module.parameters()}
    result = {"state": {}, "param_groups": []}
    for optimizer in _optimizers(optimizers):
        _ready_state(optimizer)
        packed = optimizer.state_dict()
        numbers = {}
        for group, live in zip(packed["param_groups"], optimizer.param_groups):
            unknown = [parameter for parameter in live["params"] if parameter not in names]
            if unknown:
                raise RuntimeError(
                    f"get_optimizer_state_dict: the optimizer has {len(unknown)} parameters that are not the model's (make "
                    "it from model.parameters(), after fully_shard)"
                )
            numbers.update((number, parameter) for number, parameter in zip(group["params"], live["params"]))
            group["params"] = [names[parameter] for parameter in live["params"] if chosen is None or parameter in chosen]
            result["param_groups"].append(group)
        for number, values in packed["state"].items():
            parameter = numbers[number]
            if values and (chosen is None or parameter in chosen):
                result["state"][names[parameter]] = {name: _given(value, options) for name, value in values.items()}
    if _nothing_here(options):
        return {}
    return _flat(result) if options.flatten_optimizer_state_dict else result


def _flat(state):
    """{"state.name.exp_avg": ..., "param_groups.name.lr": ...}."""
    result = {f"state.{name}.{key}": value for name, values in state["state"].items() for key, value in values.items()}
    for group in state["param_groups"]:
        for name in group["params"]:
            result.update((f"param_groups.{name}.{key}", value) for key, value in group.items() if key != "params")
    return result


def _unflat(state, optimizers, names):
    """The opposite of `_flat`, in the groups that the optimizers have."""
    result = {"state": {}, "param_groups": []}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            found = {"params": [names[parameter] for parameter in group["params"]]}
            for name in found["params"]:
                for prefix, target in ((f"state.{name}.", result["state"].setdefault(name, {})), (f"param_groups.{name}.", found)):
                    target.update((key[len(prefix) :], value) for key, value in state.items() if key.startswith(prefix))
            result["param_groups"].append(found)
    return result


def _numbered(model, optimizer, state):
    """State by names as `optimizer.load_state_dict` takes it."""
    names = _names(model)
    by_name = {name: group for group in state["param_groups"] for name in group["params"]}
    numbers, groups, packed = {}, [], {}
    for group in optimizer.param_groups:
        own = [names[parameter] for parameter in group["params"]]
        missing = [name for name in own if name not in by_name]
        if missing:
            raise RuntimeError(f"set_optimizer_state_dict: the state has no group for {', '.join(missing)}")
        first = len(numbers)
        numbers.update((name, first + i) for i, name in enumerate(own))
        saved = by_name[own[0]] if own else {}
        groups.append(
            {
                **{key: value for key, value in group.items() if key != "params"},
                **{key: value for key, value in saved.items() if key != "params"},
                "params": [numbers[name] for name in own],
            }
        )
    for name, values in state["state"].items():
        if name in numbers:
            packed[numbers[name]] = values
    return {"state": packed, "param_groups": groups}


def _from_rank_0(value):
    """Rank 0's structure, with its tensors, in all ranks."""
    found = [value]
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.broadcast_object_list(found, 0)
    return found[0]


def set_model_state_dict(model, model_state_dict, *, options=None):
    """Load what `get_model_state_dict` gave, whole or in parts, into a model; returns missing and unexpected keys."""
    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        model_state_dict = _from_rank_0(model_state_dict)
    _show_parts(model)
    wrappers = _wrapper_names(model)
    own = {_clean(name, wrappers): name for name in _raw_state(model)}
    given = {own.get(name, name): value for name, value in model_state_dict.items()}
    if not model_state_dict and options.strict and own and not options.full_state_dict:
        raise RuntimeError("set_model_state_dict: the state is empty")
    missing = [name for name, full in own.items() if full not in given]
    extra = [name for name in model_state_dict if name not in own]
    if options.strict and (missing or extra):
        text = "".join(
            f"\n\t{what} key(s) in state_dict: {', '.join(keys)}." for what, keys in (("Missing", missing), ("Unexpected", extra)) if keys
        )
        raise RuntimeError(f"Error(s) in loading state_dict for {type(model).__name__}:{text}")
    model.load_state_dict({name: value for name, value in given.items() if name in own.values()}, strict=False)
    return _IncompatibleKeys(missing, extra)


def set_optimizer_state_dict(model, optimizers, optim_state_dict, *, options=None):
    """Load what `get_optimizer_state_dict` gave, whole or in parts, into a model's optimizers."""
    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        optim_state_dict = _from_rank_0(optim_state_dict)
    _show_parts(model)
    optimizers = _optimizers(optimizers)
    if "param_groups" not in optim_state_dict or not isinstance(optim_state_dict["param_groups"], list):
        optim_state_dict = _unflat(optim_state_dict, optimizers, _names(model))
    for optimizer in optimizers:
        optimizer.load_state_dict(_numbered(model, optimizer, optim_state_dict))


def get_state_dict(model, optimizers, *, submodules=None, options=None):
    """(state of the model, state of its optimizers)."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    """Load both; returns the model's missing and unexpected keys."""
    result = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result


def _init_optim_state(optim):
    """Give an optimizer that has not stepped its state, without a change of parameters: a step by gradients of zero at a rate of zero.

    >>> import wisp
    >>> from wisp.distributed.checkpoint.state_dict import _init_optim_state
    >>> optimizer = wisp.optim.Adam([wisp.nn.Parameter(wisp.ones(2))])
    >>> _init_optim_state(optimizer)
    >>> optimizer.state_dict()["state"][0]["exp_avg"]
    tensor([0., 0.])
    """
    taking = [p for group in optim.param_groups for p in group["params"] if p.requires_grad]
    if optim.state or any(p.grad is not None for p in taking):  # gradients that are there are the program's
        return
    rates = [group.get("lr") for group in optim.param_groups]
    for p in taking:
        p.grad = wisp.zeros_like(p)
    for group, rate in zip(optim.param_groups, rates):
        if rate is not None:
            group["lr"] = wisp.zeros_like(rate) if isinstance(rate, wisp.Tensor) else 0.0
    try:
        optim.step(closure=None)
    finally:
        for group, rate in zip(optim.param_groups, rates):
            if rate is not None:
                group["lr"] = rate
        optim.zero_grad(set_to_none=True)
