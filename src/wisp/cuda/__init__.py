"""CUDA devices: what there is, streams, events, memory and random numbers, with PyTorch's names.

NVIDIA's libraries are opened on first use; without a GPU `is_available()` is False and everything else says what is missing.

>>> import wisp
>>> wisp.cuda.is_available() == (wisp.cuda.device_count() > 0)
True
"""

import collections as _collections
import ctypes as _ctypes

import wisp as _wisp
from wisp import _core, _reference
from wisp._compat.symbols import AcceleratorError, OutOfMemoryError  # noqa: F401
from wisp.cuda.graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables  # noqa: F401
from wisp.cuda.memory import *  # noqa: F403
from wisp.cuda.nvml import clock_rate, list_gpu_processes, memory_usage, power_draw, temperature, utilization  # noqa: F401
from wisp.cuda.streams import Event, ExternalStream, Stream, StreamContext  # noqa: F401
from wisp.cuda.streams import stream as stream

_cuda = _core._operators["_cuda"]


def is_available():
    """Whether a CUDA device can be used.

    >>> isinstance(wisp.cuda.is_available(), bool)
    True
    """
    return _cuda["device_count"]() > 0


def device_count():
    """How many CUDA devices there are."""
    return _cuda["device_count"]()


_used = False


def init():
    """Start CUDA now rather than with the first tensor."""
    global _used
    _cuda["current_device"]()
    _used = True


def is_initialized():
    """Whether a device has been used in this process."""
    return is_available() and _used


def _lazy_call(callable, **options):
    """Call a function once CUDA is there, which is now."""
    if is_available():
        callable()


def _lazy_init():
    """Start CUDA now."""
    init()


def _sleep(cycles):
    """Let the device be busy: it is not."""


def _index(device=None):
    """The number of a device given as such, as a name or as None, which is the current one."""
    if device is None:
        return _cuda["current_device"]()
    if isinstance(device, int):
        return device
    found = _wisp.device(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return _cuda["current_device"]() if found.index is None else found.index


def current_device():
    """The number of the device that new tensors on "cuda" go to."""
    return _cuda["current_device"]()


def set_device(device):
    """Make a device the current one; a negative number changes nothing."""
    index = _index(device)
    if index >= 0:
        _cuda["set_device"](index)


class device:
    """A context in which another device is the current one; None and negative numbers change nothing."""

    def __init__(self, device):
        self.idx = -1 if device is None else _index(device)

    def __enter__(self):
        if self.idx >= 0:
            self._before = current_device()
            set_device(self.idx)
        return self

    def __exit__(self, *_):
        if self.idx >= 0:
            set_device(self._before)


class device_of(device):
    """A context in which the device of a tensor is the current one."""

    def __init__(self, obj):
        super().__init__(obj.device if obj.is_cuda else None)


def synchronize(device=None):
    """Wait for all work on a device."""
    _cuda["synchronize"](_index(device))


def current_stream(device=None):
    """The stream that work on a device goes to."""
    index = _index(device)
    return Stream._of(_cuda["current_stream"](index), index)


def default_stream(device=None):
    """The stream that work goes to unless another is chosen."""
    index = _index(device)
    return Stream._of(_cuda["default_stream"](index), index)


def set_stream(stream):
    """Send work to a stream from now on, and make its device the current one."""
    if stream is not None:
        set_device(stream.device_index)
        _cuda["set_stream"](stream.device_index, stream.cuda_stream)


_Properties = _collections.namedtuple(
    "_CudaDeviceProperties", "name major minor total_memory multi_processor_count L2_cache_size shared_memory_per_block_optin clock_rate"
)


def get_device_properties(device=None):
    """Name, compute capability, memory and number of processors of a device."""
    name, major, minor, processors, shared, l2, clock, memory = _cuda["properties"](_index(device))
    return _Properties(name, major, minor, memory, processors, l2, shared, clock)


def get_device_name(device=None):
    """The device's name, such as "NVIDIA H200"."""
    return get_device_properties(device).name


def get_device_capability(device=None):
    """The compute capability, such as (9, 0)."""
    found = get_device_properties(device)
    return found.major, found.minor


def get_arch_list():
    """The architectures that kernels are compiled for: that of the devices that are there."""
    return sorted({"sm_%d%d" % get_device_capability(i) for i in range(device_count())})


def is_bf16_supported(including_emulation=True):
    """Whether the current device computes in bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported():
    """Whether the current device has products in TF32."""
    return is_available() and get_device_capability()[0] >= 8


def get_gencode_flags():
    """The options that NVIDIA's compiler takes for the architectures of `get_arch_list`."""
    numbers = [arch.removeprefix("sm_") for arch in get_arch_list()]
    return " ".join(f"-gencode compute=compute_{number},code=sm_{number}" for number in numbers)


has_half, has_magma = True, False


class cudaStatus:
    """The numbers of two results of CUDA's runtime."""

    SUCCESS, ERROR_NOT_READY = 0, 34


class DeferredCudaCallError(Exception):
    """A call that waited for CUDA to start has failed."""


class _Runtime:
    """Some functions of CUDA's runtime, by its names: each returns the number of an error, 0 for none, as those do."""

    cudaError = cudaStatus

    def __init__(self):
        self._driver = _ctypes.CDLL("libcuda.so.1")

    def cudaMemGetInfo(self, device):
        """(free, total) bytes of a device."""
        return mem_get_info(device)  # noqa: F405

    def cudaHostRegister(self, address, size, flags):
        """Pin memory of the host that another library allocated."""
        return self._driver.cuMemHostRegister_v2(_ctypes.c_void_p(address), _ctypes.c_size_t(size), _ctypes.c_uint(flags))

    def cudaHostUnregister(self, address):
        """Pin it no longer."""
        return self._driver.cuMemHostUnregister(_ctypes.c_void_p(address))

    def cudaProfilerStart(self):
        """Let a profiler that is attached begin."""
        return self._driver.cuProfilerStart()

    def cudaProfilerStop(self):
        """Let a profiler that is attached end."""
        return self._driver.cuProfilerStop()

    def cudaGetErrorString(self, error):
        """What a number means."""
        text = _ctypes.c_char_p()
        self._driver.cuGetErrorString(_ctypes.c_int(int(error)), _ctypes.byref(text))
        return (text.value or b"unrecognized error code").decode()


def cudart():
    """Functions of CUDA's runtime: memory of a device, pinning, the profiler's range, the texts of errors."""
    init()
    return _Runtime()


def check_error(res):
    """Raise CudaError for a result of CUDA's runtime other than 0."""
    if res != 0:
        raise CudaError(res)


class CudaError(RuntimeError):
    """An error of CUDA, by its number."""

    def __init__(self, code):
        super().__init__(f"CUDA error {code}")


def get_stream_from_external(data_ptr, device=None):
    """A stream that another library made, by its address."""
    return ExternalStream(data_ptr, device)


def can_device_access_peer(device, peer_device):
    """Whether tensors can be copied between two devices without the host."""
    return _index(device) != _index(peer_device)


# --- random numbers: one generator serves all devices, so that the same seed gives the same numbers everywhere --------------


def manual_seed(seed):
    """Set the seed of the generator, which the CPU and all devices share."""
    if is_available():
        _wisp.manual_seed(seed)


manual_seed_all = manual_seed


def seed():
    """Set a random seed."""
    return _wisp.seed()


seed_all = seed


def initial_seed():
    """The seed of the generator."""
    return _wisp.initial_seed()


def get_rng_state(device="cuda"):
    """The state of the generator."""
    return _wisp.get_rng_state()


def set_rng_state(new_state, device="cuda"):
    """Restore what `get_rng_state` returned."""
    _wisp.set_rng_state(new_state)


def get_rng_state_all():
    """The state of the generator for each device."""
    return [_wisp.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states):
    """Restore what `get_rng_state_all` returned."""
    for state in new_states[:1]:
        _wisp.set_rng_state(state)


def get_sync_debug_mode():
    """What an operator does that makes the host wait for the GPU: 0 nothing, 1 warn, 2 raise."""
    return _cuda["sync_debug_mode"]()


def set_sync_debug_mode(debug_mode):
    """Have operators that make the host wait for the GPU (reading a value, copying to and from pageable memory) warn or raise, to find
    them."""
    modes = ("default", "warn", "error")
    if debug_mode not in (*modes, 0, 1, 2):
        raise RuntimeError(f"set_sync_debug_mode: expected one of `default`, `warn`, `error` or 0, 1, 2, got {debug_mode!r}")
    _cuda["set_sync_debug_mode"](modes.index(debug_mode) if isinstance(debug_mode, str) else int(debug_mode))


def current_blas_handle():
    """The handle of cuBLAS, as a number, for libraries that call it on the current stream."""
    return _cuda["library_handles"](_index())[0]


def current_solver_handle():
    """The handle of cuSOLVER, as a number, for libraries that call it on the current stream."""
    return _cuda["library_handles"](_index())[1]


class GreenContext:
    """A part of a GPU's multiprocessors as a device of its own: not available, its functions raise NotImplementedError."""

    @staticmethod
    def create(*, num_sms=None, workqueue_scope=None, workqueue_concurrency_limit=None, device_id=None):
        """Not available, raises NotImplementedError."""
        raise NotImplementedError(
            "GreenContext.create: a GPU is used whole here; give work to streams of different priority instead (wisp.cuda.Stream)"
        )

    @staticmethod
    def max_workqueue_concurrency(device_id=None):
        """Not available, raises NotImplementedError."""
        raise NotImplementedError("GreenContext.max_workqueue_concurrency: a GPU is used whole here, there are no queues to limit")


from wisp.cuda import amp, nccl, nvtx, profiler  # noqa: E402, F401

_LAZY = [f"{kind}Tensor" for kind in "Float Double Half BFloat16 Int Long Short Char Byte Bool".split()]  # below, for stubs


def __getattr__(name):
    """The older constructors: `wisp.cuda.FloatTensor(2, 3)`; the generators of all devices, which are one."""
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return (_wisp.default_generator,) * device_count()
    if name.endswith("Tensor"):
        from wisp._tensor.legacy import CUDA_TYPES

        if name in CUDA_TYPES:
            return CUDA_TYPES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
