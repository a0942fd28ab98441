"""Wisp: PyTorch's programming model and API, rebuilt small, readable and fast.

>>> import wisp
>>> x = wisp.ones(3, requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 2., 2.])
"""

import importlib as _importlib
import math as _math
import os as _os

from wisp import _compat, _core, _reference
from wisp._core import *  # noqa: F403
from wisp._core import Generator, Size, Tensor, default_generator, device, dtype, layout, memory_format  # noqa: F401
from wisp._core import _mkldnn as _mkldnn  # a layout that no tensor has

globals().update({name: f for name, f in _core._operators[""].items() if not name.startswith("_")})
bool = _core.bool
_core._set_package_directory(_os.path.dirname(__file__) + _os.sep)

from wisp import _composites, _tensor  # noqa: E402
from wisp._composites import settings as _settings  # noqa: E402
from wisp._tensor import legacy as _legacy  # noqa: E402
from wisp.autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402, F401

_tensor.install()
_composites.install(globals())
globals().update(_legacy.TYPES)
globals().update({name: getattr(_settings, name) for name in _settings.__all__})

__version__ = "0.1.0"
inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e
newaxis = None
has_lapack = has_spectral = True
has_mkl = has_openmp = has_mps = has_mkldnn = False
DeviceObjType = device
legacy_contiguous_format = _core.contiguous_format

# Loaded on first use: `import wisp` stays quick.
_SUBMODULES = _compat.NAMES | set(
    """
    _tensor amp ao autograd backends compiler cuda distributed distributions export fft func fx hub jit library linalg masked
    multiprocessing nested nn onnx optim overrides profiler progress random serialization signal sparse special testing utils
    vision viz""".split()
)
_HOMES = {
    "serialization": "save load",
    "compiler": "compile",
    "_tensor.printing": "set_printoptions get_printoptions",
    "_tensor.limits": "finfo iinfo",
    "utils.dlpack": "from_dlpack to_dlpack",
    "amp": "autocast GradScaler",
    "amp.autocast_mode": """
        is_autocast_enabled set_autocast_enabled get_autocast_dtype set_autocast_dtype is_autocast_cpu_enabled set_autocast_cpu_enabled
        set_autocast_cpu_dtype get_autocast_gpu_dtype set_autocast_gpu_dtype autocast_increment_nesting autocast_decrement_nesting
        get_autocast_cpu_dtype is_autocast_cache_enabled set_autocast_cache_enabled clear_autocast_cache""",
    "func": "vmap",
    "nn.functional": "rrelu rrelu_ cosine_similarity pairwise_distance pdist",
    "overrides": "DisableTorchFunction DisableTorchFunctionSubclass",
    "cuda": "Stream Event",
    "jit": "fork wait ScriptModule ScriptFunction JITException",
    "random": "manual_seed seed initial_seed get_rng_state set_rng_state thread_safe_generator",
    "futures": "Future",
    "_ops": "ops classes",
    "storage": """
        UntypedStorage TypedStorage Storage StorageBase FloatStorage DoubleStorage HalfStorage BFloat16Storage ByteStorage CharStorage
        ShortStorage IntStorage LongStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage""",
    "sparse": """
        sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor""",
    "_C": """
        PyTorchFileReader PyTorchFileWriter Graph Value Node ScriptObject ScriptMethod ErrorReport FloatType IntType StringType BoolType
        TensorType ListType TupleType OptionalType Type""",
    "_compat.symbols": """
        SymInt SymFloat SymBool sym_int sym_float sym_not sym_max sym_min sym_ite sym_sum OutOfMemoryError AcceleratorError""",
    "_compile": "_disable_dynamo",
    "_compat.helpers": "Tag eig lstsq matrix_rank solve symeig",
    "_compat.schema": "parse_schema AggregationType SUM AVG FatalError JITException FunctionSchema Argument",
    "_tensor.quantized": """
        quantize_per_tensor quantize_per_channel dequantize int_repr q_scale q_zero_point qscheme per_tensor_affine per_channel_affine
        per_tensor_symmetric per_channel_symmetric per_channel_affine_float_qparams""",
    "_compat.dtypes": " ".join(_compat.ABSENT_DTYPES),
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name):
    if name in _SUBMODULES:
        try:
            return _importlib.import_module("wisp." + name)
        except ModuleNotFoundError as error:
            if error.name != "wisp." + name:
                raise
    if name in _LAZY:
        value = getattr(_importlib.import_module("wisp." + _LAZY[name]), name)
        globals()[name] = value
        return value
    if name in ("has_cuda", "has_cudnn"):  # names from before torch.backends
        return _importlib.import_module("wisp.backends").cuda.is_built()
    if name == "__all__":  # made when asked for, as it needs no list of its own
        names = (n for n in __dir__() if not n.startswith("_") and n not in _SUBMODULES)
        return [n for n in names if not isinstance(globals().get(n), type(_os))]
    raise AttributeError(f"module 'wisp' has no attribute {name!r}")


def __dir__():
    return sorted(set(globals()) | _SUBMODULES | set(_LAZY))


_reference.attach(__name__, globals())
_reference.attach("Tensor", vars(Tensor))
