"""`torch.distributed` for programs that run as one process: a group of one, in which every collective is its own answer.

`init_process_group` reads the rank and the number of processes as PyTorch does; more than one process is refused with
a clear error, never answered wrongly.
"""
import datetime as _datetime
import os as _os

from wisp import Tensor as _Tensor

_group = None


class ReduceOp:
    """How values of several processes become one."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = "sum", "avg", "product", "min", "max", "band", "bor", "bxor"


class ProcessGroup:
    """The processes that take part; here always one."""

    def __init__(self, backend):
        self._backend = backend

    def size(self):
        """1."""
        return 1

    def rank(self):
        """0."""
        return 0

    def name(self):
        """The name of the backend."""
        return self._backend


class _GroupHolder(type):
    @property
    def WORLD(cls):
        return _group


class group(metaclass=_GroupHolder):
    """`group.WORLD`: all processes."""


GroupMember = group
reduce_op = ReduceOp.RedOpType = ReduceOp
default_pg_timeout = _datetime.timedelta(minutes=30)


class Backend(str):
    """The name of a backend."""

    GLOO, NCCL, MPI, UCC = "gloo", "nccl", "mpi", "ucc"


class Work:
    """What a collective with `async_op=True` returns: done already."""

    def wait(self, timeout=None):
        """True at once."""
        return True

    def is_completed(self):
        """True."""
        return True


def is_available():
    """True: a group of one process always works."""
    return True


def is_initialized():
    """Whether `init_process_group` was called."""
    return _group is not None


def is_nccl_available():
    """False."""
    return False


def is_mpi_available():
    """False."""
    return False


def is_gloo_available():
    """True: a group of one needs no transport."""
    return True


def is_torchelastic_launched():
    """False."""
    return False


is_ucc_available = is_xccl_available = is_mpi_available


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None,
                       device_id=None, _ranks=None):
    """Begin: a group of this one process. RANK and WORLD_SIZE of the environment count where no argument is given.

    >>> import wisp
    >>> wisp.distributed.init_process_group("gloo", rank=0, world_size=1)
    >>> wisp.distributed.get_rank(), wisp.distributed.get_world_size()
    (0, 1)
    >>> wisp.distributed.destroy_process_group()
    """
    global _group
    if _group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if world_size < 0:
        if "WORLD_SIZE" not in _os.environ and (init_method is None or init_method == "env://"):
            raise ValueError("Error initializing torch.distributed using env:// rendezvous: environment variable WORLD_SIZE expected, but "
                             "not set")
        world_size = int(_os.environ.get("WORLD_SIZE", 1))
    rank = int(_os.environ.get("RANK", 0)) if rank < 0 else rank
    if world_size != 1 or rank != 0:
        raise RuntimeError(f"init_process_group: Wisp runs one process so far, got rank {rank} of {world_size}; start the program with "
                           "WORLD_SIZE=1 RANK=0")
    _group = ProcessGroup(str(backend or "gloo").lower())


def destroy_process_group(group=None):
    """End: the group is gone."""
    global _group
    _group = None


def _check(what):
    if _group is None:
        raise ValueError(f"{what}: Default process group has not been initialized, please make sure to call init_process_group.")


def get_rank(group=None):
    """The number of this process: 0."""
    _check("get_rank")
    return 0


def get_world_size(group=None):
    """The number of processes: 1."""
    _check("get_world_size")
    return 1


def get_node_local_rank(fallback_rank=None):
    """The number of this process on its machine: 0."""
    return 0


def get_backend(group=None):
    """The name of the backend."""
    _check("get_backend")
    return _group.name()


def get_process_group_ranks(group=None):
    """The ranks of a group: [0]."""
    return [0]


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None, device_id=None,
              sort_ranks=True):
    """A group of some of the processes; here the one."""
    _check("new_group")
    return ProcessGroup(str(backend or _group.name()).lower())


def _peer(what, rank):
    _check(what)
    if rank not in (None, 0):
        raise ValueError(f"{what}: there is no rank {rank} in a group of one process")


def _done(async_op):
    return Work() if async_op else None


def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Wait for all processes: for none."""
    _check("barrier")
    return _done(async_op)


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """The reduction over one process: the tensor stays as it is."""
    _check("all_reduce")
    if not isinstance(tensor, _Tensor):
        raise TypeError(f"all_reduce: expected a tensor, got {type(tensor).__name__}")
    return _done(async_op)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """The tensor of the source: the tensor stays as it is."""
    _peer("broadcast", src)
    return _done(async_op)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """The reduction over one process: the tensor stays as it is."""
    _peer("reduce", dst)
    return _done(async_op)


def _fill(target, source):
    from wisp import no_grad
    with no_grad():
        target.copy_(source.reshape(target.shape))


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """The list gets the tensors of all processes."""
    _check("all_gather")
    if len(tensor_list) != 1:
        raise ValueError(f"all_gather: expected a list of 1 tensor for a group of one process, got {len(tensor_list)}")
    _fill(tensor_list[0], tensor)
    return _done(async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all processes, one after the other, in one tensor."""
    _check("all_gather_into_tensor")
    _fill(output_tensor, input_tensor)
    return _done(async_op)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """The list of the destination gets the tensors of all processes."""
    _peer("gather", dst)
    if gather_list:
        _fill(gather_list[0], tensor)
    return _done(async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """The tensor becomes this process's part of the source's list."""
    _peer("scatter", src)
    if scatter_list:
        _fill(tensor, scatter_list[0])
    return _done(async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """This process's part of the reduction of the lists."""
    _check("reduce_scatter")
    _fill(output, input_list[0])
    return _done(async_op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """This process's part of the reduction of the tensors."""
    _check("reduce_scatter_tensor")
    _fill(output, input)
    return _done(async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Part i goes to process i."""
    _check("all_to_all")
    _fill(output_tensor_list[0], input_tensor_list[0])
    return _done(async_op)


def all_gather_object(object_list, obj, group=None):
    """The list gets the objects of all processes."""
    _check("all_gather_object")
    object_list[0] = obj


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """The list of the destination gets the objects of all processes."""
    _peer("gather_object", dst)
    if object_gather_list:
        object_gather_list[0] = obj


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """The objects of the source."""
    _peer("broadcast_object_list", src)


def _no_peer(name):
    def function(*args, **kwargs):
        raise RuntimeError(f"distributed.{name}: there is no other process in a group of one")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Point to point needs a second process."
    return function


send, recv, isend, irecv = map(_no_peer, ("send", "recv", "isend", "irecv"))


def __getattr__(name):
    if name in ("nn", "algorithms", "tensor", "device_mesh"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("DeviceMesh", "init_device_mesh"):
        from wisp.distributed import device_mesh
        return getattr(device_mesh, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
