"""What programs take from PyTorch's extension module `torch._C`; Wisp's own is `wisp._core`."""

import enum
import sys
import threading
import weakref

from wisp._compat.stubs import fill
from wisp._composites import settings as _settings
from wisp._core import Generator, Size, default_generator, device, dtype, layout, memory_format  # noqa: F401
from wisp._core import Tensor as TensorBase  # noqa: F401
from wisp._core import Tensor as _TensorBase  # noqa: F401
from wisp._tensor import _disabled_torch_function_impl  # noqa: F401
from wisp.linalg import LinAlgError as _LinAlgError  # noqa: F401
from wisp.nn.modules import module as _module
from wisp.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, _local, has_torch_function_unary, has_torch_function_variadic  # noqa: F401
from wisp.overrides import has_torch_function as _has_torch_function  # noqa: F401

_TensorMeta = type(TensorBase)


def _len_torch_function_stack():
    """How many modes of `torch.overrides` are active."""
    return len(_local.modes)


def _is_torch_function_mode_enabled():
    """Whether a mode of `torch.overrides` is active."""
    return bool(_local.modes)


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
    return _module._parse_to(args, kwargs)


_nn, _linalg, _fft, _special, _VariableFunctions = (_Names(name) for name in ("_nn", "_linalg", "_fft", "_special", "_VariableFunctions"))
_nn._parse_to = _parse_to


def _get_deterministic_fill_uninitialized_memory():
    """Whether deterministic mode fills new memory."""
    return _settings._fill_uninitialized_memory()


def _set_deterministic_fill_uninitialized_memory(on):
    """Set it."""
    _settings._fill_uninitialized_memory(on)


def _get_all_dtypes():
    """Every dtype but quantised ones and those of less than 8 bits, also those that no tensor has."""
    import wisp
    from wisp._compat.dtypes import DTYPES

    absent = (value for name, value in DTYPES.items() if name.startswith(("bits", "float4")))
    return list({*(value for value in vars(wisp).values() if isinstance(value, wisp.dtype)), *absent})


def _get_default_device():
    """The default device's name."""
    import wisp

    return str(wisp.get_default_device())


def _get_accelerator(check=False):
    """The accelerator, or the CPU."""
    import wisp

    return wisp.device("cuda" if wisp.cuda.is_available() else "cpu")


def _are_functorch_transforms_active():
    """Whether `vmap` is running."""
    from wisp.func import _batching

    return bool(getattr(_batching, "_level", 0))


class DispatchKey:
    """Names of the layers of PyTorch's dispatcher, which Wisp does not have."""

    CPU, CUDA, Meta, Autograd, AutogradCPU, AutogradCUDA, CompositeExplicitAutograd = range(7)
    CompositeImplicitAutograd, Functionalize, Python, PreDispatch, FuncTorchBatched, FuncTorchVmapMode = range(7, 13)
    Undefined = 13


def _set_grad_enabled(mode):
    """Switch gradients on or off."""
    from wisp import _core

    _core._set_grad_enabled(mode)


class _WeakTensorRef:
    """A reference that does not keep a tensor."""

    def __init__(self, tensor):
        self._reference = weakref.ref(tensor)

    def expired(self):
        """Whether the tensor is gone."""
        return self._reference() is None

    def __call__(self):
        return self._reference()


def _current_graph_task_id():
    """The number of the backward pass that runs, or -1."""
    from wisp import _core

    return _core._current_graph_task_id()


def _current_autograd_node():
    """The node that the backward pass works on, or None."""
    from wisp import _core

    return _core._current_autograd_node()


def _current_graph_task_execution_order():
    """The nodes that the backward pass has still to run, the one under way first."""
    from wisp import _core, autograd

    if _core._current_graph_task_id() >= 0 and autograd.is_multithreading_enabled():
        raise RuntimeError(
            "_current_graph_task_execution_order expects the current backward to be executed with multithreading disabled: run it within "
            "`with torch.autograd.set_multithreading_enabled(False):`"
        )
    return _core._current_graph_task_execution_order()


def _will_engine_execute_node(node):
    """Whether the backward pass that runs executes a node."""
    from wisp import _core

    if isinstance(node, _core.Node) and _core._run_captures_leaf(node):
        raise RuntimeError("_will_engine_execute_node: a leaf was given, and you are currently running autograd.grad(), which runs none")
    return _core._will_engine_execute_node(node)


def is_grad_enabled():
    """Whether operators are recorded."""
    from wisp import _core

    return _core.is_grad_enabled()


def _set_grad_layout_enforcement_enabled(mode):
    """Whether the gradient of a leaf takes the leaf's strides."""
    from wisp import _core

    _core._set_grad_layout_enforced(mode)


def _is_grad_layout_enforcement_enabled():
    """Whether the gradient of a leaf takes the leaf's strides."""
    from wisp import _core

    return _core._grad_layout_enforced()


def _set_fwd_grad_enabled(mode):
    """Whether tangents are seen and propagated."""
    from wisp.autograd import forward_ad

    forward_ad._set_enabled(mode)


def _is_fwd_grad_enabled():
    """Whether tangents are seen and propagated."""
    from wisp.autograd import forward_ad

    return forward_ad._is_fwd_grad_enabled()


_kept = threading.local()


def _stash_obj_in_tls(key, value):
    """Keep an object for this thread."""
    vars(_kept)[key] = value


def _get_obj_in_tls(key):
    """What this thread has kept under a name."""
    return vars(_kept)[key]


def _is_key_in_tls(key):
    """Whether this thread has kept something under a name."""
    return key in vars(_kept)


def _remove_obj_from_tls(key):
    """Forget what this thread has kept under a name."""
    vars(_kept).pop(key, None)


def __getattr__(name):
    if name in ("_DisableTorchDispatch", "_disabled_torch_dispatch_impl"):
        from wisp._tensor import _disabled_torch_dispatch_impl, dispatch

        return _disabled_torch_dispatch_impl if name.startswith("_disabled") else dispatch.no_dispatch
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


fill(sys.modules[__name__], "_C")


def _infer_size(a, b):
    """The shape that two shapes are broadcast to."""
    import wisp

    return wisp.broadcast_shapes(a, b)


_ConvBackend = enum.Enum(
    "_ConvBackend",
    "CudaDepthwise2d CudaDepthwise3d Cudnn CudnnTranspose Empty Miopen MiopenDepthwise MiopenTranspose Mkldnn MkldnnTranspose MkldnnEmpty "
    "NnpackSpatial Overrideable Slow2d Slow3d SlowDilated2d SlowDilated3d SlowTranspose2d SlowTranspose3d Winograd3x3Depthwise Xnnpack2d "
    "Mps MpsTranspose",
)


def _select_conv_backend(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """The kind of a convolution, as PyTorch tells them apart without its vendors' libraries."""
    if input.shape[0] == 0 or input.shape[1] == 0:
        return _ConvBackend.Empty
    dims = max(2, weight.dim() - 2)
    kind = "Transpose" if transposed else "Dilated" if any(d != 1 for d in dilation) else ""
    return _ConvBackend[f"Slow{kind}{dims}d"]
