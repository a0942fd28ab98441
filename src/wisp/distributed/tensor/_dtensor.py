"""DTensor: a tensor of which each rank holds a part.

The object is this rank's part, and operators see nothing else: an optimizer's update of it, in place, is the update of the whole
one. What the class adds is what the whole is: its shape, where its parts lie, and how to bring them together.
"""

import math

import wisp
from wisp._tensor import _disabled_torch_function_impl
from wisp.distributed import collectives
from wisp.distributed.device_mesh import DeviceMesh
from wisp.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "DTensorParameter", "distribute_module", "distribute_tensor"]


def _placements(what, mesh, placements, dims=None):
    placements = [Replicate()] * mesh.ndim if placements is None else list(placements)
    if len(placements) != mesh.ndim or not all(isinstance(placement, Placement) for placement in placements):
        raise ValueError(f"{what}: a mesh of {mesh.ndim} dimensions needs as many placements (Shard, Replicate, Partial), got {placements}")
    if dims is not None:
        for i, placement in enumerate(placements):
            if isinstance(placement, Shard):
                if not -dims <= placement.dim < dims:
                    raise ValueError(f"{what}: {placement} cuts a dimension that a tensor of {dims} dimensions has not")
                placements[i] = Shard(placement.dim % dims)
    return tuple(placements)


def _part(tensor, mesh, placements):
    """This rank's part of a whole tensor."""
    for dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            begin, end = placement.rows(tensor.shape[placement.dim], mesh.size(dim), mesh.get_local_rank(dim))
            tensor = tensor.narrow(placement.dim, begin, end - begin)
        elif isinstance(placement, Partial) and mesh.get_local_rank(dim):
            tensor = tensor * 0
    return tensor


def _gathered(local, size, dim, group):
    """The parts of all ranks of a group, joined along a dimension whose size in all is `size`."""
    part = -(-size // group.size())
    rows = local.detach().movedim(dim, 0)
    padded = rows.new_zeros((part, *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    whole = rows.new_empty((part * group.size(), *rows.shape[1:]))
    collectives.all_gather_into_tensor(whole, padded, group=group)
    return whole[:size].movedim(0, dim)


class DTensor(wisp.Tensor):
    """A tensor cut over the ranks of a mesh. `shape` is that of the whole; `to_local()` is this rank's part, `full_tensor()` all of it.

    Operators and optimizers work on this rank's part and give ordinary tensors; `norm`, `sum` and `mean` are of the whole, and
    like `full_tensor` they must be called by all ranks.

    >>> import wisp
    >>> from wisp.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> x = distribute_tensor(wisp.arange(4.0), init_device_mesh("cpu", (1,)), [Shard(0)])
    >>> x.placements, x.to_local(), x.full_tensor()
    ((Shard(dim=0),), tensor([0., 1., 2., 3.]), tensor([0., 1., 2., 3.]))
    >>> wisp.distributed.destroy_process_group()
    """

    __torch_function__ = _disabled_torch_function_impl  # operators see this rank's part

    @classmethod
    def _make(cls, local, mesh, placements, shape, requires_grad=None):
        requires_grad = local.requires_grad if requires_grad is None else requires_grad
        result = wisp.Tensor._make_subclass(cls, local.detach(), requires_grad)
        result._place = mesh, placements, wisp.Size(shape)
        return result

    @staticmethod
    def from_local(local_tensor, device_mesh=None, placements=None, *, run_check=False, shape=None, stride=None, grad_placements=None):
        """The whole of which every rank has a part; parts along a cut dimension may differ in size as `Shard` says."""
        mesh = device_mesh or DeviceMesh(local_tensor.device.type)
        placements = _placements("DTensor.from_local", mesh, placements, local_tensor.dim())
        if shape is None:
            shape = list(local_tensor.shape)
            for dim, placement in enumerate(placements):
                if isinstance(placement, Shard):
                    size = wisp.tensor([shape[placement.dim]])
                    collectives.all_reduce(size, group=mesh.get_group(dim))
                    begin, end = placement.rows(int(size), mesh.size(dim), mesh.get_local_rank(dim))
                    if end - begin != shape[placement.dim]:
                        raise RuntimeError(
                            f"DTensor.from_local: rank {mesh.get_rank()} has {shape[placement.dim]} of {int(size)} along "
                            f"dimension {placement.dim}, but its part is {begin} to {end}"
                        )
                    shape[placement.dim] = int(size)
        return DTensor._make(local_tensor, mesh, placements, shape)

    device_mesh = property(lambda self: self._place[0], doc="The ranks that hold parts.")
    placements = property(lambda self: self._place[1], doc="How the parts lie along each dimension of the mesh.")
    shape = property(lambda self: self._place[2], doc="The shape of the whole.")
    _local_tensor = property(lambda self: wisp.Tensor.detach(self), doc="This rank's part, without history.")

    def size(self, dim=None):
        """The shape of the whole, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self):
        """The number of elements of the whole."""
        return math.prod(self.shape)

    nelement = numel

    def __len__(self):
        return self.shape[0]

    def to_local(self, *, grad_placements=None):
        """This rank's part, on the same memory."""
        return self.view(wisp.Tensor.size(self)) if self.requires_grad and wisp.is_grad_enabled() else wisp.Tensor.detach(self)

    def _like(self, local, cls=None):
        return (cls or DTensor)._make(local, *self._place)

    def _as_parameter(self, requires_grad):
        return DTensorParameter._make(self, *self._place, requires_grad)

    def full_tensor(self, *, grad_placements=None):
        """All of it, in every rank; all ranks of the mesh call it."""
        return self.redistribute(placements=[Replicate()] * self.device_mesh.ndim).to_local()

    def redistribute(self, device_mesh=None, placements=None, *, async_op=False, forward_dtype=None, backward_dtype=None):
        """The same values, cut in another way. Goes by way of the whole tensor where the placement changes."""
        mesh, old, shape = self._place
        if device_mesh is not None and device_mesh != mesh:
            raise NotImplementedError("DTensor.redistribute: to another mesh is not supported; use full_tensor() and distribute_tensor")
        new = _placements("DTensor.redistribute", mesh, placements, len(shape))
        local = wisp.Tensor.detach(self)
        changed = [dim for dim in range(mesh.ndim) if old[dim] != new[dim]]
        if not changed:
            return self
        first = changed[0]
        sizes = [list(shape)]  # of what is left to cut after each dimension of the mesh
        for dim, placement in enumerate(old):
            sizes.append(list(sizes[-1]))
            if isinstance(placement, Shard):
                begin, end = placement.rows(sizes[dim][placement.dim], mesh.size(dim), mesh.get_local_rank(dim))
                sizes[-1][placement.dim] = end - begin
        for dim in reversed(range(first, mesh.ndim)):
            if isinstance(old[dim], Shard):
                local = _gathered(local, sizes[dim][old[dim].dim], old[dim].dim, mesh.get_group(dim))
            elif isinstance(old[dim], Partial):
                local = local.clone()
                collectives.all_reduce(local, old[dim].reduce_op.upper(), mesh.get_group(dim))
        for dim in range(first, mesh.ndim):
            if isinstance(new[dim], Shard):
                begin, end = new[dim].rows(local.shape[new[dim].dim], mesh.size(dim), mesh.get_local_rank(dim))
                local = local.narrow(new[dim].dim, begin, end - begin)
            elif isinstance(new[dim], Partial) and mesh.get_local_rank(dim):
                local = local * 0
        return DTensor._make(local, mesh, new, shape, False)

    # as in PyTorch a DTensor, so that `p.data.normal_()` fills this rank's part of the whole
    data = property(
        lambda self: self.detach(), lambda self, value: wisp.Tensor.data.__set__(self, value), doc="The same memory, without a gradient."
    )

    def detach(self):
        """A DTensor on the same memory, without a gradient."""
        return self._like(wisp.Tensor.detach(self))

    def clone(self, *args, **kwargs):
        """A copy of this rank's part, as a DTensor."""
        return self._like(wisp.Tensor.clone(wisp.Tensor.detach(self), *args, **kwargs))

    def to(self, *args, **kwargs):
        """This rank's part on another device or in another dtype."""
        changed = wisp.Tensor.to(self, *args, **kwargs)
        return self if changed is self else self._like(changed)

    def cpu(self):
        """This rank's part on the CPU."""
        return self.to("cpu")

    def contiguous(self, *args, **kwargs):
        """This rank's part, contiguous."""
        changed = wisp.Tensor.contiguous(self, *args, **kwargs)
        return self if changed is self else self._like(changed)

    def copy_(self, other, non_blocking=False):
        """Take the values of a DTensor that is cut alike, or this rank's part of a whole tensor."""
        if tuple(other.shape) != tuple(self.shape):
            raise RuntimeError(f"DTensor.copy_: a tensor of {list(other.shape)} does not fit the whole {list(self.shape)}")
        if isinstance(other, DTensor) and (other.device_mesh, other.placements) != (self.device_mesh, self.placements):
            other = other.redistribute(placements=self.placements) if other.device_mesh == self.device_mesh else other.full_tensor()
        local = other if isinstance(other, DTensor) else _part(other.detach(), *self._place[:2])
        wisp.Tensor.copy_(self, local, non_blocking)
        return self

    def _fold(self, local, op):
        mesh, placements, _ = self._place
        for dim, placement in enumerate(placements):
            if not isinstance(placement, Replicate):
                collectives.all_reduce(local, op, mesh.get_group(dim))
        return local

    def norm(self, p=2, *args, **kwargs):
        """The norm of the whole."""
        if args or kwargs or any(isinstance(placement, Partial) for placement in self.placements):
            return self.full_tensor().norm(p, *args, **kwargs)
        p = 2.0 if p in (None, "fro") else float(p)
        local = wisp.Tensor.detach(self)
        if math.isinf(p):
            absolute = local.abs().flatten()
            none = wisp.zeros(1, dtype=absolute.dtype, device=absolute.device) if p > 0 else wisp.full((1,), math.inf, dtype=absolute.dtype)
            both = wisp.cat([absolute, none.to(absolute.device)])
            return self._fold(both.max() if p > 0 else both.min(), "MAX" if p > 0 else "MIN")
        if p == 0:
            return self._fold((local != 0).sum().to(local.dtype), "SUM")
        return self._fold(wisp.linalg.vector_norm(local, p) ** p, "SUM") ** (1 / p)

    def sum(self, *args, **kwargs):
        """The sum over the whole."""
        if args or kwargs:
            return self.full_tensor().sum(*args, **kwargs)
        return self._fold(wisp.Tensor.sum(wisp.Tensor.detach(self)), "SUM")

    def mean(self, *args, **kwargs):
        """The mean over the whole."""
        return self.full_tensor().mean(*args, **kwargs) if args or kwargs else self.sum() / self.numel()

    def _cut_alike(self, state):
        """An optimizer's state of this parameter: tensors of the shape of this rank's part, or of the whole, as DTensors."""
        local, result = wisp.Tensor.size(self), {}
        for name, value in state.items():
            if isinstance(value, wisp.Tensor) and not isinstance(value, DTensor) and value.dim() and value.shape in (local, self.shape):
                value = self._like(value if value.shape == local else _part(value, *self._place[:2]).clone())
            result[name] = value
        return result

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)._make(wisp.Tensor.clone(wisp.Tensor.detach(self)), *self._place, self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        raise RuntimeError(
            "a DTensor is a part of a tensor and can't be pickled or saved alone: save `full_tensor()`, or use "
            "wisp.distributed.checkpoint.save on all ranks"
        )

    def __repr__(self):
        return (
            f"{type(self).__name__}(local_tensor={wisp.Tensor.detach(self)!r}, device_mesh={self.device_mesh}, "
            f"placements={self.placements})"
        )


def _filling(name):
    def fill(self, *args, **kwargs):
        whole = wisp.empty(self.shape, dtype=self.dtype, device=self.device)
        return self.copy_(getattr(whole, name)(*args, **kwargs))

    fill.__name__, fill.__doc__ = name, f"`Tensor.{name}` of the whole, of which this rank takes its part."
    return fill


for _name in ("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"):
    setattr(DTensor, _name, _filling(_name))


class DTensorParameter(DTensor, wisp.nn.Parameter):
    """A parameter of which each rank holds a part."""

    def __new__(cls, data=None, requires_grad=True):
        return wisp.nn.Parameter(data, requires_grad)  # which makes one of these of a DTensor


def total_norm(tensors, norm_type):
    """The norm of all tensors together, cut ones and others, as a DTensor that all ranks have."""
    whole = math.isinf(norm_type)
    sums = {}  # by the mesh and the way of cutting: one reduction each
    for tensor in tensors:
        cut = isinstance(tensor, DTensor)
        key = (tensor.device_mesh, tensor.placements) if cut else None
        local = wisp.Tensor.detach(tensor)
        if whole and not local.numel():
            local = local.new_zeros(1) if norm_type > 0 else local.new_full((1,), math.inf)
        norm = wisp.linalg.vector_norm(local, norm_type)
        sums.setdefault(key, []).append((tensor, norm if whole or norm_type == 0 else norm**norm_type))
    totals, some = [], None
    for key, pairs in sums.items():
        parts = wisp.stack([norm.to(pairs[0][1].device) for _, norm in pairs])
        total = parts.sum() if not whole else parts.max() if norm_type > 0 else parts.min()
        if key is not None:
            some = pairs[0][0]
            total = some._fold(total, "SUM" if not whole else "MAX" if norm_type > 0 else "MIN")
        totals.append(total)
    parts = wisp.stack([total.to(totals[0].device) for total in totals])
    total = (parts.max() if norm_type > 0 else parts.min()) if whole else parts.sum() if norm_type == 0 else parts.sum() ** (1 / norm_type)
    mesh = some.device_mesh
    return DTensor._make(total, mesh, (Replicate(),) * mesh.ndim, ())


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank=0):
    """Cut a tensor, which all ranks pass alike (rank `src_data_rank` of each dimension counts; None: each rank's own)."""
    mesh = device_mesh or DeviceMesh(tensor.device.type)
    placements = _placements("distribute_tensor", mesh, placements, tensor.dim())
    if isinstance(tensor, DTensor):
        return tensor.redistribute(mesh, placements)
    whole = tensor.detach()
    if src_data_rank is not None and mesh.size() > 1:
        whole = whole.clone(memory_format=wisp.contiguous_format)
        for dim in range(mesh.ndim):
            collectives.broadcast(whole, group=mesh.get_group(dim), group_src=src_data_rank)
    return DTensor._make(_part(whole, mesh, placements).clone(), mesh, placements, tensor.shape, tensor.requires_grad)


def distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """Not available: operators work on parts of tensors. `fully_shard` cuts parameters and gathers them around use."""
    raise NotImplementedError(
        "distribute_module: layers do not compute on cut parameters in Wisp; use "
        "wisp.distributed.fsdp.fully_shard, which gathers them around use"
    )
