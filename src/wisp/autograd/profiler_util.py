"""The profiler's events by their inner module."""

from wisp.profiler import EventList, FunctionEvent, FunctionEventAvg  # noqa: F401
