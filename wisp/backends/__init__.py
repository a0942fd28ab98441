"""Switches and facts of the backends, under PyTorch's names; each is a module (`import torch.backends.cudnn as cudnn`)."""
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


class _Matmul(_types.SimpleNamespace):
    """Products on the GPU: whether float32 ones may use TF32."""

    @property
    def allow_tf32(self):
        return _c._operators["_cuda"]["tf32_allowed"]()

    @allow_tf32.setter
    def allow_tf32(self, allowed):
        _c._operators["_cuda"]["allow_tf32"](bool(allowed))


cpu = _module("cpu", "The CPU's instruction set.", get_cpu_capability=lambda: _c._cpu_capability().upper())
cudnn = _module("cudnn", "cuDNN's switches: kept, Wisp's results are deterministic anyway.", enabled=True, benchmark=False,
                benchmark_limit=10, deterministic=True, allow_tf32=False, fastest=False, verbose=False, is_available=_no,
                version=_version, flags=_context, is_acceptable=lambda tensor: False, set_flags=lambda *a, **k: (True,) * 4,
                conv=_types.SimpleNamespace(fp32_precision="ieee"), rnn=_types.SimpleNamespace(fp32_precision="ieee"))
cuda = _module("cuda", "CUDA's switches.", is_built=lambda: True, sdp_kernel=_context, enable_flash_sdp=_set, enable_math_sdp=_set,
               enable_mem_efficient_sdp=_set, enable_cudnn_sdp=_set, flash_sdp_enabled=_no, mem_efficient_sdp_enabled=_no,
               cudnn_sdp_enabled=_no, math_sdp_enabled=lambda: True, can_use_flash_attention=lambda *a, **k: False,
               can_use_efficient_attention=lambda *a, **k: False, preferred_linalg_library=lambda *a: "default",
               cufft_plan_cache=_types.SimpleNamespace(size=0, max_size=0, clear=lambda: None),
               matmul=_Matmul(allow_fp16_reduced_precision_reduction=False,
                                             allow_bf16_reduced_precision_reduction=False, fp32_precision="ieee"))
mps = _module("mps", "Apple's GPUs: none.", is_available=_no, is_built=_no, is_macos_or_newer=lambda *a: False,
              is_macos13_or_newer=lambda *a: False)
mkl = _module("mkl", "Intel's MKL: not used.", is_available=_no, verbose=_context)
mkldnn = _module("mkldnn", "oneDNN: not used.", is_available=_no, enabled=False, flags=_context, verbose=_context)
openmp = _module("openmp", "OpenMP: not used, Wisp has its own threads.", is_available=_no)
opt_einsum = _module("opt_einsum", "The order of contractions in einsum.", is_available=_no, enabled=True, strategy="auto")
quantized = _module("quantized", "Quantized kernels: none.", engine="none", supported_engines=["none"])
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
