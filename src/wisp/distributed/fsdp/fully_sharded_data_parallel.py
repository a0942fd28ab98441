"""FullyShardedDataParallel: PyTorch's first form of sharding, a wrapper, on the units of `fully_shard`."""

import contextlib
import dataclasses
import enum
import os

import wisp
from wisp import distributed
from wisp.distributed.device_mesh import DeviceMesh
from wisp.distributed.fsdp._fully_shard import FSDPModule, fully_shard
from wisp.distributed.fsdp._policies import CPUOffloadPolicy, MixedPrecisionPolicy
from wisp.distributed.fsdp.wrap import _recursive_wrap
from wisp.distributed.tensor import DTensor

__all__ = """
    BackwardPrefetch CPUOffload FlatParameter FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel
    LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision OptimStateDictConfig OptimStateKeyType
    ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig StateDictSettings StateDictType""".split()

_INNER = "_fsdp_wrapped_module"


class FlatParameter(wisp.nn.Parameter):
    """PyTorch's class for the parameters of a unit, laid end to end. Units here keep each as a DTensor, so that no parameter is one."""


class ShardingStrategy(enum.Enum):
    """What is divided: all; all but parameters between forward and backward; nothing; and the same within machines, with replicas."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = 1, 2, 3, 4, 5


class BackwardPrefetch(enum.Enum):
    """When backward asks for the next parameters: before it computes, in both cases."""

    BACKWARD_PRE, BACKWARD_POST = 1, 2


class StateDictType(enum.Enum):
    """The form of a state_dict: whole tensors, this rank's parts as they lie, or DTensors."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = 1, 2, 3


class OptimStateKeyType(enum.Enum):
    """How an optimizer's state names parameters."""

    PARAM_NAME, PARAM_ID = 1, 2


@dataclasses.dataclass
class MixedPrecision:
    """In which dtypes parameters are used, gradients added up, and buffers kept."""

    param_dtype: wisp.dtype | None = None
    reduce_dtype: wisp.dtype | None = None
    buffer_dtype: wisp.dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True


@dataclasses.dataclass
class CPUOffload:
    """Whether parts stay in the memory of the CPU."""

    offload_params: bool = False


@dataclasses.dataclass
class StateDictConfig:
    """Settings of a state_dict."""

    offload_to_cpu: bool = False


@dataclasses.dataclass
class FullStateDictConfig(StateDictConfig):
    """Settings of a whole state_dict; `rank0_only` gives the others an empty one."""

    rank0_only: bool = False


@dataclasses.dataclass
class LocalStateDictConfig(StateDictConfig):
    """Settings of a state_dict of parts."""


@dataclasses.dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Settings of a state_dict of DTensors."""


@dataclasses.dataclass
class OptimStateDictConfig:
    """Settings of an optimizer's state."""

    offload_to_cpu: bool = True


@dataclasses.dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Settings of an optimizer's whole state."""

    rank0_only: bool = False


@dataclasses.dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Settings of an optimizer's state of parts."""


@dataclasses.dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Settings of an optimizer's state of DTensors."""


@dataclasses.dataclass
class StateDictSettings:
    """What `FullyShardedDataParallel.get_state_dict_type` tells."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = dataclasses.field(default_factory=FullStateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = dataclasses.field(default_factory=FullOptimStateDictConfig)


_CONFIGS = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


def _mesh(strategy, process_group, device_mesh, kind):
    """The mesh of a strategy: (replicas, parts), or parts alone."""
    if device_mesh is not None:
        return device_mesh
    hybrid = strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
    if isinstance(process_group, (list, tuple)):
        shard, replicate = process_group
        here = distributed.get_rank()
        grid = [[rank + other - here for rank in shard.ranks] for other in replicate.ranks]
        return DeviceMesh.from_group([replicate, shard], kind, grid)
    if strategy is ShardingStrategy.NO_SHARD or hybrid:
        size = distributed.get_world_size()
        parts = 1 if strategy is ShardingStrategy.NO_SHARD else int(os.environ.get("LOCAL_WORLD_SIZE", size))
        if process_group is not None and not hybrid:
            raise NotImplementedError("FullyShardedDataParallel: NO_SHARD over a group is not supported; use DistributedDataParallel")
        return DeviceMesh(kind, wisp.arange(size).view(-1, parts))
    return DeviceMesh(kind) if process_group is None else DeviceMesh.from_group(process_group, kind)


class _Meta(type(wisp.nn.Module)):
    # the modules that a policy chose are sharded where they are, without a wrapper around them; those of `fully_shard` are none of these
    def __instancecheck__(cls, instance):
        return getattr(instance, "_in_wrapper", False) is True or super().__instancecheck__(instance)


class FullyShardedDataParallel(wisp.nn.Module, metaclass=_Meta):
    """A module whose parameters, gradients and optimizer state are divided among ranks. New programs use `fully_shard`.

    What `auto_wrap_policy` chooses is gathered on its own. Parameters stay what they were, cut (use_orig_params); make the optimizer
    afterwards. A state_dict is whole unless `state_dict_type` says otherwise, and its names are those of the module.

    >>> import wisp
    >>> from wisp.distributed.fsdp import FullyShardedDataParallel as FSDP
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> model = FSDP(wisp.nn.Sequential(wisp.nn.Linear(2, 3), wisp.nn.Linear(3, 1)))
    >>> model(wisp.ones(1, 2)).sum().backward()
    >>> norm = model.clip_grad_norm_(1.0)
    >>> list(model.state_dict())
    ['0.weight', '0.bias', '1.weight', '1.bias']
    >>> wisp.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module,
        process_group=None,
        sharding_strategy=None,
        cpu_offload=None,
        auto_wrap_policy=None,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        mixed_precision=None,
        ignored_modules=None,
        param_init_fn=None,
        device_id=None,
        sync_module_states=False,
        forward_prefetch=False,
        limit_all_gathers=True,
        use_orig_params=False,
        ignored_states=None,
        device_mesh=None,
    ):
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        self.sharding_strategy, self.mixed_precision, self.cpu_offload = strategy, mixed_precision, cpu_offload or CPUOffload()
        self._settings = StateDictSettings()
        if device_id is not None:
            device = device_id if isinstance(device_id, (wisp.device, str)) else wisp.device("cuda", device_id)
            module = module.to(device)
        ignored = {parameter for one in ignored_modules or () for parameter in one.parameters()}
        for one in ignored_states or ():
            ignored.update(one.parameters() if isinstance(one, wisp.nn.Module) else (one,))
        if param_init_fn is not None:
            for one in module.modules():
                if any(parameter.device.type == "meta" for parameter in one.parameters(recurse=False)):
                    param_init_fn(one)
        first = next(module.parameters(), None)
        mesh = _mesh(strategy, process_group, device_mesh, "cpu" if first is None or first.device.type == "meta" else first.device.type)
        if sync_module_states:
            self._synchronise(module, mesh)
        precision = mixed_precision or MixedPrecision()
        if precision.buffer_dtype is not None:
            for one in module.modules():
                for name, buffer in one._buffers.items():
                    if buffer is not None and buffer.is_floating_point():
                        one._buffers[name] = buffer.to(precision.buffer_dtype)
        keeps = strategy in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)

        def shard(one, root=False, **more):
            settings = more.get("mixed_precision", precision) or MixedPrecision()
            casts = settings.cast_root_forward_inputs if root else settings.cast_forward_inputs
            fully_shard(
                one,
                mesh=mesh,
                reshard_after_forward=False if keeps else None,
                ignored_params=ignored,
                mp_policy=MixedPrecisionPolicy(settings.param_dtype, settings.reduce_dtype, None, casts),
                offload_policy=CPUOffloadPolicy() if self.cpu_offload.offload_params else None,
            )
            one._in_wrapper = True
            return one

        if auto_wrap_policy is not None:
            policy = auto_wrap_policy
            if isinstance(policy, (set, list, tuple)):
                from wisp.distributed.fsdp.wrap import ModuleWrapPolicy

                policy = ModuleWrapPolicy(policy)
            _recursive_wrap(module, policy, shard, (), ignored, only_wrap_children=True)
        if getattr(module, "_fsdp_unit", None) is None:
            shard(module, root=True)
        setattr(self, _INNER, module)
        self._register_load_state_dict_pre_hook(self._rename)

    @staticmethod
    def _synchronise(module, mesh):
        """Rank 0's values."""
        with wisp.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                for dim in range(mesh.ndim):
                    if not isinstance(tensor, DTensor):
                        distributed.broadcast(tensor, group=mesh.get_group(dim), group_src=0)

    @property
    def module(self):
        """The module inside."""
        return getattr(self, _INNER)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if _INNER not in self.__dict__.get("_modules", ()):
                raise
            return getattr(self.__dict__["_modules"][_INNER], name)

    def __getitem__(self, key):
        return self.module[key]

    def named_parameters(self, *args, **kwargs):
        """The parameters, by the names that they have in the module."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_INNER + ".", ""), parameter

    def named_buffers(self, *args, **kwargs):
        """The buffers, by the names that they have in the module."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(_INNER + ".", ""), buffer

    # ------------------------------------------------------------ state
    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Parameters and buffers by name, in the form that `state_dict_type` says; all ranks call it."""
        result = self.module.state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        kind, config = self._settings.state_dict_type, self._settings.state_dict_config
        for name in [name for name in result if name.startswith(prefix)]:
            value = result[name]
            if isinstance(value, DTensor) and kind is not StateDictType.SHARDED_STATE_DICT:
                value = value.full_tensor() if kind is StateDictType.FULL_STATE_DICT else value.to_local()
            if getattr(config, "rank0_only", False) and distributed.get_rank():
                del result[name]
            else:
                result[name] = value.cpu() if config.offload_to_cpu and isinstance(value, wisp.Tensor) else value
        return result

    def _rename(self, state_dict, prefix, *rest):
        parts = dict(self.module.named_parameters()) if self._settings.state_dict_type is StateDictType.LOCAL_STATE_DICT else {}
        for name in [name for name in state_dict if name.startswith(prefix)]:
            value, inner = state_dict.pop(name), name[len(prefix) :]
            if not inner.startswith(_INNER):
                part = parts.get(inner)
                if part is not None and isinstance(part, DTensor) and not isinstance(value, DTensor):
                    value = part._like(value)
                name = f"{prefix}{_INNER}.{inner}"
            state_dict[name] = value

    @staticmethod
    def fsdp_modules(module, root_only=False):
        """The sharded modules in a module."""
        found = [one for one in module.modules() if isinstance(one, FSDPModule)]
        return found[:1] if root_only else found

    @staticmethod
    def set_state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """The form of state_dicts from now on; returns what it was."""
        state, optim = _CONFIGS[state_dict_type]
        new = StateDictSettings(state_dict_type, state_dict_config or state(), optim_state_dict_config or optim())
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for one in module.modules():
            if issubclass(type(one), FullyShardedDataParallel):
                one._settings = new
        return before

    @staticmethod
    def get_state_dict_type(module):
        """The form of state_dicts."""
        for one in module.modules():
            if issubclass(type(one), FullyShardedDataParallel):
                return one._settings
        return StateDictSettings()

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """A block with another form of state_dicts."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            FullyShardedDataParallel.set_state_dict_type(
                module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config
            )

    @staticmethod
    def optim_state_dict(model, optim, optim_state_dict=None, group=None):
        """The optimizer's state by parameters' names, whole or in parts as `state_dict_type` says; all ranks call it."""
        from wisp.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        settings = FullyShardedDataParallel.get_state_dict_type(model)
        full, config = settings.state_dict_type is StateDictType.FULL_STATE_DICT, settings.optim_state_dict_config
        result = get_optimizer_state_dict(model, optim, options=StateDictOptions(full_state_dict=full, cpu_offload=False))
        if full and getattr(config, "rank0_only", False) and distributed.get_rank():
            return {}
        return result

    @staticmethod
    def full_optim_state_dict(model, optim, optim_input=None, rank0_only=True, group=None):
        """The optimizer's whole state by names, on rank 0 alone by default."""
        config = FullOptimStateDictConfig(rank0_only=rank0_only)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, config):
            return FullyShardedDataParallel.optim_state_dict(model, optim)

    @staticmethod
    def optim_state_dict_to_load(model, optim, optim_state_dict, is_named_optimizer=False, load_directly=False, group=None):
        """What `optim.load_state_dict` takes, from what `optim_state_dict` gave."""
        from wisp.distributed.checkpoint.state_dict import _numbered

        result = _numbered(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(result)
        return result

    # ------------------------------------------------------------ around training
    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Scale the gradients so that the norm of all of them, over all ranks, is at most `max_norm`; returns it."""
        norm = wisp.nn.utils.clip_grad_norm_(list(self.parameters()), max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of this block's backwards stay with their rank; the next one outside of it sends the sum."""
        units = self.module._units()
        before = [unit.gradient_sync for unit in units]
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            for unit, value in zip(units, before):
                unit.gradient_sync = value

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module, recurse=True, writeback=True, rank0_only=False, offload_to_cpu=False, with_grads=False):
        """A block in which parameters are whole; with `writeback`, changes of them are kept."""
        units = list(dict.fromkeys(one._fsdp_unit for one in FullyShardedDataParallel.fsdp_modules(module)))
        units = units if recurse else units[:1]
        for unit in units:
            unit.unshard()
            unit.manual = True
            if with_grads:
                for parameter in unit.parameters:
                    if parameter.sharded.grad is not None:
                        parameter.whole.grad = parameter.sharded.grad.full_tensor()
        try:
            yield
            if writeback:
                for unit in units:
                    unit.write_back()
        finally:
            for unit in units:
                if with_grads:
                    for parameter in unit.parameters:
                        parameter.whole.grad = None
                unit.reshard()
