"""`torch.quantization`, the older name of `torch.ao.quantization`."""

from wisp.ao.quantization import *  # noqa: F403
from wisp.ao.quantization import float16_dynamic_qconfig, fuse_modules_qat, per_channel_dynamic_qconfig  # noqa: F401
