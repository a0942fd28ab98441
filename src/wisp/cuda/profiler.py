"""NVIDIA's profiler: nothing is started; use `torch.profiler`."""

import contextlib

__all__ = ["init", "profile", "start", "stop"]


def init(output_file, flags=None, output_mode="key_value"):
    """Nothing to set."""


def start():
    """Nothing is started."""


def stop():
    """Nothing is stopped."""


@contextlib.contextmanager
def profile():
    """A context that changes nothing."""
    yield
