"""Streams and events of CUDA devices."""

from wisp import _core

_cuda = _core._operators["_cuda"]


class Stream:
    """A queue of work on a device, which runs beside the work of other streams.

    Work is sent to it inside `with wisp.cuda.stream(s):`.
    """

    def __init__(self, device=None, priority=0, **kwargs):
        from wisp.cuda import _index

        self.device_index = _index(device)
        self.cuda_stream = _cuda["new_stream"](self.device_index, priority)
        self.priority = priority

    @classmethod
    def _of(cls, handle, index):
        self = cls.__new__(cls)
        self.cuda_stream, self.device_index, self.priority = handle, index, 0
        return self

    @property
    def device(self):
        return _core.device("cuda", self.device_index)

    def synchronize(self):
        """Wait for the work that was sent so far."""
        _cuda["stream_synchronize"](self.cuda_stream)

    def query(self):
        """Whether all work that was sent is done."""
        return _cuda["stream_query"](self.cuda_stream)

    def wait_event(self, event):
        """Let later work of this stream wait for an event."""
        _cuda["stream_wait"](self.cuda_stream, event._handle(self.device_index))

    def wait_stream(self, stream):
        """Let later work of this stream wait for the work that another has now."""
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        """An event that happens when the work sent so far is done."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other):
        return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (other.cuda_stream, other.device_index)

    def __hash__(self):
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self):
        return f"<wisp.cuda.Stream device=cuda:{self.device_index} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its address."""

    def __init__(self, stream_ptr, device=None, **kwargs):
        from wisp.cuda import _index

        self.cuda_stream, self.device_index, self.priority = stream_ptr, _index(device), 0


class Event:
    """A mark in a stream: to wait for, and to take times between."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self.timing = enable_timing
        self.cuda_event = 0

    def _handle(self, index=None):
        if not self.cuda_event:
            self.cuda_event = _cuda["new_event"](self.timing)
        return self.cuda_event

    def record(self, stream=None):
        """Happen when the work that `stream` has now is done."""
        if stream is None:
            from wisp.cuda import current_stream

            stream = current_stream()
        _cuda["event_record"](self._handle(), stream.cuda_stream)

    def wait(self, stream=None):
        """Let later work of `stream` wait for this event."""
        if stream is None:
            from wisp.cuda import current_stream

            stream = current_stream()
        stream.wait_event(self)

    def query(self):
        """Whether it has happened."""
        return _cuda["event_query"](self._handle())

    def synchronize(self):
        """Wait until it has happened."""
        _cuda["event_synchronize"](self._handle())

    def elapsed_time(self, end_event):
        """Milliseconds from this event to another; both with `enable_timing=True`."""
        return _cuda["event_elapsed"](self._handle(), end_event._handle())

    def __del__(self):
        if self.cuda_event:
            _cuda["event_destroy"](self.cuda_event)


class StreamContext:
    """A context in which work goes to a stream."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self._before = _cuda["current_stream"](self.stream.device_index)
            _cuda["set_stream"](self.stream.device_index, self.stream.cuda_stream)
        return self

    def __exit__(self, *_):
        if self.stream is not None:
            _cuda["set_stream"](self.stream.device_index, self._before)


def stream(stream):
    """Send the work of a `with` block to a stream."""
    return StreamContext(stream)
