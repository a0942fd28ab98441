"""`torch.monitor`: counters and events that a program writes for itself."""

import contextlib
import datetime
import enum

__all__ = [
    "Aggregation",
    "Event",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

data_value_t = (int, float, bool, str)
_handlers = []


class Event:
    """A named record with data and a time."""

    def __init__(self, name, timestamp, data):
        self.name, self.timestamp, self.data = name, timestamp, data


class Aggregation(enum.Enum):
    """What a statistic computes."""

    VALUE, MEAN, COUNT, SUM, MAX, MIN = 0, 2, 3, 4, 5, 6


_COMPUTED = {
    Aggregation.VALUE: lambda v: v[-1],
    Aggregation.MEAN: lambda v: sum(v) / len(v),
    Aggregation.COUNT: lambda v: float(len(v)),
    Aggregation.SUM: sum,
    Aggregation.MAX: max,
    Aggregation.MIN: min,
}


class Stat:
    """Numbers of one window of time, which is logged as an event at its end, or, of `max_samples`, as soon as there are so many: what
    comes later in that window is not counted.

    >>> from datetime import timedelta
    >>> from wisp.monitor import Aggregation, Stat
    >>> stat = Stat("loss", [Aggregation.SUM, Aggregation.COUNT], timedelta(hours=1), max_samples=2)
    >>> stat.add(1)
    >>> stat.add(2)
    >>> stat.count, stat.get()[Aggregation.SUM]
    (0, 3.0)
    """

    def __init__(self, name, aggregations, window_size, max_samples=2**63 - 1):
        self.name, self._window, self._most, self._values = name, window_size, max_samples, []
        self._full = False
        self._last = dict.fromkeys(aggregations, 0.0)
        self._begun = datetime.datetime.now()

    def add(self, v):
        """Add a number to the window; one whose time is over is logged first."""
        value = float(v)
        if datetime.datetime.now() - self._begun >= self._window:
            self._log()
            self._begun, self._full = datetime.datetime.now(), False
        if self._full:
            return
        self._values.append(value)
        if len(self._values) >= self._most:
            self._full = True
            self._log()

    def _log(self):
        if not self._values:
            return
        values, self._values = self._values, []
        self._last = {kind: _COMPUTED[kind](values) for kind in self._last}
        data = {f"{self.name}.{kind.name.lower()}": value for kind, value in self._last.items()}
        log_event(Event("torch.monitor.Stat", datetime.datetime.now(), data))

    def __del__(self):
        with contextlib.suppress(Exception):  # the interpreter may be at its end
            self._log()

    @property
    def count(self):
        """How many numbers are in the window."""
        return len(self._values)

    def get(self):
        """The statistics of the last window that ended."""
        return dict(self._last)


def register_event_handler(callback):
    """Call a function for every event; returns the handle."""
    _handlers.append(callback)
    return callback


def unregister_event_handler(handler):
    """Call the function no more."""
    _handlers.remove(handler)


def log_event(event):
    """Tell all handlers."""
    for handler in list(_handlers):
        handler(event)


class TensorboardEventHandler:
    """Writes the numbers of events to a SummaryWriter, each as a scalar of its name."""

    def __init__(self, writer):
        self._writer = writer

    def __call__(self, event):
        for name, value in event.data.items():
            if isinstance(value, (int, float)):
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())


class _WaitCounter:
    """A named counter of waiting, which nobody reads."""

    def __init__(self, key):
        self.key = key

    def guard(self):
        """The context in which a program waits."""
        return contextlib.nullcontext()
