"""`fully_shard`: a module whose parameters are gathered before it is used, and let go after it.

The units (see _unit.py) of a model form a tree. During forward each brings its parameters together, and asks for the next one's while
it computes; backward does the same in the other order, and sends gradients as soon as a unit has all of them.
"""

import functools

import wisp
from wisp import _core
from wisp.distributed.device_mesh import DeviceMesh
from wisp.distributed.fsdp._policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from wisp.distributed.fsdp._unit import Unit, tensors_of

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx"]


def _cast(value, dtype):
    """A nested structure with its floating-point tensors in another dtype."""
    if isinstance(value, wisp.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return type(value)((name, _cast(item, dtype)) for name, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast(item, dtype) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, dtype) for item in value)
    return value


class _Tree:
    """The units below a root, and the order in which they are used."""

    def __init__(self, root):
        self.root, self.units = root, []
        for module in root.modules:
            for child in module.modules():
                unit = getattr(child, "_fsdp_unit", None)
                if unit is not None and unit not in self.units:
                    self.units.append(unit)
                    unit.tree = self
                    unit.frees_after_forward = unit is not root if unit.reshard_after_forward is None else bool(unit.reshard_after_forward)
        self.order, self.previous, self.queued = [], [], False

    def in_backward(self):
        """Whether backward is under way: forward then is a checkpoint that computes again."""
        return self.queued and _core._current_graph_task_id() != -1

    def begin_forward(self):
        if self.queued:  # a backward that ended in an error
            self.queued = False
            for unit in self.units:
                unit.left, unit.inputs_left, unit.reductions = 0, 0, []
        self.previous, self.order = self.order or self.previous, []
        for unit in self.units:  # whole since a forward that no backward followed: an optimizer may have stepped
            if unit.state == "whole" and unit.reshard_after_backward and not unit.manual:
                unit.reshard()

    def end_forward(self):
        for unit in self.units:  # asked for, but not used this time
            if unit not in self.order and not unit.manual:
                unit.reshard()

    def prefetch_forward(self, unit):
        if unit.forward_prefetch is not None:
            following = unit.forward_prefetch
        else:
            at = self.previous.index(unit) + 1 if unit in self.previous else len(self.previous)
            following = self.previous[at : at + 1]
        for other in following:
            other.gather()

    def before_backward(self, unit):
        if not self.queued:
            self.queued = True
            _core._queue_callback(self.end_backward)
        unit.expect()
        if unit.gather_in_backward:
            unit.unshard(current=False)
        if unit.backward_prefetch is not None:
            following = unit.backward_prefetch
        else:
            at = self.order.index(unit) if unit in self.order else 0
            following = self.order[max(at - 1, 0) : at]
        for other in following:
            other.gather()

    def end_backward(self):
        self.queued = False
        for unit in self.units:
            if unit.left or unit.gradient_sync and any(parameter.whole.grad is not None for parameter in unit.parameters):
                unit.reduce()
        for unit in self.units:
            unit.finish()
            unit.inputs_left = 0
            unit.release()


def _before_forward(unit, module, args, kwargs):
    tree = unit.tree or _Tree(unit)
    if tree.in_backward():
        unit.used = unit.used or unit.versions()  # a reentrant checkpoint was called without gradients
        unit.expect()
        unit.unshard()
    else:
        if unit is tree.root:
            tree.begin_forward()
        unit.unshard()
        if unit not in tree.order:
            tree.order.append(unit)
        tree.prefetch_forward(unit)
        if wisp.is_grad_enabled():
            unit.used = unit.before
            unit.watch_inputs(args, kwargs)
    if unit.policy.cast_forward_inputs and unit.policy.param_dtype is not None:
        args, kwargs = _cast(args, unit.policy.param_dtype), _cast(kwargs, unit.policy.param_dtype)
    return args, kwargs


def _after_forward(unit, module, args, kwargs, output):
    tree = unit.tree
    if tree.in_backward():  # also when a checkpoint has computed all that was saved and stops: backward is about to use it
        return output
    if output is None:  # also when forward raised an error
        unit.reshard()
        return None
    recorded = [tensor for tensor in tensors_of(output) if tensor.requires_grad] if wisp.is_grad_enabled() else []
    for tensor in recorded:
        tensor.register_hook(functools.partial(_output_hook, unit))
    if not unit.manual:
        (unit.reshard if unit.frees_after_forward or not recorded else unit.hide)()
    if unit is tree.root:
        tree.end_forward()
    return _cast(output, unit.policy.output_dtype) if unit.policy.output_dtype is not None else output


def _output_hook(unit, grad):
    unit.tree.before_backward(unit)


class UnshardHandle:
    """What `unshard(async_op=True)` gives."""

    def __init__(self, unit):
        self._unit = unit

    def wait(self):
        """The parameters are whole afterwards."""
        if self._unit is not None:
            self._unit.unshard()
            self._unit = None


class FSDPModule:
    """What `fully_shard` makes of a module: its class becomes one of this and of its own."""

    def _units(self, recurse=True):
        modules = self.modules() if recurse else [self]
        return list(dict.fromkeys(module._fsdp_unit for module in modules if isinstance(module, FSDPModule)))

    def unshard(self, async_op=False):
        """Bring this module's parameters together, until `reshard` or the next backward; with `async_op`, `wait()` on the result."""
        unit = self._fsdp_unit
        unit.gather()
        unit.manual = True
        handle = UnshardHandle(unit)
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self):
        """Keep this rank's parts alone."""
        self._fsdp_unit.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        """False: gradients stay with their rank, whole, and are sent with those of the next backward that syncs. That is gradient
        accumulation without communication."""
        for unit in self._units(recurse):
            unit.gradient_sync = requires_gradient_sync

    def set_is_last_backward(self, is_last_backward):
        """Nothing depends on it: gradients are there when backward returns."""

    def set_requires_all_reduce(self, requires_all_reduce, *, recurse=True):
        """For a mesh of two dimensions: whether replicas are averaged too."""
        for unit in self._units(recurse):
            unit.all_reduce = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward, recurse=True):
        """Whether parameters are let go between forward and backward."""
        for unit in self._units(recurse):
            unit.reshard_after_forward = unit.frees_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward, *, recurse=True):
        """Whether parameters are let go after backward; they are gathered again when an optimizer has changed them."""
        for unit in self._units(recurse):
            unit.reshard_after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules):
        """Whose parameters to ask for while this module computes; by default, those of the one that came next in the last forward."""
        self._fsdp_unit.forward_prefetch = [module._fsdp_unit for module in modules]

    def set_modules_to_backward_prefetch(self, modules):
        """Whose parameters to ask for while backward is in this module; by default, those of the one that was used before it."""
        self._fsdp_unit.backward_prefetch = [module._fsdp_unit for module in modules]

    def set_unshard_in_backward(self, unshard_in_backward):
        """False for a module whose backward does not need its parameters."""
        self._fsdp_unit.gather_in_backward = unshard_in_backward

    def set_gradient_divide_factor(self, factor):
        """Divide the sum of gradients by this instead of the number of ranks."""
        self._fsdp_unit.divide_factor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def __deepcopy__(self, memo):
        raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")


def _mesh_of(mesh, module):
    if mesh is None:
        first = next(module.parameters(), None)
        kind = "cpu" if first is None or first.device.type == "meta" else first.device.type
        return DeviceMesh(kind)
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"fully_shard: mesh must be a DeviceMesh (of init_device_mesh), got {type(mesh).__name__}")
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    return mesh


def fully_shard(
    module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=None, offload_policy=None, ignored_params=None
):
    """Divide the parameters of a module, their gradients and so an optimizer's state among the ranks of a mesh.

    Call it on the layers of a model, then on the model: each call makes a unit of the parameters that no other call has taken, which are
    gathered together. Make the optimizer afterwards. Parameters become DTensors, of which this rank holds some rows. All ranks must begin
    with the same values. A mesh of two dimensions replicates along the first and divides along the second.
    `reshard_after_forward=False` keeps parameters from forward to backward (more memory, a third less to send); by default only
    the outermost module does.

    >>> import wisp
    >>> from wisp.distributed.fsdp import fully_shard
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> model = wisp.nn.Sequential(wisp.nn.Linear(2, 3), wisp.nn.Linear(3, 1))
    >>> for layer in model:
    ...     _ = fully_shard(layer)
    >>> model = fully_shard(model)
    >>> optimizer = wisp.optim.Adam(model.parameters(), lr=0.1)
    >>> model(wisp.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> type(model[0]).__name__, model[0].weight.placements, model[0].weight.grad.full_tensor().shape == (3, 2)
    ('FSDPLinear', (Shard(dim=0),), True)
    >>> wisp.distributed.destroy_process_group()
    """
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    for one in modules:
        if not isinstance(one, wisp.nn.Module) or isinstance(one, (wisp.nn.ModuleList, wisp.nn.ModuleDict)):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {type(one).__name__}")
        if getattr(one, "_fsdp_unit", None) is not None:
            raise ValueError(f"fully_shard: this {type(one).__name__} was sharded before; shard each module once, the inner ones first")
    if shard_placement_fn is not None:
        raise NotImplementedError("fully_shard: parameters are cut along dimension 0; leave shard_placement_fn away")
    offload = offload_policy or OffloadPolicy()
    unit = Unit(
        modules,
        _mesh_of(mesh, modules[0]),
        reshard_after_forward,
        mp_policy or MixedPrecisionPolicy(),
        isinstance(offload, CPUOffloadPolicy),
        set(ignored_params or ()),
    )
    for one in modules:
        cls = type(one)
        one.__class__ = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
        one.__dict__["_fsdp_unit"] = unit
    modules[0].register_forward_pre_hook(functools.partial(_before_forward, unit), prepend=True, with_kwargs=True)
    modules[-1].register_forward_hook(functools.partial(_after_forward, unit), with_kwargs=True, always_call=True)
    for one in modules:
        one.register_state_dict_pre_hook(_show_parts)
        one.register_load_state_dict_pre_hook(lambda module, *rest: _show_parts(module))
    return module


def _show_parts(module, *rest):
    """A state_dict is made of parts."""
    for unit in module._units():
        unit.reshard()


def register_fsdp_forward_method(module, method_name):
    """Let another method of a sharded module gather parameters as `forward` does.

    >>> import wisp
    >>> wisp.distributed.fsdp.register_fsdp_forward_method(wisp.nn.Linear(1, 1), "extra_repr")
    """
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{method_name} does not exist on {type(module)}")
    method, unit = getattr(module, method_name), module._fsdp_unit

    @functools.wraps(method)
    def gathered(*args, **kwargs):
        args, kwargs = _before_forward(unit, module, args, kwargs)
        return _after_forward(unit, module, args, kwargs, method(*args, **kwargs))

    module.__dict__[method_name] = gathered


def share_comm_ctx(modules):
    """Nothing to do: all units share their group's communicator."""
