"""TensorBoard's event files: Protocol Buffers in records framed by lengths and checksums.

The numbers of the fields are those of TensorBoard's event.proto, summary.proto, tensor.proto, graph.proto and of the protos of its
plugins hparams, pr_curves and custom_scalars.
"""

import os
import socket
import struct
import threading
import time

from wisp import _core
from wisp.utils._protobuf import double, message, packed, text, varint

__all__ = ["EventFile", "metadata", "value"]


# --- summaries


def metadata(plugin, content=b""):
    """Which plugin of TensorBoard shows a value."""
    return message(9, message(1, text(1, plugin) + message(2, content)))


def value(tag, *fields):
    """A summary's value: a tag and what is shown under it."""
    return message(1, text(1, tag) + b"".join(fields))


def _shape(sizes):
    return message(2, b"".join(message(2, varint(1, size)) for size in sizes)) if sizes else b""


def float_tensor(numbers, *shape):
    return message(8, varint(1, 1) + _shape(shape) + packed(5, numbers, "f"))


def string_tensor(content, *shape):
    return message(8, varint(1, 7) + _shape(shape) + message(8, content))


# --- files


def _masked(data):
    crc = _core._crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class EventFile:
    """A file of events in a folder. Writes are collected and reach the disk after `max_queue` events or `flush_secs` seconds."""

    _made = 0

    def __init__(self, folder, max_queue=10, flush_secs=120, suffix=""):
        os.makedirs(folder, exist_ok=True)
        EventFile._made += 1
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{EventFile._made}{suffix}"
        self.path = os.path.join(folder, name)
        self._file = open(self.path, "ab")
        self._lock = threading.Lock()
        self._max_queue, self._flush_secs = max_queue, flush_secs
        self._waiting, self._flushed = 0, time.monotonic()
        self.add(text(3, "brain.Event:2"))
        self.flush()

    def add(self, content, step=None, walltime=None):
        """Write an event: what it is, its step and its time."""
        event = double(1, time.time() if walltime is None else walltime)
        if step is not None:
            event += varint(2, step)
        event += content
        length = struct.pack("<Q", len(event))
        with self._lock:
            self._file.write(length + _masked(length) + event + _masked(event))
            self._waiting += 1
        if self._waiting > self._max_queue or time.monotonic() - self._flushed > self._flush_secs:
            self.flush()

    def flush(self):
        with self._lock:
            if not self._file.closed:
                self._file.flush()
            self._waiting, self._flushed = 0, time.monotonic()

    def close(self):
        with self._lock:
            self._file.close()
