"""The notice board of the ranks on one machine: each writes what it does to its own slot of a shared file, everybody may read it.

It is how a waiting rank knows who is missing, what each did last, and that a process is gone. It carries no data.
"""

import mmap
import os
import socket
import struct
import tempfile

SLOT = 2048
GROUPS = 64
_HEAD = struct.Struct("=qi")  # process id, length of the text
_COUNTS = struct.Struct(f"={GROUPS}q")  # how many collectives were begun, by group
_TEXT = _HEAD.size + _COUNTS.size


class Board:
    """Slots of all ranks; those of other machines stay empty."""

    def __init__(self, comm):
        self.rank, self.size = comm.rank, comm.size
        self.counts = [0] * GROUPS
        here, path, handle = socket.gethostname(), os.environ.get("WISP_BOARD"), None
        if self.size > 1:
            first = comm.allgather(here).index(here)  # each machine has its own board, which its first rank makes
            if path is None and self.rank == first:
                folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
                handle, path = tempfile.mkstemp(prefix="wisp-board-", dir=folder)
                os.ftruncate(handle, SLOT * self.size)
            path = comm.allgather(path)[first]
            if handle is None:
                handle = os.open(path, os.O_RDWR)
        self.memory = mmap.mmap(handle if handle is not None else -1, SLOT * self.size)
        if handle is not None:
            os.close(handle)
        self.write("starts")
        if self.size > 1:
            comm.barrier()
            if self.rank == first and "WISP_BOARD" not in os.environ:
                os.unlink(path)  # whoever has it mapped keeps it

    def begin(self, group, text):
        """This rank begins a collective of a group."""
        if group < GROUPS:
            self.counts[group] += 1
        self.write(text)

    def write(self, text):
        """What this rank does."""
        write_slot(self.memory, self.rank, os.getpid(), self.counts, text)

    def read(self, rank):
        """(process id, counts, text) of a rank; None when it never wrote, or is on another machine."""
        return read_slot(self.memory, rank)

    def gone(self, ranks=None):
        """The ranks whose process is no more."""
        result = []
        for rank in range(self.size) if ranks is None else ranks:
            slot = self.read(rank)
            if slot is not None and rank != self.rank and not alive(slot[0]):
                result.append(rank)
        return result


def write_slot(memory, rank, pid, counts, text):
    data = text.encode()[: SLOT - _TEXT]
    at = rank * SLOT
    memory[at + _HEAD.size : at + _TEXT + len(data)] = _COUNTS.pack(*counts) + data
    memory[at : at + _HEAD.size] = _HEAD.pack(pid, len(data))


def read_slot(memory, rank):
    at = rank * SLOT
    pid, length = _HEAD.unpack_from(memory, at)
    if pid == 0:
        return None
    return pid, _COUNTS.unpack_from(memory, at + _HEAD.size), memory[at + _TEXT : at + _TEXT + length].decode(errors="replace")


def alive(pid):
    """Whether a process of this machine still runs (one that has ended but was not waited for does not)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return not os.path.isdir("/proc/self") and _answers(pid)
    except OSError:
        return False


def _answers(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
