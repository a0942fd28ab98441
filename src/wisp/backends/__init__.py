"""Switches and facts of the backends, under PyTorch's names; each is a module (`import torch.backends.cudnn as cudnn`)."""

import collections as _collections
import contextlib as _contextlib
import sys as _sys
import types as _types

from wisp import _core as _c


def _module(name, doc, **values):
    module = _types.ModuleType(f"{__name__}.{name}", doc)
    module.__dict__.update(values)
    _sys.modules[module.__name__] = module
    return module


def _no():
    return False


def _set(value):
    """Remembered nowhere: there is one implementation."""


def _context(*args, **kwargs):
    return _contextlib.nullcontext()


def _version():
    return None


def flags_frozen():
    """Whether switches may only be set by their `flags()` contexts: they may always be set."""
    return False


def disable_global_flags():
    """PyTorch's own tests forbid bare assignments to switches by it; here it changes nothing."""


class _Matmul(_types.SimpleNamespace):
    """Products on the GPU: whether float32 ones may use TF32."""

    @property
    def allow_tf32(self):
        return _c._operators["_cuda"]["tf32_allowed"]()

    @allow_tf32.setter
    def allow_tf32(self, allowed):
        _c._operators["_cuda"]["allow_tf32"](bool(allowed))


cpu = _module("cpu", "The CPU's instruction set.", get_cpu_capability=lambda: _c._cpu_capability().upper())


class _Cudnn(_types.ModuleType):
    """cuDNN's switches: which algorithms convolutions on the GPU may use."""

    enabled, benchmark_limit, fastest, verbose = True, 10, False, False
    conv, rnn = _types.SimpleNamespace(fp32_precision="tf32"), _types.SimpleNamespace(fp32_precision="tf32")

    def _switch(place):
        def read(self):
            return _c._operators["_cuda"]["conv_settings"]()[place]

        def write(self, value):
            settings = list(_c._operators["_cuda"]["conv_settings"]())
            settings[place] = bool(value)
            _c._operators["_cuda"]["set_conv_settings"](*settings)

        return property(read, write)

    benchmark, deterministic, allow_tf32 = _switch(0), _switch(1), _switch(2)

    def version(self=None):
        """cuDNN's version as one number, None where it is not found."""
        return (_c._operators["_cuda"]["cudnn_version"]() or None) if _c._operators["_cuda"]["device_count"]() else None

    def is_available(self=None):
        """Whether there is a GPU and cuDNN for it."""
        return cudnn.version() is not None

    def is_acceptable(self, tensor):
        """Whether cuDNN can work on a tensor."""
        return tensor.is_cuda and tensor.dtype.is_floating_point

    def set_flags(
        self, _enabled=None, _benchmark=None, _benchmark_limit=None, _deterministic=None, _allow_tf32=None, _fp32_precision="none"
    ):
        """Set several switches and give their values before."""
        before = (self.enabled, self.benchmark, self.benchmark_limit, self.deterministic, self.allow_tf32)
        for name, value in zip(
            ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32"),
            (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32),
        ):
            if value is not None:
                setattr(self, name, value)
        return before

    @_contextlib.contextmanager
    def flags(self, enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True, fp32_precision="none"):
        """Switches for the length of a `with` block."""
        before = self.set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
        try:
            yield
        finally:
            self.set_flags(*before)


cudnn = _Cudnn(f"{__name__}.cudnn", _Cudnn.__doc__)
_sys.modules[cudnn.__name__] = cudnn
cuda = _module(
    "cuda",
    "CUDA's switches.",
    is_built=lambda: True,
    sdp_kernel=_context,
    enable_flash_sdp=_set,
    enable_math_sdp=_set,
    enable_mem_efficient_sdp=_set,
    enable_cudnn_sdp=_set,
    flash_sdp_enabled=_no,
    mem_efficient_sdp_enabled=_no,
    cudnn_sdp_enabled=_no,
    math_sdp_enabled=lambda: True,
    SDPAParams=_collections.namedtuple("SDPAParams", "query key value attn_mask dropout is_causal enable_gqa"),
    is_flash_attention_available=_no,
    can_use_flash_attention=lambda *a, **k: False,
    can_use_efficient_attention=lambda *a, **k: False,
    preferred_linalg_library=lambda *a: "default",
    preferred_blas_library=lambda *a: "default",
    cufft_plan_cache=_types.SimpleNamespace(size=0, max_size=0, clear=lambda: None),
    matmul=_Matmul(allow_fp16_reduced_precision_reduction=False, allow_bf16_reduced_precision_reduction=False, fp32_precision="ieee"),
)
mps = _module(
    "mps", "Apple's GPUs: none.", is_available=_no, is_built=_no, is_macos_or_newer=lambda *a: False, is_macos13_or_newer=lambda *a: False
)
mkl = _module("mkl", "Intel's MKL: not used.", is_available=_no, verbose=_context)
mkldnn = _module(
    "mkldnn",
    "oneDNN: not used.",
    is_available=_no,
    enabled=False,
    flags=_context,
    verbose=_context,
    **{name: _types.SimpleNamespace(fp32_precision="none") for name in ("matmul", "conv", "rnn")},
)
openmp = _module("openmp", "OpenMP: not used, Wisp has its own threads.", is_available=_no)
opt_einsum = _module("opt_einsum", "The order of contractions in einsum.", is_available=_no, enabled=True, strategy="auto")
quantized = _module(
    "quantized",
    "For which library's habits quantization chooses its settings; Wisp computes the same way for all.",
    engine="x86",
    supported_engines=["qnnpack", "none", "onednn", "x86", "fbgemm"],
)
xnnpack = _module("xnnpack", "XNNPACK: not used.", enabled=False)
cusparselt = _module("cusparselt", "cuSPARSELt: not used.", is_available=_no, version=_version)
nnpack = _module("nnpack", "NNPACK: not used.", is_available=_no, set_flags=lambda enabled: (False,), flags=_context)


def __getattr__(name):
    if name == "fp32_precision":
        return "ieee"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _sdp_backend():
    from wisp.nn.attention import SDPBackend

    return SDPBackend


cuda.__getattr__ = lambda name: _sdp_backend() if name == "SDPBackend" else _lacking(name)


def _lacking(name):
    raise AttributeError(f"module 'wisp.backends.cuda' has no attribute {name!r}")
