"""The profiler by its inner module."""

from wisp.profiler import *  # noqa: F403
from wisp.profiler import profile  # noqa: F401
