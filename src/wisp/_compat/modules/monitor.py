"""`torch.monitor`: counters and events that a program writes for itself."""

import contextlib

__all__ = ["Aggregation", "Event", "Stat", "data_value_t", "log_event", "register_event_handler", "unregister_event_handler"]

data_value_t = (int, float, bool, str)
_handlers = []


class Event:
    """A named record with data and a time."""

    def __init__(self, name, timestamp, data):
        self.name, self.timestamp, self.data = name, timestamp, data


class Aggregation:
    """What a statistic computes."""

    SUM, MEAN, COUNT, MAX, MIN, VALUE = "sum", "mean", "count", "max", "min", "value"


class Stat:
    """Numbers that are added up over a window of values."""

    def __init__(self, name, aggregations, window_size, max_samples=None):
        self.name, self.aggregations, self._values = name, list(aggregations), []

    def add(self, v):
        """Add a number."""
        self._values.append(v)

    @property
    def count(self):
        """How many numbers there are."""
        return len(self._values)

    def get(self):
        """The statistics."""
        v = self._values or [0]
        values = {"sum": sum(v), "mean": sum(v) / len(v), "count": len(self._values), "max": max(v), "min": min(v), "value": v[-1]}
        return {kind: values[kind] for kind in self.aggregations}


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


@contextlib.contextmanager
def _WaitCounter(key):
    yield
