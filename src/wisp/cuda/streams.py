"""Streams and events of CUDA devices."""

from wisp import _core

_cuda = _core._operators["_cuda"]


class Stream:
    """A queue of work on a device, which runs beside the work of other streams.

    Work is sent to it inside `with wisp.cuda.stream(s):`. A device has 32 of them, which are given out in turn.
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
        if event.cuda_event:  # one that was not recorded has nothing to wait for
            _cuda["stream_wait"](self.cuda_stream, event.cuda_event)

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

    def __enter__(self):
        self._entered = [*getattr(self, "_entered", ()), StreamContext(self)]
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *_):
        self._entered.pop().__exit__()

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
        self.cuda_event, self._index = 0, None

    @property
    def device(self):
        """The device of the stream that it was recorded on."""
        return None if self._index is None else _core.device("cuda", self._index)

    def record(self, stream=None):
        """Happen when the work that `stream` has now is done."""
        if stream is None:
            from wisp.cuda import current_stream

            stream = current_stream()
        if self._index not in (None, stream.device_index):
            raise RuntimeError(f"Event device cuda:{self._index} does not match recording stream's device cuda:{stream.device_index}.")
        if not self.cuda_event:
            self._index = stream.device_index
            self.cuda_event = _cuda["new_event"](self._index, self.timing)
        _cuda["event_record"](self.cuda_event, stream.cuda_stream)

    def wait(self, stream=None):
        """Let later work of `stream` wait for this event."""
        if stream is None:
            from wisp.cuda import current_stream

            stream = current_stream()
        stream.wait_event(self)

    def query(self):
        """Whether it has happened; True as well while it was not recorded."""
        return not self.cuda_event or _cuda["event_query"](self.cuda_event)

    def synchronize(self):
        """Wait until it has happened."""
        if self.cuda_event:
            _cuda["event_synchronize"](self.cuda_event)

    def elapsed_time(self, end_event):
        """Milliseconds from this event to another; both with `enable_timing=True`."""
        if not (self.timing and end_event.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.cuda_event and end_event.cuda_event):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not end_event.query() or not self.query():
            raise RuntimeError("Both events must be completed before calculating elapsed time; call end_event.synchronize() first")
        return _cuda["event_elapsed"](self.cuda_event, end_event.cuda_event)

    def __del__(self):
        if self.cuda_event:
            _cuda["event_destroy"](self.cuda_event)


class StreamContext:
    """A context in which work goes to a stream."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            from wisp.cuda import device

            self._device = device(self.stream.device_index)
            self._device.__enter__()
            self._before = _cuda["current_stream"](self.stream.device_index)
            _cuda["set_stream"](self.stream.device_index, self.stream.cuda_stream)
        return self

    def __exit__(self, *_):
        if self.stream is not None:
            _cuda["set_stream"](self.stream.device_index, self._before)
            self._device.__exit__()


def stream(stream):
    """Send the work of a `with` block to a stream."""
    return StreamContext(stream)
