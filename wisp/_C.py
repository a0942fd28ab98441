"""What programs take from PyTorch's extension module `torch._C`; Wisp's own is `wisp._core`."""
from wisp._core import Generator, Size, default_generator, device, dtype, layout, memory_format  # noqa: F401
from wisp._core import Tensor as TensorBase  # noqa: F401
from wisp._core import Tensor as _TensorBase  # noqa: F401
from wisp._tensor import _disabled_torch_function_impl  # noqa: F401
from wisp.linalg import LinAlgError as _LinAlgError  # noqa: F401
from wisp.overrides import (  # noqa: F401
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _local,
    has_torch_function_unary,
    has_torch_function_variadic,
)
from wisp.overrides import has_torch_function as _has_torch_function  # noqa: F401

_TensorMeta = type(TensorBase)


def _len_torch_function_stack():
    """How many modes of `torch.overrides` are active."""
    return len(_local.modes)


def _log_api_usage_once(event):
    """Nothing is counted."""


def _get_tracing_state():
    """None: nothing is traced."""
    return None


def _jit_set_profiling_mode(mode):
    """Nothing to set."""
    return False


_jit_set_profiling_executor = _jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_mode
_jit_override_can_fuse_on_gpu = _jit_override_can_fuse_on_cpu = _jit_set_profiling_mode


class PyTorchFileReader:
    """The reader of PyTorch's archives; here `wisp.load` reads them."""

    def __init__(self, *args):
        raise NotImplementedError("PyTorchFileReader: use torch.load, which reads PyTorch's archives")
