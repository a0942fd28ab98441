"""Processes in a grid: each dimension of a `DeviceMesh` is a way to cut the ranks into groups that work together."""

import math
import os

import wisp
from wisp.distributed import _groups

__all__ = ["DeviceMesh", "init_device_mesh"]


def _begin():
    """A mesh needs the world; a program that did not begin it gets what the environment says, or a world of one."""
    if not _groups.is_initialized():
        alone = "WORLD_SIZE" not in os.environ and not any(name.startswith(("PMI", "OMPI_COMM")) for name in os.environ)
        _groups.init_process_group(**({"rank": 0, "world_size": 1} if alone else {}))


class DeviceMesh:
    """Ranks in a grid, with a process group along every dimension of it.

    >>> import wisp
    >>> from wisp.distributed.device_mesh import init_device_mesh
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    >>> mesh, mesh["shard"].size()
    (DeviceMesh('cpu', [[0]], mesh_dim_names=('replicate', 'shard')), 1)
    >>> wisp.distributed.destroy_process_group()
    """

    def __init__(self, device_type, mesh=None, *, mesh_dim_names=None, _groups_of=None, **options):
        _begin()
        world = _groups.resolve("DeviceMesh")
        self.device_type = str(device_type).partition(":")[0]
        mesh = range(world.size()) if mesh is None else mesh
        self.mesh = mesh.detach().cpu().long() if isinstance(mesh, wisp.Tensor) else wisp.tensor(list(mesh)).long()
        ranks = self.mesh.flatten().tolist()
        if len(set(ranks)) != len(ranks) or not ranks or min(ranks) < 0 or max(ranks) >= world.size():
            raise RuntimeError(f"DeviceMesh: the ranks of a mesh are different numbers from 0 to {world.size() - 1}, got {ranks}")
        if mesh_dim_names is not None and len(mesh_dim_names) != self.mesh.dim():
            raise ValueError(f"DeviceMesh: {len(mesh_dim_names)} names {tuple(mesh_dim_names)} for {self.mesh.dim()} dimensions")
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        found = (self.mesh == world.rank()).nonzero().tolist()
        self._coordinate = found[0] if found else None
        self._groups = self._make_groups(world, ranks) if _groups_of is None else _groups_of

    def _make_groups(self, world, ranks):
        """One group per dimension: this rank's. All ranks of the world make all groups, in one order."""
        if self.mesh.dim() == 1 and ranks == list(range(world.size())):
            return [world]
        result = []
        for dim in range(self.mesh.dim()):
            mine = None
            for row in self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist():
                group = _groups.new_group(row, sort_ranks=False)
                mine = group if world.rank() in row else mine
            result.append(mine)
        return result

    def _dim(self, what, dim):
        if isinstance(dim, str):
            if dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"DeviceMesh.{what}: there is no dimension {dim!r} among {self.mesh_dim_names}")
            return self.mesh_dim_names.index(dim)
        if not -self.ndim <= dim < self.ndim:
            raise IndexError(f"DeviceMesh.{what}: there is no dimension {dim} in a mesh of {self.ndim}")
        return dim % self.ndim

    @property
    def ndim(self):
        """The number of dimensions."""
        return self.mesh.dim()

    @property
    def shape(self):
        """The sizes of all dimensions."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim=None):
        """The number of ranks, along one dimension or in all."""
        return math.prod(self.shape) if mesh_dim is None else self.mesh.shape[self._dim("size", mesh_dim)]

    def get_rank(self):
        """The number of this process in the world."""
        return _groups.get_rank()

    def get_coordinate(self):
        """Where this process is in the grid; None if it is not."""
        return None if self._coordinate is None else list(self._coordinate)

    def get_local_rank(self, mesh_dim=None):
        """The number of this process along a dimension."""
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(f"DeviceMesh.get_local_rank: a mesh of {self.ndim} dimensions needs `mesh_dim`")
        if self._coordinate is None:
            raise RuntimeError(f"DeviceMesh.get_local_rank: rank {self.get_rank()} is not in {self}")
        return self._coordinate[self._dim("get_local_rank", mesh_dim or 0)]

    def get_group(self, mesh_dim=None):
        """The process group of this rank along a dimension."""
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(f"DeviceMesh.get_group: a mesh of {self.ndim} dimensions needs `mesh_dim`")
        return self._groups[self._dim("get_group", mesh_dim or 0)]

    def get_all_groups(self):
        """The groups along all dimensions."""
        return list(self._groups)

    def __getitem__(self, names):
        """The part of the mesh along some dimensions, given by their names, that this rank is in."""
        names = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim("__getitem__", name) for name in names]
        rest = [dim for dim in range(self.ndim) if dim not in dims]
        grid = self.mesh.permute(*rest, *dims)
        for dim in rest:
            grid = grid[self._coordinate[dim] if self._coordinate else 0]
        return DeviceMesh(self.device_type, grid, mesh_dim_names=names, _groups_of=[self._groups[dim] for dim in dims])

    @staticmethod
    def from_group(group, device_type, mesh=None, *, mesh_dim_names=None):
        """A mesh of one dimension over a group, or of several over a list of groups and their `mesh`."""
        groups = list(group) if isinstance(group, (list, tuple)) else [group]
        if mesh is None and len(groups) > 1:
            raise ValueError(f"DeviceMesh.from_group: {len(groups)} groups need `mesh`, the grid of their ranks")
        return DeviceMesh(device_type, groups[0].ranks if mesh is None else mesh, mesh_dim_names=mesh_dim_names, _groups_of=groups)

    def __eq__(self, other):
        return isinstance(other, DeviceMesh) and self.device_type == other.device_type and wisp.equal(self.mesh, other.mesh)

    def __hash__(self):
        return hash((self.device_type, self.shape, tuple(self.mesh.flatten().tolist())))

    def __repr__(self):
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}{names})"


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, **options):
    """All ranks as a grid of the given shape, in their order. See `DeviceMesh`."""
    _begin()
    shape, size = tuple(mesh_shape), _groups.get_world_size()
    if math.prod(shape) != size:
        raise RuntimeError(f"init_device_mesh: a mesh of {shape} has {math.prod(shape)} places, but there are {size} ranks")
    if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(shape):
        raise RuntimeError(f"init_device_mesh: {len(shape)} dimensions need as many different names, got {tuple(mesh_dim_names)}")
    return DeviceMesh(device_type, wisp.arange(size).view(shape), mesh_dim_names=mesh_dim_names)
