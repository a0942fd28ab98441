"""Process groups: the world that init_process_group makes, and groups of some of its ranks."""

import datetime
import os
import warnings
import weakref

from wisp.distributed import _world
from wisp.distributed._alone import AloneBackend

__all__ = """
    Backend BackendConfig GroupMember ProcessGroup default_pg_timeout destroy_process_group get_backend get_default_backend_for_device
    get_global_rank get_group_rank get_node_local_rank get_process_group_ranks get_rank get_world_size group init_process_group
    is_available is_gloo_available is_initialized is_mpi_available is_nccl_available is_torchelastic_launched is_ucc_available
    is_xccl_available new_group new_subgroups register_rendezvous_handler shrink_group""".split()

default_pg_timeout = datetime.timedelta(minutes=30)
_default = None
_count = 0


class Backend(str):
    """The name of a backend, in lower case.

    >>> import wisp
    >>> wisp.distributed.Backend("MPI") == wisp.distributed.Backend.MPI
    True
    """

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    backend_list = ["undefined", "gloo", "nccl", "mpi", "ucc", "xccl"]
    default_device_backend_map = {"cpu": "gloo", "cuda": "nccl"}

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return super().__new__(cls, name.lower())


class BackendConfig:
    """Which backend serves each kind of device: one for all, or as `"cpu:gloo,cuda:nccl"` says.

    >>> import wisp
    >>> wisp.distributed.BackendConfig(wisp.distributed.Backend("cpu:gloo,cuda:nccl")).get_device_backend_map()
    {'cpu': 'gloo', 'cuda': 'nccl'}
    """

    def __init__(self, backend):
        backend = str(backend)
        self.device_backend_map = {}
        if ":" not in backend:
            devices = {"nccl": ["cuda"], "mpi": ["cpu", "cuda"], "undefined": []}.get(backend, ["cpu", "cuda"])
            served = Backend.default_device_backend_map if backend == "undefined" else dict.fromkeys(devices, backend)
            self.device_backend_map = {device: Backend(name) for device, name in served.items()}
            return
        for pair in backend.lower().split(","):
            device, colon, name = pair.partition(":")
            if not colon or not device or not name or ":" in name:
                raise ValueError(f"Invalid device:backend pairing: {pair}. Expected such as 'cpu:gloo,cuda:nccl', got {backend!r}")
            if device in self.device_backend_map:
                raise ValueError(f"Duplicate device type {device} in backend string: {backend!r}")
            self.device_backend_map[device] = Backend(name)

    def get_device_backend_map(self):
        """Kind of device -> backend."""
        return self.device_backend_map

    def __repr__(self):
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())


def _mpi_backend(comm):
    from wisp.distributed._mpi import MpiBackend

    return MpiBackend(comm)


live = weakref.WeakSet()  # the groups that this process is in


class ProcessGroup:
    """Some processes that act together: `rank()`, `size()`, `name()`. Made by `new_group`."""

    def __init__(self, comm, ranks, backend, timeout, description=None, nccl=False):
        global _count
        self.comm, self.ranks, self.timeout, self._backend = comm, ranks, timeout, backend
        self.control = comm.Dup()  # for headers
        self.backends = {"cpu": AloneBackend() if comm.size == 1 else _mpi_backend(comm)}
        if nccl:
            from wisp.distributed._nccl import NcclBackend

            self.backends["cuda"] = NcclBackend(self)
        self.index, self.calls, self.pending = _count, 0, []
        self.group_desc = description or "default_pg"
        _count += 1
        live.add(self)

    def size(self):
        """The number of processes."""
        return self.comm.size

    def rank(self):
        """The number of this process within the group."""
        return self.comm.rank

    def name(self):
        """The name of the backend."""
        return self._backend

    def backend(self, tensor):
        """What moves tensors of this one's device: the backend for it, or MPI by way of copies."""
        return self.backends.get(tensor.device.type) or self.backends["cpu"]

    def __repr__(self):
        return f"<ProcessGroup {self._backend}: ranks {self.ranks}>"

    def release(self):
        live.discard(self)
        for backend in self.backends.values():
            backend.release()
        for comm in (self.control, self.comm):
            if comm is not _world.comm:
                comm.Free()


class _GroupHolder(type):
    @property
    def WORLD(cls):
        return _default


class group(metaclass=_GroupHolder):
    """`group.WORLD`: all processes."""


class GroupMember(metaclass=_GroupHolder):
    """`GroupMember.NON_GROUP_MEMBER`: what `new_group` gives a process that is not in the group."""

    NON_GROUP_MEMBER = -100


def _seconds(timeout):
    if timeout is None:
        timeout = default_pg_timeout
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}")
    return timeout.total_seconds()


def _backend_name(what, backend):
    """The name under which a backend is known, once it is sure that its parts are there."""
    name = str(backend or "mpi").lower()
    for part in name.split(","):
        device, _, kind = part.rpartition(":")
        if kind not in ("mpi", "gloo", "nccl") or device not in ("", "cpu", "cuda") or (kind, device) == ("nccl", "cpu"):
            raise ValueError(
                f'{what}: unknown backend {backend!r}; there are "mpi", "gloo" (which MPI answers), "nccl" for GPUs, and '
                '"cpu:gloo,cuda:nccl"'
            )
    if name == "nccl":
        from wisp import cuda
        from wisp.distributed import _nccl

        if not cuda.is_available():
            raise RuntimeError(f'{what}: the backend "nccl" is for GPUs, no GPUs found; use backend="mpi" (or "gloo", which MPI answers)')
        _nccl.library()
    return name


def _uses_nccl(name, asked):
    """Whether tensors on GPUs go through NCCL: where it was asked for, and where nothing was and it is there."""
    if asked is None:
        from wisp import cuda

        return cuda.is_available() and is_nccl_available()
    return name == "nccl" or "cuda:nccl" in name.split(",")


def init_process_group(
    backend=None,
    init_method=None,
    timeout=None,
    world_size=-1,
    rank=-1,
    store=None,
    group_name="",
    pg_options=None,
    device_id=None,
    _ranks=None,
):
    """Begin: find the other processes. Under `wisp launch` and `mpiexec` no arguments are needed; else rank, number and meeting place
    come from the arguments or from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; with `store`, rank 0 leaves there where to meet. The
    backends "mpi" and "gloo" are both MPI; "nccl" moves tensors of GPUs (and MPI those of the CPU), as does no name at all where NCCL is
    installed.

    >>> import wisp
    >>> wisp.distributed.init_process_group("gloo", rank=0, world_size=1)
    >>> wisp.distributed.get_rank(), wisp.distributed.get_world_size()
    (0, 1)
    >>> wisp.distributed.destroy_process_group()
    """
    global _default
    if _default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    scheme = init_method.partition("://")[0] if isinstance(init_method, str) else None
    if scheme in _handlers:
        if store is not None:
            raise ValueError("init_process_group: Cannot specify both init_method and store.")
        store, rank, world_size = next(iter(_handlers[scheme](init_method, rank=rank, world_size=world_size)))
        init_method = None
    if store is not None:
        if init_method is not None:
            raise ValueError("init_process_group: Cannot specify both init_method and store.")
        if rank < 0 or world_size < 1:
            raise ValueError("init_process_group: with a store, rank and world_size must be given")
        init_method = _world.meet_through(store, rank, world_size)
    name, seconds = _backend_name("init_process_group", backend), _seconds(timeout)
    comm = _world.enter(rank, world_size, init_method, seconds)
    _default = ProcessGroup(comm, list(range(comm.size)), name, seconds, nccl=_uses_nccl(name, backend))
    _world.forget_shared_files()


_handlers = {}  # scheme of an init_method -> the program's function


def register_rendezvous_handler(scheme, handler):
    """Let `init_method="scheme://…"` of `init_process_group` mean one of the program's: `handler(url, rank=…, world_size=…)` yields a
    store that the processes share, this process's rank, and how many there are.

    >>> import uuid, wisp
    >>> def meet(url, **options):
    ...     yield wisp.distributed.HashStore(), 0, 1
    >>> scheme = f"here-{uuid.uuid4()}"  # a scheme is registered once
    >>> wisp.distributed.register_rendezvous_handler(scheme, meet)
    >>> wisp.distributed.init_process_group("gloo", init_method=f"{scheme}://")
    >>> wisp.distributed.get_world_size()
    1
    >>> wisp.distributed.destroy_process_group()
    """
    if scheme in (*_handlers, "env", "tcp", "file"):
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def shrink_group(ranks_to_exclude, group=None, shrink_flags=0, pg_options=None):
    """A group without some ranks (numbers within `group`). Only those that stay call it; if it was the world, the new group is the world
    from now on."""
    global _default
    parent = resolve("shrink_group", group)
    if parent is None:
        raise RuntimeError("shrink_group: this process is not in the group")
    gone = list(ranks_to_exclude)
    if not gone or len(set(gone)) != len(gone) or min(gone) < 0 or max(gone) >= parent.size() or len(gone) == parent.size():
        raise ValueError(
            f"shrink_group: ranks_to_exclude must be different numbers from 0 to {parent.size() - 1}, at least one and not all, got {gone}"
        )
    if parent.rank() in gone:
        raise RuntimeError(f"shrink_group: rank {parent.rank()} is among those that leave, {gone}, and must not call it")
    comm = parent.comm.Create_group(parent.comm.Get_group().Excl(gone))
    ranks = [rank for number, rank in enumerate(parent.ranks) if number not in gone]
    whole = parent is _default
    made = ProcessGroup(
        comm, list(range(comm.size)) if whole else ranks, parent.name(), parent.timeout, parent.group_desc, "cuda" in parent.backends
    )
    if whole:
        _default = made
    return made


def destroy_process_group(group=None):
    """End: the group is gone; without an argument, all groups are."""
    global _default
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    if group is None or group is _default:
        if _default is None:
            raise ValueError("destroy_process_group: Invalid process group specified: there is none")
        if _default.size() > 1:
            _world.board.write("destroyed its process group")
        _default.release()
        _default = None
    else:
        group.release()


def resolve(what, group=None):
    """The group meant, or None where this process is not in it."""
    if group is GroupMember.NON_GROUP_MEMBER:
        warnings.warn(f"Running {what} on global rank {get_rank()} which does not belong to the given group.", stacklevel=4)
        return None
    if group is not None and not isinstance(group, ProcessGroup):
        raise TypeError(f"{what}: group must be a ProcessGroup (of new_group) or None, got {type(group).__name__}")
    if _default is None:
        raise ValueError(f"{what}: Default process group has not been initialized, please make sure to call init_process_group.")
    return group or _default


def is_initialized():
    """Whether `init_process_group` was called."""
    return _default is not None


def is_available():
    """True."""
    return True


def is_mpi_available():
    """Whether mpi4py is installed (`pip install wisp[mpi]`)."""
    import importlib.util

    return importlib.util.find_spec("mpi4py") is not None


def is_gloo_available():
    """True: MPI answers for it, and a group of one needs no transport."""
    return True


def is_nccl_available():
    """Whether NVIDIA's library for collectives is installed (`pip install wisp[cuda]`)."""
    from wisp.distributed import _nccl

    return _nccl.find() is not None


def is_ucc_available():
    """False: there is MPI, and NCCL for GPUs."""
    return False


is_xccl_available = is_ucc_available


def get_default_backend_for_device(device):
    """The backend for tensors of a device: "nccl" for GPUs where it is installed, else "gloo", which MPI answers.

    >>> import wisp
    >>> wisp.distributed.get_default_backend_for_device("cpu")
    'gloo'
    """
    kind = device if isinstance(device, str) else device.type
    return "nccl" if kind.partition(":")[0] == "cuda" and is_nccl_available() else "gloo"


def is_torchelastic_launched():
    """Whether `wisp launch` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_rank(group=None):
    """The number of this process in a group; -1 if it is not in it."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return resolve("get_rank", group).rank()


def get_world_size(group=None):
    """The number of processes in a group; -1 if this one is not in it."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return resolve("get_world_size", group).size()


def get_node_local_rank(fallback_rank=None):
    """The number of this process on its machine, which `wisp launch` says in LOCAL_RANK."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("get_node_local_rank: LOCAL_RANK is not in the environment; pass fallback_rank, or start with `wisp launch`")


def get_backend(group=None):
    """The name of the backend."""
    return resolve("get_backend", group).name()


def get_process_group_ranks(group=None):
    """The ranks of a group, as numbers of the world."""
    return list(resolve("get_process_group_ranks", group).ranks)


def get_global_rank(group, group_rank):
    """The number in the world of a rank of a group."""
    ranks = resolve("get_global_rank", group).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"get_global_rank: there is no rank {group_rank} in a group of {len(ranks)}")
    return ranks[group_rank]


def get_group_rank(group, global_rank):
    """The number within a group of a rank of the world."""
    ranks = resolve("get_group_rank", group).ranks
    if global_rank not in ranks:
        raise ValueError(f"get_group_rank: global rank {global_rank} is not part of the group of ranks {ranks}")
    return ranks.index(global_rank)


def new_group(
    ranks=None,
    timeout=None,
    backend=None,
    pg_options=None,
    use_local_synchronization=False,
    group_desc=None,
    device_id=None,
    sort_ranks=True,
):
    """A group of some ranks. All processes call it, in the same order; those outside of it get GroupMember.NON_GROUP_MEMBER.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> wisp.distributed.new_group([0]).size()
    1
    >>> wisp.distributed.destroy_process_group()
    """
    global _count
    world = resolve("new_group")
    ranks = list(range(world.size())) if ranks is None else [int(rank) for rank in ranks]
    if len(set(ranks)) != len(ranks) or not ranks or min(ranks) < 0 or max(ranks) >= world.size():
        raise ValueError(f"new_group: ranks must be different numbers from 0 to {world.size() - 1}, got {ranks}")
    ranks = sorted(ranks) if sort_ranks else ranks
    name = world.name() if backend is None else _backend_name("new_group", backend)
    seconds = world.timeout if timeout is None else _seconds(timeout)
    nccl = "cuda" in world.backends if backend is None else _uses_nccl(name, backend)
    if world.size() == 1:
        return ProcessGroup(world.comm, ranks, name, seconds, group_desc, nccl)
    from wisp.distributed.collectives import agree

    agree(world, f"new_group {ranks}", f"new_group({ranks})")
    mine = world.rank() in ranks
    comm = world.comm.Split(0 if mine else _world.mpi().UNDEFINED, ranks.index(world.rank()) if mine else 0)
    if not mine:
        _count += 1  # the numbers of groups agree on all ranks
        return GroupMember.NON_GROUP_MEMBER
    return ProcessGroup(comm, ranks, name, seconds, group_desc, nccl)


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Groups of `group_size` neighbours each: (this rank's, all)."""
    size = get_world_size()
    if not group_size or size % group_size:
        raise ValueError(f"new_subgroups: the world of {size} ranks can't be divided into groups of {group_size}")
    parts = [list(range(begin, begin + group_size)) for begin in range(0, size, group_size)]
    groups = [new_group(part, timeout, backend) for part in parts]
    return groups[get_rank() // group_size], groups
