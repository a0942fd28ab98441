"""The communicator of a group of one process: mpi4py's methods that Wisp uses, as copies in memory. No MPI is needed for it."""


class Request:
    """Done already."""

    def Test(self):
        return True


def _copy(source, target):
    target[0].reshape(-1)[:] = source[0].reshape(-1)[:target[0].size]
    return Request()


class Alone:
    """Rank 0 of 1. Buffers are (array, ...) as elsewhere; an in-place operation passes the array as `target` only."""

    rank, size = 0, 1

    def Dup(self):
        return self

    def Free(self):
        pass

    def Ibarrier(self):
        return Request()

    def Ibcast(self, buffer, root=0):
        return Request()

    def Iallreduce(self, source, target, op=None):
        return Request()

    def Ireduce(self, source, target, op=None, root=0):
        return Request()

    def Iallgather(self, source, target):
        return _copy(source, target)

    def Igather(self, source, target, root=0):
        return _copy(source, target)

    def Iscatter(self, source, target, root=0):
        return _copy(source, target)

    def Ialltoall(self, source, target):
        return _copy(source, target)

    Ialltoallv = Ialltoall

    def Ireduce_scatter_block(self, source, target, op=None):
        return _copy(source, target)
