"""Batches on their way from a worker to the main process.

The memory of a batch's tensors and arrays lies in a segment of shared memory; what travels through the socket is the
rest. A segment whose batch the main process has dropped is used again, so pages are warm and their number is bounded.
"""

import itertools
import os
import pickle

import numpy

import wisp
from wisp.multiprocessing import shared
from wisp.multiprocessing.queues import forget_arrived
from wisp.multiprocessing.shared import parcels

_ALIGN = 64
_INLINE = 2048  # smaller batches are not worth a segment
_ROUND = 1 << 16
_forks = [0]  # how often this process has forked

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lambda: _forks.__setitem__(0, _forks[0] + 1))


# ---------------------------------------------------------------- pickling
def _rebuild_tensor(buffer, dtype, shape, order, requires_grad):
    dtype = getattr(wisp, dtype)  # by name: pickle looks for such an object in all modules
    tensor = wisp.frombuffer(buffer, dtype=dtype).view(shape) if len(buffer) else wisp.empty(shape, dtype=dtype)
    if order is not None:
        tensor = tensor.permute(order)
    return tensor.requires_grad_() if requires_grad else tensor


class _Pickler(pickle.Pickler):
    def reducer_override(self, value):
        if type(value) is not wisp.Tensor or value.device.type != "cpu":
            return NotImplemented
        plain, order = value.detach(), None
        if value.requires_grad and not value.is_leaf:
            raise RuntimeError(
                "a worker made a tensor with a gradient history, which can't leave its process: detach() it in __getitem__ or collate_fn"
            )
        if not plain.is_contiguous():  # keep channels_last and the like: send the dimensions in the order of memory
            by_stride = sorted(range(plain.dim()), key=lambda d: -plain.stride(d))
            if plain.permute(by_stride).is_contiguous():
                plain, order = plain.permute(by_stride), numpy.argsort(by_stride).tolist()
            plain = plain.contiguous()
        if not plain.numel():
            raw = b""
        else:
            raw = pickle.PickleBuffer(plain.view(-1).view(wisp.uint8).numpy())
        return _rebuild_tensor, (raw, str(value.dtype)[6:], tuple(plain.shape), order, value.requires_grad)


class _Bytes:
    """Where a pickle goes; simpler than BytesIO, and its parts are joined once."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        self.parts.append(bytes(data))


# ---------------------------------------------------------------- in the worker
class Outbox:
    """Packs batches and sends them."""

    def __init__(self, channel, use_shared_memory):
        self.channel, self.use_shared_memory = channel, use_shared_memory
        self._segments, self._free, self._numbers = {}, [], itertools.count()

    def take_back(self, free, forgotten):
        """The main process has dropped the batches in these segments."""
        for number in forgotten:
            self._segments.pop(number, None)
        self._free += free

    def pack(self, value):
        """-> what `send` takes. Errors of pickling are raised here."""
        stream, buffers = _Bytes(), []
        _Pickler(stream, 5, buffer_callback=buffers.append).dump(value)
        raws = [numpy.frombuffer(buffer.raw(), numpy.uint8) for buffer in buffers]
        ends = list(itertools.accumulate(-(-raw.nbytes // _ALIGN) * _ALIGN for raw in raws))
        total = ends[-1] if ends else 0
        places = [(start, start + raw.nbytes) for start, raw in zip([0, *ends], raws)]
        data = b"".join(stream.parts)
        if total > _INLINE and self.use_shared_memory:
            try:
                number, memory, file = self._segment(total)
            except OSError as error:
                return pickle.dumps((data, None, str(error), [raw.tobytes() for raw in raws])), None
            for (start, end), raw in zip(places, raws):
                memory[start:end] = raw
            return pickle.dumps((data, number, memory.nbytes if file else 0, places)), file
        return pickle.dumps((data, None, None, [raw.tobytes() for raw in raws])), None

    def _segment(self, size):
        """A free segment, or a new one with its file's descriptor -> number, memory, descriptor or None"""
        fitting = [number for number in self._free if self._segments[number].nbytes >= size]
        if fitting:
            number = min(fitting, key=lambda number: self._segments[number].nbytes)
            self._free.remove(number)
            return number, self._segments[number], None
        size = -(-size // _ROUND) * _ROUND
        file = shared.new_file(size)
        number = next(self._numbers)
        self._segments[number] = shared._map(file, size, False).numpy()
        return number, self._segments[number], file

    def send(self, packed):
        data, file = packed
        if file is not None:
            parcels.sending = [file], None
        try:
            self.channel.send_bytes(data)
        finally:
            if file is not None:
                os.close(file)


# ---------------------------------------------------------------- in the main process
class _Lease:
    """The use of a segment by one batch: when the last tensor on it is dropped, the segment is free."""

    def __init__(self, inbox, number, memory):
        self._inbox, self._number, self._memory, self._forks = inbox, number, memory, _forks[0]
        self.__array_interface__ = {"shape": (memory.numel(),), "typestr": "|u1", "version": 3, "data": (memory.data_ptr(), False)}

    def __del__(self):
        inbox = self._inbox
        # A process that was forked meanwhile may still see this batch: then its memory is not written again.
        if self._forks == _forks[0] and len(inbox.free) < inbox.keep:
            inbox.free.append(self._number)
        else:
            inbox.segments.pop(self._number, None)
            inbox.forgotten.append(self._number)


class Inbox:
    """Receives the batches of one worker."""

    def __init__(self, channel, keep):
        self.channel, self.keep = channel, keep
        self.segments, self.free, self.forgotten = {}, [], []

    def dropped(self):
        """What the worker's `take_back` takes."""
        free, self.free = self.free, []
        forgotten, self.forgotten = self.forgotten, []
        return free, forgotten

    def receive(self):
        """-> the value, and why there was no shared memory for it, or None"""
        data, number, extra, places = pickle.loads(self.channel.recv_bytes())
        if number is None:
            return pickle.loads(data, buffers=[bytearray(raw) for raw in places]), extra
        if extra:
            self.segments[number] = shared._map(parcels.arrived[0], extra, False)
            forget_arrived()
        memory = numpy.asarray(_Lease(self, number, self.segments[number]))
        return pickle.loads(data, buffers=[memory[start:end] for start, end in places]), None
