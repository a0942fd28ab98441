"""A group of one process: its communicator and its backend. No MPI is needed for it, and tensors stay on their device."""


class Alone:
    """Rank 0 of 1, with what Wisp asks of a communicator apart from moving data."""

    rank, size = 0, 1

    def Dup(self):
        return self

    def Free(self):
        pass


class OnTensors:
    """What backends share that work on the tensors' own memory and begin everything at once."""

    def plain(self, tensor):
        """The tensor itself, or a contiguous copy."""
        return tensor.detach().resolve_conj().resolve_neg().contiguous()

    def empty(self, like, count):
        """A flat tensor of `count` elements."""
        return like.new_empty(count)

    def staged(self, dtype):
        """Nothing waits for a later step."""
        return False


class AloneBackend(OnTensors):
    """The primitives (see _mpi.py) of one rank: nothing, or a copy."""

    def release(self):
        """Nothing to free."""

    def _nothing(self, *arguments):
        return iter(())

    all_reduce = reduce = broadcast = barrier = _nothing

    def _copy(self, output, tensor, *more):
        output.view(tensor.shape).copy_(tensor)
        return iter(())

    all_gather = gather = scatter = reduce_scatter = all_to_all = _copy
