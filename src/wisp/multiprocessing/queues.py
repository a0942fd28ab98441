"""Pipes and queues whose messages carry tensors as shared memory."""

import array
import multiprocessing.connection
import multiprocessing.queues
import os
import socket
import struct
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler

from wisp.multiprocessing.shared import Parcel, parcels

_GROUP = 200  # descriptors that one message of a socket can carry (the kernel's bound is 253)


class Channel(multiprocessing.connection.Connection):
    """One end of a pair of connected sockets: bytes and the descriptors of files go through it."""

    def send(self, obj):
        """Send any picklable object; the memory of its tensors becomes shared."""
        self._check_closed()
        self._check_writable()
        self._send_bytes(ForkingPickler.dumps(Parcel(obj)))

    def _socket(self):
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=self.fileno())

    def _send_bytes(self, buf):
        (files, tensors), parcels.sending = parcels.sending or ((), ()), ()
        super()._send_bytes(struct.pack("<I", len(files)) + bytes(buf))
        if not files:
            return
        wire = self._socket()
        try:
            for i in range(0, len(files), _GROUP):
                part = array.array("i", files[i : i + _GROUP])
                wire.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])
        finally:
            wire.detach()
        del tensors  # they kept the descriptors open until now

    def _recv_bytes(self, maxsize=None):
        stream = super()._recv_bytes(None if maxsize is None else maxsize + 4)
        if stream is None:
            return None
        message = stream.getvalue()
        count = struct.unpack_from("<I", message)[0]
        forget_arrived()
        if count:
            parcels.arrived = self._receive_files(count)
        stream.seek(0)
        stream.truncate()
        stream.write(memoryview(message)[4:])
        return stream

    def _receive_files(self, count):
        files, wire = [], self._socket()
        try:
            while len(files) < count:
                space = socket.CMSG_SPACE(_GROUP * 4)
                byte, ancillary, flags, _ = wire.recvmsg(1, space, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
                if not byte:
                    raise EOFError
                for level, kind, data in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        files.extend(array.array("i", data[: len(data) // 4 * 4]))
                if flags & getattr(socket, "MSG_CTRUNC", 0):
                    raise OSError("too many open files to receive a tensor; raise the limit with `ulimit -n`")
        except BaseException:
            for file in files:
                os.close(file)
            raise
        finally:
            wire.detach()
        return files

    def recv(self):
        """Wait for the next object."""
        try:
            return super().recv()
        finally:
            forget_arrived()


def forget_arrived():
    files, parcels.arrived = parcels.arrived, ()
    for file in files:
        os.close(file)  # what was mapped stays mapped


def _rebuild_channel(handle, readable, writable):
    return Channel(handle.detach(), readable, writable)


ForkingPickler.register(
    Channel, lambda channel: (_rebuild_channel, (reduction.DupFd(channel.fileno()), channel.readable, channel.writable))
)


def Pipe(duplex=True):
    """Two connected ends; with `duplex=False` the first one receives and the second one sends.

    >>> from wisp import multiprocessing as mp
    >>> import wisp
    >>> receive, send = mp.Pipe(duplex=False)
    >>> send.send(wisp.arange(3))
    >>> receive.recv()
    tensor([0, 1, 2])
    """
    first, second = socket.socketpair()
    return (Channel(first.detach(), readable=True, writable=duplex), Channel(second.detach(), readable=duplex, writable=True))


class Queue(multiprocessing.queues.Queue):
    """A queue between processes. Objects are pickled when they are put, and their tensors' memory becomes shared.

    >>> from wisp import multiprocessing as mp
    >>> import wisp
    >>> queue = mp.Queue()
    >>> queue.put(wisp.ones(2))
    >>> queue.get()
    tensor([1., 1.])
    """

    def __init__(self, maxsize=0, *, ctx):
        super().__init__(maxsize, ctx=ctx)
        _exchange_ends(self)
        self._reset()

    def put(self, obj, block=True, timeout=None):
        """Put an object into the queue."""
        super().put(Parcel(obj), block, timeout)

    def get(self, block=True, timeout=None):
        """Take the next object out of the queue."""
        try:
            return super().get(block, timeout)
        finally:
            forget_arrived()


class JoinableQueue(Queue, multiprocessing.queues.JoinableQueue):
    """A queue that can be waited for: `task_done()` for each object taken, `join()` until all are done."""

    def put(self, obj, block=True, timeout=None):
        """Put an object into the queue."""
        multiprocessing.queues.JoinableQueue.put(self, Parcel(obj), block, timeout)


class SimpleQueue(multiprocessing.queues.SimpleQueue):
    """A queue without limits, threads or timeouts: a locked pipe."""

    def __init__(self, *, ctx):
        super().__init__(ctx=ctx)
        _exchange_ends(self)
        self._poll = self._reader.poll

    def put(self, obj):
        """Put an object into the queue."""
        super().put(Parcel(obj))

    def get(self):
        """Take the next object out of the queue."""
        try:
            return super().get()
        finally:
            forget_arrived()


def _exchange_ends(queue):
    """The pipe that Python's queue made for one that carries descriptors."""
    queue._reader.close()
    queue._writer.close()
    queue._reader, queue._writer = Pipe(duplex=False)
