"""Collectives on Python objects (pickled), and messages from one process to another."""

import contextlib
import pickle

import numpy

import wisp
from wisp.distributed import _world
from wisp.distributed._groups import resolve
from wisp.distributed._traffic import moved
from wisp.distributed._work import Work, place
from wisp.distributed.collectives import _in_place, _root, _tensor, collective, perform

__all__ = """
    P2POp all_gather_object batch_isend_irecv broadcast_object_list gather_object irecv isend recv recv_object_list
    scatter_object_list send send_object_list""".split()


def _bytes(obj):
    return numpy.frombuffer(pickle.dumps(obj), numpy.uint8)


def _everyone(group, what, obj, receive=True):
    """The objects of all ranks: their sizes first, then their bytes."""
    MPI = _world.mpi()
    mine = _bytes(obj)
    sizes, result = numpy.zeros(group.size(), numpy.int64), []

    def chain():
        yield group.comm.Iallgather([numpy.array([mine.size]), 1, MPI.INT64_T], [sizes, 1, MPI.INT64_T])
        counts = sizes.tolist()
        whole = numpy.empty(sum(counts), numpy.uint8)
        moved("objects", whole.size, group.size(), sent=mine.size * (group.size() - 1))
        yield group.comm.Iallgatherv([mine, mine.size, MPI.BYTE], [whole, (counts, numpy.cumsum([0, *counts[:-1]]).tolist()), MPI.BYTE])
        result.extend(numpy.split(whole, numpy.cumsum(counts)[:-1]))

    perform(group, what, what, chain())
    return [pickle.loads(part.tobytes()) for part in result] if receive else None


@collective
def all_gather_object(object_list, obj, group=None):
    """The list gets the objects of all processes.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> objects = [None]
    >>> wisp.distributed.all_gather_object(objects, {"loss": 2})
    >>> objects
    [{'loss': 2}]
    >>> wisp.distributed.destroy_process_group()
    """
    if len(object_list) != group.size():
        raise ValueError(f"all_gather_object: the list needs one place per rank, {group.size()}, but has {len(object_list)}")
    object_list[:] = [obj] if group.size() == 1 else _everyone(group, "all_gather_object()", obj)


@collective
def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """The list of rank `dst` gets the objects of all processes."""
    root = _root("gather_object", group, dst, group_dst, "dst")
    mine = group.rank() == root
    if mine and (object_gather_list is None or len(object_gather_list) != group.size()):
        raise ValueError(f"gather_object: rank {group.ranks[root]}, the destination, needs a list of {group.size()} places")
    if not mine and object_gather_list:
        raise ValueError("gather_object: Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    objects = [obj] if group.size() == 1 else _everyone(group, f"gather_object(dst={group.ranks[root]})", obj, mine)
    if mine:
        object_gather_list[:] = objects


def _from_root(group, what, root, obj):
    """The object of one rank, in all."""
    MPI = _world.mpi()
    mine = group.rank() == root
    data = [_bytes(obj) if mine else None]

    def chain():
        size = numpy.array([data[0].size if mine else 0])
        yield group.comm.Ibcast([size, 1, MPI.INT64_T], root)
        if not mine:
            data[0] = numpy.empty(int(size[0]), numpy.uint8)
        moved("objects", data[0].size, group.size())
        yield group.comm.Ibcast([data[0], int(size[0]), MPI.BYTE], root)

    perform(group, what, what, chain())
    return obj if mine else pickle.loads(data[0].tobytes())


@collective
def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """The list becomes that of rank `src`."""
    root = _root("broadcast_object_list", group, src, group_src, "src")
    if group.size() > 1:
        what = f"broadcast_object_list(src={group.ranks[root]}, {len(object_list)} objects)"
        object_list[:] = _from_root(group, what, root, object_list)


@collective
def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
    """Place 0 of the output list becomes this process's object of the list of rank `src`."""
    root = _root("scatter_object_list", group, src, group_src, "src")
    if not scatter_object_output_list:
        raise ValueError("scatter_object_list: Expected argument scatter_object_output_list to be a list of size at least 1.")
    if group.rank() == root and len(scatter_object_input_list or ()) != group.size():
        raise ValueError(f"scatter_object_list: rank {group.ranks[root]}, the source, needs a list of {group.size()} objects")
    objects = scatter_object_input_list
    if group.size() > 1:
        objects = _from_root(group, f"scatter_object_list(src={group.ranks[root]})", root, scatter_object_input_list)
    scatter_object_output_list[0] = objects[group.rank()]


def _peer(what, group, rank, group_rank, name, anyone=False):
    if group.size() == 1:
        raise RuntimeError(f"{what}: there is no other process in a group of one")
    if rank is None and group_rank is None:
        if anyone:
            return None
        raise ValueError(f"{what}: {name} is missing")
    peer = _root(what, group, rank, group_rank, name)
    if peer == group.rank():
        raise ValueError(f"{what}: Invalid {name} rank: {name} should not be the same as the rank of the current process.")
    return peer


class _Message(Work):
    """A message under way."""

    def __init__(self, group, text, chain, results=()):
        self._source = -1
        _world.board.write("in " + text)
        super().__init__(group, text, [self._noting(chain)], results, collective=False)

    def _noting(self, chain):
        source = yield from chain
        if source is not None:
            self._source = self._group.ranks[source]


@collective
def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Begin to send a tensor to rank `dst`."""
    _tensor("isend", tensor)
    peer = _peer("isend", group, dst, group_dst, "dst")

    moved("send", tensor.numel() * tensor.element_size(), group.size())
    chain = _in_place(group, tensor, "send", peer, tag, receives=False)
    return _Message(group, f"send({list(tensor.shape)} to rank {group.ranks[peer]}, tag {tag}) at {place()}", chain)


@collective
def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Begin to receive a tensor from rank `src` (from anyone by default)."""
    _tensor("irecv", tensor)
    peer = _peer("irecv", group, src, group_src, "src", anyone=True)
    who = "any rank" if peer is None else f"rank {group.ranks[peer]}"
    moved("recv", tensor.numel() * tensor.element_size(), group.size())
    chain = _in_place(group, tensor, "receive", peer, tag)
    return _Message(group, f"recv({list(tensor.shape)} from {who}, tag {tag}) at {place()}", chain, (tensor,))


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Send a tensor to rank `dst`."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receive a tensor from rank `src` (from anyone by default); returns the rank that sent it."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """A message for `batch_isend_irecv`: `isend` or `irecv`, tensor, peer."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError("P2POp: op must be distributed.isend or distributed.irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list):
    """Begin several messages; returns their works."""
    if not p2p_op_list or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ValueError("batch_isend_irecv: expected a list of P2POp that is not empty")
    batches = {}  # messages of GPUs go at once, or each side would wait for the other's first
    for one in p2p_op_list:
        group = resolve("batch_isend_irecv", one.group)
        backend = group.backend(one.tensor) if group else None
        if hasattr(backend, "batch"):
            batches.setdefault(backend, []).append((one.tensor, _root("batch_isend_irecv", group, one.peer, one.group_peer, "peer")))
    with contextlib.ExitStack() as stack:
        for backend, messages in batches.items():
            stack.enter_context(backend.batch(messages))
        return [one.op(one.tensor, one.peer, one.group, one.tag, one.group_peer) for one in p2p_op_list]


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    """Send Python objects to rank `dst`."""
    data = wisp.from_numpy(_bytes(list(object_list)).copy())
    send(wisp.tensor([data.numel()]), dst, group, 0, group_dst)
    send(data, dst, group, 0, group_dst)


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
    """Receive Python objects from rank `src`; returns it."""
    size = wisp.zeros(1, dtype=wisp.int64)
    source = recv(size, src, group, 0, group_src)
    data = wisp.empty(int(size), dtype=wisp.uint8)
    recv(data, source, group)
    object_list[:] = pickle.loads(data.numpy().tobytes())
    return source
