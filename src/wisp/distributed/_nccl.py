"""The backend of NCCL: the primitives of a group (see _mpi.py) on tensors of GPUs, one GPU per rank.

The library is opened on first use, from NVIDIA's wheel or the system. Operations run on a stream of their own, after the work that the
current stream had when they began; waiting for one makes the current stream wait, not the host. A thread watches for ranks that are
gone, since a GPU that waits for one can't be interrupted.
"""

import collections
import contextlib
import ctypes
import functools
import os
import sys
import threading
import time

import wisp
from wisp.distributed import _world
from wisp.distributed._alone import OnTensors
from wisp.distributed._work import DistBackendError, report

_OPERATIONS = {"SUM": 0, "PRODUCT": 1, "MAX": 2, "MIN": 3, "AVG": 4}
_OF_FLAGS = {"SUM": 2, "MAX": 2, "BOR": 2, "PRODUCT": 3, "MIN": 3, "BAND": 3}
_TYPES = {
    wisp.int8: 0,
    wisp.uint8: 1,
    wisp.int32: 2,
    wisp.uint32: 3,
    wisp.int64: 4,
    wisp.uint64: 5,
    wisp.float16: 6,
    wisp.float32: 7,
    wisp.float64: 8,
    wisp.bfloat16: 9,
}
_PARTS = {wisp.complex64: 7, wisp.complex128: 8}
_BYTE = 0


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


_pointer, _size, _int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_FUNCTIONS = {
    "ncclGetVersion": [_pointer],
    "ncclGetUniqueId": [_pointer],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommInitRank": [_pointer, _int, _UniqueId, _int],
    "ncclCommDestroy": [_pointer],
    "ncclCommAbort": [_pointer],
    "ncclAllReduce": [_pointer, _pointer, _size, _int, _int, _pointer, _pointer],
    "ncclReduce": [_pointer, _pointer, _size, _int, _int, _int, _pointer, _pointer],
    "ncclBroadcast": [_pointer, _pointer, _size, _int, _int, _pointer, _pointer],
    "ncclAllGather": [_pointer, _pointer, _size, _int, _pointer, _pointer],
    "ncclReduceScatter": [_pointer, _pointer, _size, _int, _int, _pointer, _pointer],
    "ncclSend": [_pointer, _size, _int, _int, _pointer, _pointer],
    "ncclRecv": [_pointer, _size, _int, _int, _pointer, _pointer],
}


def find():
    """The library's path or name; None where it is not installed."""
    folders = [os.path.join(entry, "nvidia", "nccl", "lib") for entry in sys.path]
    folders = os.environ.get("WISP_CUDA_PATH", "").split(os.pathsep) + folders
    folders += [os.path.join(os.environ[name], "lib64") for name in ("NCCL_HOME", "CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for folder in folders:
        path = os.path.join(folder, "libnccl.so.2")
        if folder and os.path.exists(path):
            return path
    import ctypes.util

    return ctypes.util.find_library("nccl")


@functools.cache
def library():
    """NCCL with its functions' types."""
    path = find()
    try:
        opened = ctypes.CDLL(path or "libnccl.so.2")
    except OSError as error:
        raise RuntimeError(
            f'wisp.distributed: the backend "nccl" needs NVIDIA\'s library, which could not be opened ({error}); '
            '`pip install wisp[cuda]` brings it, and backend="gloo" works without'
        ) from None
    for name, types in _FUNCTIONS.items():
        function = getattr(opened, name)
        function.argtypes, function.restype = types, _int
    opened.ncclGetErrorString.argtypes, opened.ncclGetErrorString.restype = [_int], ctypes.c_char_p
    if hasattr(opened, "ncclGetLastError"):
        opened.ncclGetLastError.argtypes, opened.ncclGetLastError.restype = [_pointer], ctypes.c_char_p
    return opened


def version():
    """NCCL's version, such as (2, 27, 3)."""
    number = ctypes.c_int()
    check(library().ncclGetVersion(ctypes.byref(number)), "ncclGetVersion")
    number = number.value
    return (number // 10000, number // 100 % 100, number % 100) if number >= 10000 else (number // 1000, number // 100 % 10, number % 100)


def check(result, what, hint=""):
    """Raise what NCCL says about a call that failed."""
    if result == 0:
        return
    opened = library()
    said = opened.ncclGetErrorString(result).decode(errors="replace")
    last = opened.ncclGetLastError(None) if hasattr(opened, "ncclGetLastError") else None
    more = f": {last.decode(errors='replace').strip()}" if last else ""
    raise DistBackendError(f"{what}: NCCL error {result}, {said}{more}{hint}; NCCL_DEBUG=INFO in the environment makes it tell more")


def _movable(tensor, elements=None):
    """What is moved only may be of any type: number of bytes, and NCCL's name for them."""
    return (tensor.numel() if elements is None else elements) * tensor.element_size(), _BYTE


def _reducible(tensor, op, elements):
    """Number of elements, type and operation of a reduction, as NCCL has them."""
    name = str(tensor.dtype).partition(".")[2]
    if tensor.dtype == wisp.bool and op in _OF_FLAGS:
        return elements, _TYPES[wisp.uint8], _OF_FLAGS[op]
    if tensor.dtype in _PARTS and op in ("SUM", "AVG"):
        return 2 * elements, _PARTS[tensor.dtype], _OPERATIONS[op]
    if tensor.dtype not in _TYPES or op not in _OPERATIONS:
        raise RuntimeError(f"Cannot use ReduceOp.{op} on tensors of {name} with NCCL; use a tensor on the CPU, or of another dtype")
    return elements, _TYPES[tensor.dtype], _OPERATIONS[op]


class _Request:
    """An operation on the communicator's stream."""

    def __init__(self, communicator, tensors):
        self.communicator, self.tensors, self.end, self.ended = communicator, tensors, None, False
        self.begun_on = wisp.cuda.current_stream(communicator.index)
        self.captured = wisp.cuda.is_current_stream_capturing()

    def launched(self):
        self.end = self.communicator.stream.record_event()

    def Test(self):
        """Whether the GPU has done it. (During a capture nothing is done; `Join` makes the graph's edge.)"""
        if not self.ended and not self.captured and self.end.query():
            self._finish()
        return self.ended

    def Join(self):
        """Let later work of the current stream wait for it."""
        if not self.ended:
            stream = wisp.cuda.current_stream(self.communicator.index)
            stream.wait_event(self.end)
            if stream != self.begun_on:
                self._keep()
            self._finish()
        return True

    def _finish(self):
        self.ended, self.tensors = True, ()

    def _keep(self):
        """The tensors' memory must not be used again before this stream is done with it."""
        for tensor in self.tensors:
            tensor.record_stream(self.communicator.stream)

    def __del__(self):
        if not self.ended and self.end is not None:
            self._keep()


class _Communicator:
    """NCCL's communicator on a device, and its stream."""

    def __init__(self, unique, rank, size, index):
        self.index, handle = index, ctypes.c_void_p()
        identity = _UniqueId.from_buffer_copy(unique)
        with wisp.cuda.device(index):
            check(
                library().ncclCommInitRank(ctypes.byref(handle), size, identity, rank),
                f"rank {rank} of {size} on cuda:{index} begins",
                " (each rank needs a GPU of its own: wisp.cuda.set_device(local_rank))" if size > 1 else "",
            )
            self.stream = wisp.cuda.Stream(index, priority=-1)
        self.handle, self.before = handle, wisp.cuda.Event()

    def destroy(self):
        library().ncclCommDestroy(self.handle)


def unique_id():
    """A new communicator's name, as bytes."""
    identity = _UniqueId()
    check(library().ncclGetUniqueId(ctypes.byref(identity)), "ncclGetUniqueId")
    return bytes(identity)


class NcclBackend(OnTensors):
    """The primitives on GPUs. Communicators are made on first use: one for all ranks, and one for each pair that sends messages."""

    def __init__(self, group):
        self.group, self.size, self.rank = group, group.comm.size, group.comm.rank
        self.communicators, self.waiting, self.watched, self.watch = {}, None, collections.deque(), None

    def release(self):
        """The group is gone."""
        self.watch = None
        for communicator in self.communicators.values():
            communicator.destroy()
        self.communicators = {}

    def _of_all(self, index):
        if index not in self.communicators:
            unique = None
            if self.rank == 0:
                try:
                    unique = unique_id()
                except RuntimeError as error:
                    unique = str(error)
            if self.size > 1:
                unique = self.group.comm.bcast(unique)
            if isinstance(unique, str):
                raise DistBackendError(f"rank {self.group.ranks[0]} can't begin: {unique}")
            self.communicators[index] = _Communicator(unique, self.rank, self.size, index)
        return self.communicators[index]

    def _of_pair(self, peer, index):
        """Its own communicator: two ranks must not wait for the others, nor for their collectives."""
        if (index, peer) not in self.communicators:
            first = min(peer, self.rank)
            if self.rank == first:
                unique = unique_id()
                self.group.control.send(unique, peer)
            else:
                unique = self.group.control.recv(source=peer)
            self.communicators[index, peer] = _Communicator(unique, int(self.rank != first), 2, index)
        return self.communicators[index, peer]

    def _launch(self, communicator, tensors, enqueue):
        """Enqueue on the communicator's stream, after what the current stream has to do; the request."""
        index, stream = communicator.index, communicator.stream
        before = wisp.cuda.current_device()
        if before != index:
            wisp.cuda.set_device(index)
        try:
            communicator.before.record(wisp.cuda.current_stream(index))
            stream.wait_event(communicator.before)
            request = _Request(communicator, tensors)
            enqueue(library(), communicator.handle, stream.cuda_stream)
        finally:
            if before != index:
                wisp.cuda.set_device(before)
        if self.waiting is not None:
            self.waiting.append(request)  # launched at the end of the batch
        else:
            self._launched(request)
        return request

    def _launched(self, request):
        request.launched()
        if self.size > 1 and not request.captured:
            self.watched.append((request.end, time.monotonic()))
            if self.watch is None:
                self.watch = threading.Thread(target=self._look, name="wisp-nccl", daemon=True)
                self.watch.start()

    def _look(self):
        """End this process when an operation can't end: a rank is gone, or the time is up. (The host may be waiting for the GPU.)"""
        trouble = None
        while self.watch is threading.current_thread():
            time.sleep(1.0)
            while self.watched and self.watched[0][0].query():
                self.watched.popleft()
            if not self.watched:
                trouble = None
                continue
            gone, waited = _world.left(self.group.ranks), time.monotonic() - self.watched[0][1]
            if not gone and waited < self.group.timeout:
                continue
            if trouble is None:
                trouble = time.monotonic()  # if the host is not waiting for the GPU, it notices too, and says it better
            elif time.monotonic() - trouble > 5:
                why = gone or f"not done after {self.group.timeout:g} s"
                sys.stderr.write(
                    f"wisp.distributed: an operation of NCCL on rank {self.group.ranks[self.rank]} can't end: {why}\n"
                    f"what each rank did last:\n{report(self.group.ranks)}\n"
                )
                sys.stderr.flush()
                os._exit(1)

    def _collective(self, tensors, name, *arguments):
        def enqueue(nccl, handle, stream):
            check(getattr(nccl, name)(*arguments, handle, stream), name)

        yield self._launch(self._of_all(tensors[0].device.index), tensors, enqueue)

    def all_reduce(self, tensor, op):
        """In place."""
        address = tensor.data_ptr()
        if tensor.numel():
            yield from self._collective((tensor,), "ncclAllReduce", address, address, *_reducible(tensor, op, tensor.numel()))

    def reduce(self, tensor, op, root):
        """In place at the root; the others' stay as they are."""
        address = tensor.data_ptr()
        if tensor.numel():
            yield from self._collective((tensor,), "ncclReduce", address, address, *_reducible(tensor, op, tensor.numel()), root)

    def broadcast(self, tensor, root):
        """In place."""
        address = tensor.data_ptr()
        if tensor.numel():
            yield from self._collective((tensor,), "ncclBroadcast", address, address, *_movable(tensor), root)

    def all_gather(self, output, tensor):
        """Everybody's tensor, one after the other."""
        if tensor.numel():
            yield from self._collective((output, tensor), "ncclAllGather", tensor.data_ptr(), output.data_ptr(), *_movable(tensor))

    def reduce_scatter(self, output, tensor, op):
        """This rank's part of the reduction."""
        if output.numel():
            yield from self._collective(
                (output, tensor), "ncclReduceScatter", tensor.data_ptr(), output.data_ptr(), *_reducible(tensor, op, output.numel())
            )

    def gather(self, output, tensor, root):
        """As all_gather, at the root; elsewhere `output` is None."""
        count, mine = tensor.numel(), self.rank == root
        return self.all_to_all(output, tensor, [count if mine else 0] * self.size, [count * (rank == root) for rank in range(self.size)])

    def scatter(self, output, tensor, root):
        """This rank's part of the root's tensor, which is None elsewhere."""
        count, mine = output.numel(), self.rank == root
        return self.all_to_all(output, tensor, [count * (rank == root) for rank in range(self.size)], [count if mine else 0] * self.size)

    def all_to_all(self, output, tensor, receive_counts, send_counts):
        """Numbers of elements from and to each rank: messages that NCCL joins into one operation."""
        tensors = [each for each in (output, tensor) if each is not None]
        width = tensors[0].element_size()

        def enqueue(nccl, handle, stream):
            check(nccl.ncclGroupStart(), "ncclGroupStart")
            sent = received = 0
            for rank in range(self.size):
                if send_counts[rank]:
                    count = send_counts[rank] * width
                    check(nccl.ncclSend(tensor.data_ptr() + sent, count, _BYTE, rank, handle, stream), "ncclSend")
                    sent += count
                if receive_counts[rank]:
                    count = receive_counts[rank] * width
                    check(nccl.ncclRecv(output.data_ptr() + received, count, _BYTE, rank, handle, stream), "ncclRecv")
                    received += count
            check(nccl.ncclGroupEnd(), "ncclGroupEnd")

        if sum(send_counts) + sum(receive_counts):
            yield self._launch(self._of_all(tensors[0].device.index), tensors, enqueue)

    def send(self, tensor, peer, tag):
        """A message to a rank of the group. NCCL knows no tags: messages come in the order in which they were sent."""

        def enqueue(nccl, handle, stream):
            check(nccl.ncclSend(tensor.data_ptr(), *_movable(tensor), int(peer > self.rank), handle, stream), "ncclSend")

        if tensor.numel():
            yield self._launch(self._of_pair(peer, tensor.device.index), (tensor,), enqueue)

    def receive(self, tensor, peer, tag):
        """A message from a rank of the group. Returns the rank."""
        if peer is None:
            raise ValueError("NCCL can't receive from any rank: say which (src=)")

        def enqueue(nccl, handle, stream):
            check(nccl.ncclRecv(tensor.data_ptr(), *_movable(tensor), int(peer > self.rank), handle, stream), "ncclRecv")

        if tensor.numel():
            yield self._launch(self._of_pair(peer, tensor.device.index), (tensor,), enqueue)
        return peer

    @contextlib.contextmanager
    def batch(self, messages):
        """Messages (tensor, peer) that are begun inside of it go at once, in whatever order they are called."""
        for index, peer in sorted({(tensor.device.index, peer) for tensor, peer in messages}):
            self._of_pair(peer, index)
        check(library().ncclGroupStart(), "ncclGroupStart")
        self.waiting = []
        try:
            yield
        finally:
            requests, self.waiting = self.waiting, None
            check(library().ncclGroupEnd(), "ncclGroupEnd")
            for request in requests:
                self._launched(request)
