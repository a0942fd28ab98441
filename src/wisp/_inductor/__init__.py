"""Settings of PyTorch's compiler back end that programs change; Wisp runs eagerly."""

from wisp import _config

config = _config.make(__name__)
