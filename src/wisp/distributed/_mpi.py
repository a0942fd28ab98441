"""The backend of MPI: each primitive of a group as nonblocking operations of mpi4py on the memory of CPU tensors.

A backend is what a ProcessGroup keeps for a kind of device. Its primitives get tensors that its `plain` has made, and are generators: they
yield requests (objects with `Test()`) one after the other, and go on when the request has ended. They know nothing of users' arguments.
"""

import numpy

import wisp
from wisp.distributed import _world

_OPERATIONS = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX", "BAND": "BAND", "BOR": "BOR", "BXOR": "BXOR"}
_OF_FLAGS = {"PRODUCT": "BAND", "MIN": "BAND", "BAND": "BAND", "BXOR": "BXOR"}  # all others are "or"
_TYPES = {
    wisp.float32: "FLOAT",
    wisp.float64: "DOUBLE",
    wisp.int8: "INT8_T",
    wisp.uint8: "UINT8_T",
    wisp.int16: "INT16_T",
    wisp.int32: "INT32_T",
    wisp.int64: "INT64_T",
    wisp.complex64: "C_FLOAT_COMPLEX",
    wisp.complex128: "C_DOUBLE_COMPLEX",
    wisp.bool: "UINT8_T",
}
_HALF = (wisp.bfloat16, wisp.float16)
_FOLD = {"SUM": wisp.Tensor.sum, "AVG": wisp.Tensor.mean, "PRODUCT": wisp.Tensor.prod, "MIN": wisp.Tensor.amin, "MAX": wisp.Tensor.amax}


def _array(tensor):
    """The memory of a plain tensor; 16-bit floats as their bytes."""
    if tensor.dtype in _HALF:
        return tensor.view(wisp.int16).numpy()
    if tensor.dtype == wisp.bool:
        return tensor.view(wisp.uint8).numpy()
    return tensor.numpy()


def _buffer(tensor, counts=None):
    """What mpi4py takes: memory, number of elements (per rank, for some), type."""
    memory = _array(tensor)
    return [memory, memory.size if counts is None else counts, getattr(_world.mpi(), _TYPES.get(tensor.dtype, "INT16_T"))]


def _operation(name, dtype):
    name = _OF_FLAGS.get(name, "BOR") if dtype == wisp.bool else _OPERATIONS[name]
    return getattr(_world.mpi(), name)


def _offsets(counts):
    return counts, [0, *numpy.cumsum(counts[:-1]).tolist()]


class MpiBackend:
    """The primitives of a group of several ranks, on the CPU. Tensors of other devices travel as copies."""

    def __init__(self, comm):
        self.comm, self.second = comm, comm.Dup()  # the second is for later stages of an operation
        self.size, self.rank = comm.size, comm.rank

    def release(self):
        """The group is gone."""
        self.second.Free()

    def plain(self, tensor):
        """The tensor itself where MPI can use its memory, else a contiguous copy on the CPU."""
        tensor = tensor.detach()
        return (tensor if tensor.device.type == "cpu" else tensor.cpu()).resolve_conj().resolve_neg().contiguous()

    def empty(self, like, count):
        """A flat plain tensor of `count` elements."""
        return wisp.empty(count, dtype=like.dtype)

    def staged(self, dtype):
        """Whether a reduction yields more than one request, so that later operations must not overtake it."""
        return dtype in _HALF

    def _average(self, tensor, op):
        if op == "AVG":
            whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
            tensor.div_(self.size, rounding_mode="trunc" if whole else None)

    def _fold(self, tensor, op):
        """16-bit floats, which MPI can't add: each rank gets everybody's part, and folds it in 32 bits. Returns this rank's part."""
        share = -(-tensor.numel() // self.size)
        sent = wisp.zeros(self.size * share, dtype=tensor.dtype)
        sent[: tensor.numel()] = tensor.view(-1)
        parts = wisp.empty_like(sent)
        yield self.comm.Ialltoall(_buffer(sent, share), _buffer(parts, share))
        return _FOLD[op](parts.view(self.size, share).float(), 0).to(tensor.dtype)

    def all_reduce(self, tensor, op):
        """In place."""
        if tensor.dtype in _HALF:
            part = yield from self._fold(tensor, op)
            whole = self.empty(tensor, self.size * part.numel())
            yield self.second.Iallgather(_buffer(part), _buffer(whole, part.numel()))
            tensor.view(-1).copy_(whole[: tensor.numel()])
            return
        yield self.comm.Iallreduce(_world.mpi().IN_PLACE, _buffer(tensor), _operation(op, tensor.dtype))
        self._average(tensor, op)

    def reduce(self, tensor, op, root):
        """In place at the root; the others' stay as they are."""
        mine = self.rank == root
        if tensor.dtype in _HALF:
            part = yield from self._fold(tensor, op)
            whole = self.empty(tensor, self.size * part.numel()) if mine else None
            yield self.second.Igather(_buffer(part), _buffer(whole, part.numel()) if mine else None, root)
            if mine:
                tensor.view(-1).copy_(whole[: tensor.numel()])
            return
        operands = (_world.mpi().IN_PLACE, _buffer(tensor)) if mine else (_buffer(tensor), None)
        yield self.comm.Ireduce(*operands, _operation(op, tensor.dtype), root)
        if mine:
            self._average(tensor, op)

    def broadcast(self, tensor, root):
        """In place."""
        yield self.comm.Ibcast(_buffer(tensor), root)

    def all_gather(self, output, tensor):
        """Everybody's tensor, one after the other."""
        yield self.comm.Iallgather(_buffer(tensor), _buffer(output, tensor.numel()))

    def gather(self, output, tensor, root):
        """As all_gather, at the root; elsewhere `output` is None."""
        yield self.comm.Igather(_buffer(tensor), None if output is None else _buffer(output, tensor.numel()), root)

    def scatter(self, output, tensor, root):
        """This rank's part of the root's tensor, which is None elsewhere."""
        yield self.comm.Iscatter(None if tensor is None else _buffer(tensor, output.numel()), _buffer(output), root)

    def reduce_scatter(self, output, tensor, op):
        """This rank's part of the reduction."""
        if tensor.dtype in _HALF:
            part = yield from self._fold(tensor, op)
            output.view(-1).copy_(part)
            return
        yield self.comm.Ireduce_scatter_block(_buffer(tensor, output.numel()), _buffer(output), _operation(op, tensor.dtype))
        self._average(output, op)

    def all_to_all(self, output, tensor, receive_counts, send_counts):
        """Numbers of elements from and to each rank."""
        yield self.comm.Ialltoallv(_buffer(tensor, _offsets(send_counts)), _buffer(output, _offsets(receive_counts)))

    def barrier(self):
        """Everybody is here."""
        yield self.comm.Ibarrier()

    def send(self, tensor, peer, tag):
        """A message to a rank of the group."""
        yield self.comm.Isend(_buffer(tensor), peer, tag)

    def receive(self, tensor, peer, tag):
        """A message from a rank of the group, or from any (None). Returns the rank."""
        MPI = _world.mpi()
        status = MPI.Status()
        what = _buffer(tensor)
        yield _WithStatus(self.comm.Irecv(what, MPI.ANY_SOURCE if peer is None else peer, tag), status)
        count = status.Get_count(what[2])
        if count != what[1]:
            raise RuntimeError(f"a message of {count} elements came for a tensor of {what[1]}: {list(tensor.shape)}")
        return status.Get_source()


class _WithStatus:
    def __init__(self, request, status):
        self.request, self.status = request, status

    def Test(self):
        return self.request.Test(self.status)
