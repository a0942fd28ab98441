"""Finding the operation whose backward fails or makes a NaN."""

import warnings

from wisp import _core

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class _AnomalyMode:
    def _switch(self, mode, check_nan):
        self.prev = _core.is_anomaly_enabled(), _core.is_anomaly_check_nan_enabled()
        self.mode, self.check_nan = mode, check_nan

    def __enter__(self):
        _core._set_detect_anomaly(self.mode, self.check_nan)

    def __exit__(self, *_):
        _core._set_detect_anomaly(*self.prev)


class detect_anomaly(_AnomalyMode):
    """Inside, an error in backward shows the forward line it belongs to, and a NaN in a gradient is an error."""

    def __init__(self, check_nan=True):
        self._switch(True, check_nan)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            stacklevel=2,
        )


class set_detect_anomaly(_AnomalyMode):
    """Turns anomaly mode on or off at once; as a context manager, until its end."""

    def __init__(self, mode, check_nan=True):
        self._switch(mode, check_nan)
        _core._set_detect_anomaly(mode, check_nan)
