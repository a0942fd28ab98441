"""`torch.mps` for programs that ask: Wisp has no MPS backend, so nothing is available."""

from wisp._absent_backend import *  # noqa: F403
from wisp._absent_backend import __all__, manual_seed_all  # noqa: F401
