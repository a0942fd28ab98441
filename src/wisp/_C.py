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


class _Names:
    """A part of PyTorch's extension module: operators by their public names."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        from wisp._ops import _function

        found = None if name.startswith("__") else _function(name.removeprefix(f"{self._name[1:]}_")) or _function(name)
        if found is None:
            raise AttributeError(f"module 'torch._C.{self._name}' has no attribute {name!r}")
        return found


def _parse_to(*args, **kwargs):
    """(device, dtype, non_blocking, memory_format) of the arguments of `Tensor.to`."""
    from wisp import _core

    found = {"device": None, "dtype": None, "non_blocking": False, "memory_format": None}
    for value in (*args, *kwargs.values()):
        if isinstance(value, _core.Tensor):
            found.update(device=value.device, dtype=value.dtype)
        elif isinstance(value, _core.dtype):
            found["dtype"] = value
        elif isinstance(value, (_core.device, str)):
            found["device"] = _core.device(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            found["device"] = _core.device("cuda", value)
        elif isinstance(value, _core.memory_format):
            found["memory_format"] = value
    found["non_blocking"] = bool(kwargs.get("non_blocking", False))
    return tuple(found.values())


_nn, _linalg, _fft, _special, _VariableFunctions = (_Names(name) for name in ("_nn", "_linalg", "_fft", "_special", "_VariableFunctions"))


_nn._parse_to = _parse_to


def _get_default_device():
    """The default device's name."""
    import wisp

    return str(wisp.get_default_device())


def _get_accelerator(check=False):
    """The accelerator, or the CPU."""
    import wisp

    return wisp.device("cuda" if wisp.cuda.is_available() else "cpu")


def _get_privateuse1_backend_name():
    """The name of a device that nobody defined."""
    return "privateuseone"


def _cuda_isInBadFork():
    """False: GPUs are found on first use."""
    return False


def _are_functorch_transforms_active():
    """Whether `vmap` is running."""
    from wisp.func import _batching

    return bool(getattr(_batching, "_level", 0))


def _get_tracing_state_value():
    """None: nothing is traced."""
    return None


class Graph:
    """The class of TorchScript's graphs; none is made."""


class Value:
    """The class of values of TorchScript's graphs; none is made."""


class ListType:
    """The class of list types in TorchScript; none is made."""


class ScriptModule:
    """The class of TorchScript's compiled modules; none is made."""


class ScriptFunction:
    """The class of TorchScript's compiled functions; none is made."""


class FunctionSchema:
    """The class of operators' schemas; none is made."""


class DispatchKey:
    """Names of the layers of PyTorch's dispatcher, which Wisp does not have."""

    CPU, CUDA, Meta, Autograd, AutogradCPU, AutogradCUDA, CompositeExplicitAutograd = range(7)
    CompositeImplicitAutograd, Functionalize, Python, PreDispatch, FuncTorchBatched, FuncTorchVmapMode = range(7, 13)
    Undefined = 13


def _jit_pass_inline(graph):
    """Nothing to do."""


def _set_grad_enabled(mode):
    """Switch gradients on or off."""
    from wisp import _core

    _core._set_grad_enabled(mode)


_has_xpu = _has_mps = _has_mkldnn = _has_mkl = _has_xnnpack = False
_has_lapack = _has_openmp = True
_GLIBCXX_USE_CXX11_ABI = True


def __getattr__(name):
    if name in ("_has_cuda", "has_cuda"):
        import wisp

        return wisp.cuda.is_available()
    if name == "Future":
        from wisp.futures import Future

        return Future
    if name in ("Stream", "Event"):
        from wisp import cuda

        return getattr(cuda, name)
    raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
