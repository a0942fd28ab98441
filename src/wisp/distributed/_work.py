"""Operations under way: requests of MPI that are tested, never waited for blindly, and what is said when one does not end."""

import os
import sys
import time

from wisp.distributed import _world

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
HEADER = 256


class DistError(RuntimeError):
    """Something went wrong between processes."""


class DistBackendError(DistError):
    """A collective failed: ranks disagree, are missing, or MPI reported an error."""


class DistNetworkError(DistError):
    """Processes did not reach each other."""


class DistStoreError(DistError):
    """The meeting point of the processes failed."""


def place():
    """ "file.py:12" of the nearest caller outside of Wisp."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            break
        frame = frame.f_back
    name = frame.f_code.co_filename
    here = os.getcwd() + os.sep
    return f"{name[len(here) :] if name.startswith(here) else name}:{frame.f_lineno}"


def _names(ranks):
    ranks = sorted(ranks)
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))


def report(ranks):
    """What each rank did last, one per line."""
    lines = []
    for rank in ranks:
        slot = _world.board.read(rank)
        lines.append(f"  rank {rank}: " + (slot[2] if slot else "on another machine, not known"))
    return "\n".join(lines)


class Work:
    """An operation under way, as `async_op=True` gives it: `wait()` for it, or ask `is_completed()`.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> work = wisp.distributed.all_reduce(wisp.ones(2), async_op=True)
    >>> work.wait(), work.is_completed()
    (True, True)
    >>> wisp.distributed.destroy_process_group()
    """

    _kept = None  # a list of what is begun within `_coalescing_manager`

    def __init__(self, group, text, chains, results=(), collective=True, staged=False):
        if Work._kept is not None:
            Work._kept.append(self)
        # chains: generators that yield requests one after the other; what they do between two is done when the first has ended
        self._group, self._text, self._results, self._collective = group, text, results, collective
        self._count = group.calls
        self._error = self._future = None
        self._chains = []
        self._done, self._staged = False, staged  # staged: requests begin later than the operation
        for chain in chains:
            self._start(chain)
        if collective:
            group.pending.append(self)

    def _start(self, chain):
        request = next(chain, None)
        if request is not None:
            self._chains.append([chain, request])

    def _poll(self, join=False):
        """One look at the requests; True when all is done. With `join` it is enough that the GPU's later work will wait for it."""
        if self._done:
            return True
        try:
            while self._chains:
                chain, request = self._chains[0]
                if not (request.Join() if join and hasattr(request, "Join") else request.Test()):
                    return False
                request = next(chain, None)
                if request is None:
                    self._chains.pop(0)
                else:
                    self._chains[0][1] = request
        except Exception as error:
            self._finish(self._explained(error))
            raise self._error from None
        self._finish(None)
        return True

    def _explained(self, error):
        if isinstance(error, DistError):
            return error
        return DistBackendError(f"{self._text}: {type(error).__name__}: {error}\nwhat each rank did last:\n{report(self._group.ranks)}")

    def _finish(self, error):
        self._error, self._done, self._chains = error, True, []
        if self._collective and self in self._group.pending:
            self._group.pending.remove(self)
        if self._future is not None:
            self._future.set_exception(error) if error is not None else self._future.set_result(list(self._results))

    def _advance(self, join=False):
        """Look at this operation and at those begun before it, in their order: later stages must begin in the same order on all ranks."""
        if self._collective:
            for other in list(self._group.pending):
                if other is self:
                    break
                if not other._poll() and other._staged:
                    return False
        return self._poll(join)

    def wait(self, timeout=None):
        """Return True when the operation is done; an error of it is raised."""
        seconds = self._group.timeout if timeout is None else _seconds(timeout)
        begin = time.monotonic()
        look, pause, spins = begin + 0.3, 2e-5, 0
        # where every rank has a processor, a short wait is better spent asking than sleeping
        limit = 2000 if _world.comm.size <= _PROCESSORS else 20
        while not self._advance(join=True):
            spins += 1
            if spins < limit:
                continue
            time.sleep(pause)
            pause = min(pause * 1.3, 1e-3)
            now = time.monotonic()
            if now > look:
                look = now + 0.3
                self._look_for_trouble(now - begin > seconds, seconds)
        if self._error is not None:
            raise self._error
        if self._collective and _world.board is not None and self._group.size() > 1:
            _world.board.write("after " + self._text)
        return True

    def _look_for_trouble(self, late, seconds):
        ranks, board = self._group.ranks, _world.board
        gone = board.gone(ranks)
        index = self._group.index
        absent = []
        for rank in ranks:
            slot = board.read(rank)
            if self._collective and slot is not None and index < len(slot[1]) and slot[1][index] < self._count:
                absent.append(rank)
        ended = [rank for rank in absent if board.read(rank)[2].startswith("leaves")]
        if gone:
            self._fail(f"{_names(gone)} {'is' if len(gone) == 1 else 'are'} gone: the process has ended")
        elif ended:
            self._fail(f"{_names(ended)} came to the end of the program without taking part")
        elif late:
            who = f"{_names(absent)} did not take part" if absent else "all ranks of this machine came, but it did not end"
            self._fail(f"not done after {seconds:g} s: {who}")
        elif left := _world.left(ranks):
            self._fail(left)

    def _fail(self, why):
        if self._poll():
            return
        error = DistBackendError(f"{self._text}: {why}\nwhat each rank did last:\n{report(self._group.ranks)}")
        self._finish(error)
        raise error

    def is_completed(self):
        """Whether the operation is done, without waiting."""
        return self._advance()

    def is_success(self):
        """Whether it is done without an error."""
        return self._done and self._error is None

    def exception(self):
        """The error, or None."""
        return self._error

    def result(self):
        """The tensors that were written."""
        self.wait()
        return list(self._results)

    def source_rank(self):
        """For a receive: the rank that sent."""
        return self._source

    def get_future(self):
        """A `wisp.futures.Future` of the list of tensors; waiting for it waits for the operation."""
        if self._future is None:
            self._future = _Future(self)
            if self._done:
                self._future.set_exception(self._error) if self._error else self._future.set_result(list(self._results))
        return self._future


def _seconds(timeout):
    return timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)


def _Future(work):
    from wisp.futures import Future

    class WorkFuture(Future):
        """Waiting for it makes MPI go on."""

        def wait(self):
            if not self.done():
                work.wait()
            return super().wait()

        def done(self):
            return super().done() or work._done

        def then(self, callback):
            return _Later(self, callback)

    return WorkFuture()


class _Later:
    """The result of a callback on a future of this process: computed when somebody asks for it."""

    def __init__(self, before, callback):
        self._before, self._callback, self._ready = before, callback, False

    def wait(self):
        if not self._ready:
            self._before.wait()
            self._value, self._ready = self._callback(self._before), True
        return self._value

    value = wait

    def done(self):
        return self._ready or self._before.done()

    def then(self, callback):
        return _Later(self, callback)


class Note:
    """A few words that travel in the header of a collective: `mine` to the others, and `everyone` of all ranks when it has ended."""

    def __init__(self, mine):
        self.mine, self.everyone = mine, [mine]


def header(group, signature, text, note=None):
    """A chain that compares what all ranks are about to do; a mismatch is an error before any data moves."""
    import numpy

    mine = numpy.zeros(HEADER, numpy.uint8)
    data = "\0".join((signature, note.mine if note else "", text)).encode()[:HEADER]
    mine[: len(data)] = numpy.frombuffer(data, numpy.uint8)
    everyone = numpy.zeros((group.size(), HEADER), numpy.uint8)
    yield group.control.Iallgather([mine, HEADER, _world.mpi().BYTE], [everyone, HEADER, _world.mpi().BYTE])
    if (everyone == mine).all():
        return
    calls = [(bytes(row).rstrip(b"\0").decode(errors="replace").split("\0", 2) + ["", ""])[:3] for row in everyone]
    if len({call[0] for call in calls}) > 1:
        different = {}
        for rank, (_, _, call) in zip(group.ranks, calls):
            different.setdefault(call, []).append(rank)
        raise DistBackendError(
            "the ranks call different collectives, which would hang or mix their data:\n"
            + "\n".join(f"  {_names(ranks)}: {call}" for call, ranks in different.items())
        )
    if note:
        note.everyone = [call[1] for call in calls]
