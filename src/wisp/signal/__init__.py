"""Signal processing: window functions."""

from wisp.signal import windows

__all__ = ["windows"]
