"""Autocast: a region in which products run in a lower precision and losses in float32.

    >>> import wisp
    >>> a = wisp.rand(4, 4)
    >>> with wisp.autocast("cpu", dtype=wisp.bfloat16):
    ...     c = a @ a
    >>> c.dtype
    torch.bfloat16

Which operators are cast is data: the lists below, which are those of PyTorch for the CPU and for CUDA. Losses written in
Python are marked where they are defined (`in_float32`). Everything else takes what it is given.
"""

import functools
import warnings

from wisp import _core
from wisp._composites._autocast import cast

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_LOWER = (
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_tbc",
    "bmm",
    "mm",
    "baddbmm",
    "addmm",
    "addbmm",
    "matmul",
    "linalg.matmul",
    "linalg.vecdot",
    "linalg.multi_dot",
    "inner",
    "_einsum",
    "_chain_matmul",
    "_prelu_kernel",
    "nn.functional.linear",
    "nn.functional.scaled_dot_product_attention",
)
_FULL = tuple(
    "nn.functional." + name
    for name in (
        "avg_pool3d",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "grid_sample",
        "max_pool3d",
        "max_pool3d_with_indices",
        "max_unpool2d",
        "max_unpool3d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool3d",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "mse_loss",
        "nll_loss",
        "smooth_l1_loss",
        "cross_entropy",
        "l1_loss",
        "huber_loss",
    )
) + (
    "polar",
    "prod",
    "quantile",
    "nanquantile",
    "stft",
    "trace",
    "view_as_complex",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "inverse",
    "pinverse",
    "lu_solve",
    "orgqr",
    "ormqr",
    "geqrf",
    "triangular_solve",
    "svd",
    "qr",
    "logdet",
    "slogdet",
    "det",
    *(
        "linalg." + name
        for name in (
            "cholesky",
            "cholesky_ex",
            "cond",
            "det",
            "eig",
            "eigh",
            "eigvals",
            "eigvalsh",
            "householder_product",
            "inv",
            "inv_ex",
            "lstsq",
            "lu_factor",
            "lu_factor_ex",
            "matrix_rank",
            "pinv",
            "qr",
            "slogdet",
            "solve",
            "svd",
            "svdvals",
            "tensorinv",
            "tensorsolve",
        )
    ),
    *(
        "fft." + name
        for name in (
            "fft",
            "ifft",
            "fft2",
            "ifft2",
            "fftn",
            "ifftn",
            "rfft",
            "irfft",
            "rfft2",
            "irfft2",
            "rfftn",
            "irfftn",
            "hfft",
            "ihfft",
        )
    ),
)
_WIDEST = ("cat", "stack", "index_copy", "concat", "concatenate")

_LOWER_CUDA = (*_LOWER, "addmv", "addr", "mv")
# cross_entropy is not among them: its kernel reads any dtype, computes in float32 and returns that.
_FULL_CUDA = (
    *"""acos arccos asin arcsin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softmax log_softmax
    layer_norm native_layer_norm rms_norm group_norm norm frobenius_norm nuclear_norm cosine_similarity cumprod cumsum dist pdist
    cdist prod renorm sum logsumexp special.erfinv special.expm1 special.log1p special.softmax special.log_softmax
    special.logsumexp linalg.vector_norm linalg.matrix_norm linalg.norm""".split(),
    *(
        "nn.functional." + name
        for name in """softmax log_softmax softplus layer_norm rms_norm group_norm cosine_similarity
        binary_cross_entropy_with_logits nll_loss l1_loss smooth_l1_loss huber_loss mse_loss pdist interpolate upsample""".split()
    ),
)
_WIDEST_CUDA = (
    *_WIDEST,
    *"addcdiv addcmul atan2 bilinear cross linalg.cross dot vdot grid_sampler index_put _tensordot scatter_add".split(),
    "nn.functional.bilinear",
    "nn.functional.grid_sample",
)

_core._set_autocast_lists(False, (*_LOWER, "_tensordot"), _FULL, _WIDEST, ())
_core._set_autocast_lists(True, _LOWER_CUDA, _FULL_CUDA, _WIDEST_CUDA, ("nn.functional.binary_cross_entropy",))


def is_autocast_available(device_type):
    """Whether there is an autocast for this kind of device."""
    return device_type in ("cpu", "cuda")


def is_autocast_enabled(device_type="cuda"):
    """Whether autocast is on in this thread; without a device PyTorch asks about CUDA."""
    return is_autocast_available(device_type) and _core._autocast_enabled(device_type == "cuda")


def set_autocast_enabled(device_type, enabled=None):
    """Switch autocast on or off in this thread; without a device, for CUDA."""
    device_type, enabled = ("cuda", device_type) if enabled is None else (device_type, enabled)
    gpu = device_type == "cuda"
    _core._set_autocast(gpu, bool(enabled), _core._autocast_dtype(gpu))


def get_autocast_dtype(device_type):
    """The lower precision that autocast uses on a kind of device."""
    return _core._autocast_dtype(device_type == "cuda")


def set_autocast_dtype(device_type, dtype):
    """Choose the lower precision that autocast uses on a kind of device."""
    gpu = device_type == "cuda"
    _core._set_autocast(gpu, _core._autocast_enabled(gpu), dtype)


def is_autocast_cpu_enabled():
    """Whether autocast is on for the CPU."""
    return _core._autocast_enabled(False)


def set_autocast_cpu_enabled(enabled):
    """Switch autocast for the CPU."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype():
    """The lower precision of autocast on the CPU."""
    return _core._autocast_dtype(False)


def get_autocast_gpu_dtype():
    """The lower precision of autocast on CUDA."""
    return _core._autocast_dtype(True)


def set_autocast_cpu_dtype(dtype):
    """Choose the lower precision of autocast on the CPU."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype):
    """Choose the lower precision of autocast on CUDA."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled():
    """Whether casts of weights are kept until the outermost region ends."""
    return _core._autocast_cache()


def set_autocast_cache_enabled(enabled):
    """Choose whether casts of weights are kept until the outermost region ends."""
    _core._autocast_cache(bool(enabled))


def clear_autocast_cache():
    """Drop the casts that are kept."""
    _core._clear_autocast_cache()


def autocast_increment_nesting():
    """Note that a region begins; returns how many are open."""
    return _core._autocast_nest(1)


def autocast_decrement_nesting():
    """Note that a region ends; returns how many are open."""
    return _core._autocast_nest(-1)


class autocast:
    """Run what is inside in mixed precision: a context manager, and a decorator.

    Without a GPU `device_type` "cuda" changes nothing, with a warning.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if device_type == "cpu" and enabled and self.fast_dtype not in (_core.bfloat16, _core.float16, _core.float32):
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtype of torch.bfloat16, torch.float16 currently.",
                stacklevel=2,
            )
            enabled = False
        if device_type == "cuda" and enabled and not _core._operators["_cuda"]["device_count"]():
            warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=2)
            enabled = False
        self._enabled, self._cache_enabled = bool(enabled), cache_enabled
        self._before = []

    def __enter__(self):
        gpu = self.device == "cuda"
        self._before.append((_core._autocast_enabled(gpu), _core._autocast_dtype(gpu), _core._autocast_cache(self._cache_enabled)))
        _core._set_autocast(gpu, self._enabled, self.fast_dtype)
        _core._autocast_nest(1)
        return self

    def __exit__(self, kind, error, traceback):
        enabled, dtype, cache = self._before.pop()
        _core._autocast_nest(-1)
        _core._set_autocast(self.device == "cuda", enabled, dtype)
        _core._autocast_cache(cache)
        return False

    def __call__(self, func):
        if isinstance(func, type):
            raise TypeError("autocast decorates functions, not classes")

        @functools.wraps(func)
        def decorated(*args, **kwargs):
            with self:
                return func(*args, **kwargs)

        return decorated


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorate a Function's `forward`: it runs in the autocast state of the call, or with its inputs cast and
    autocast off.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args, **kwargs):
        args[0]._dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        args[0]._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*cast(args, device_type, cast_inputs), **cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd=None, *, device_type):
    """Decorate a Function's `backward`: it runs in the autocast state that its forward had."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated
