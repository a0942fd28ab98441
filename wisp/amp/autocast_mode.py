"""Autocast: a region in which products run in a lower precision and losses in float32.

    >>> import wisp
    >>> a = wisp.rand(4, 4)
    >>> with wisp.autocast("cpu", dtype=wisp.bfloat16):
    ...     c = a @ a
    >>> c.dtype
    torch.bfloat16

Which operators are cast is data: the lists below, which are those of PyTorch for the CPU. Everything else takes
what it is given.
"""

import functools
import warnings

from wisp import _core

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
        "cosine_embedding_loss",
        "nll_loss",
        "hinge_embedding_loss",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "cross_entropy",
        "l1_loss",
        "huber_loss",
        "margin_ranking_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "ctc_loss",
        "kl_div",
        "multilabel_margin_loss",
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

_core._set_autocast_lists(_LOWER, _FULL, _WIDEST)
_cache_enabled = True


def is_autocast_available(device_type):
    """Whether there is an autocast for this kind of device."""
    return device_type in ("cpu", "cuda")


def is_autocast_enabled(device_type=None):
    """Whether autocast is on in this thread; without a device PyTorch asks about CUDA."""
    return device_type == "cpu" and _core._autocast_enabled()


def set_autocast_enabled(device_type, enabled=None):
    """Switch autocast on or off in this thread."""
    if device_type == "cpu":
        _core._set_autocast(bool(enabled), _core._autocast_dtype())


def get_autocast_dtype(device_type):
    """The lower precision that autocast uses on a kind of device."""
    return _core.float16 if device_type == "cuda" else _core._autocast_dtype()


def set_autocast_dtype(device_type, dtype):
    """Choose the lower precision that autocast uses on a kind of device."""
    if device_type == "cpu":
        _core._set_autocast(_core._autocast_enabled(), dtype)


def is_autocast_cpu_enabled():
    """Whether autocast is on for the CPU."""
    return _core._autocast_enabled()


def get_autocast_cpu_dtype():
    """The lower precision of autocast on the CPU."""
    return _core._autocast_dtype()


def is_autocast_cache_enabled():
    """The value of `set_autocast_cache_enabled`."""
    return _cache_enabled


def set_autocast_cache_enabled(enabled):
    """Remembered only: Wisp casts a weight each time it is used."""
    global _cache_enabled
    _cache_enabled = bool(enabled)


def clear_autocast_cache():
    """Nothing to clear: Wisp keeps no casts."""


class autocast:
    """Run what is inside in mixed precision: a context manager, and a decorator.

    `device_type` "cuda" is accepted and changes nothing as long as there is no such device.
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
        if device_type == "cuda" and enabled:
            warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=2)
            enabled = False
        self._enabled = bool(enabled)
        self._before = []

    def __enter__(self):
        if self.device == "cpu":
            self._before.append((_core._autocast_enabled(), _core._autocast_dtype()))
            _core._set_autocast(self._enabled, self.fast_dtype)
        return self

    def __exit__(self, kind, error, traceback):
        if self.device == "cpu":
            _core._set_autocast(*self._before.pop())
        return False

    def __call__(self, func):
        if isinstance(func, type):
            raise TypeError("autocast decorates functions, not classes")

        @functools.wraps(func)
        def decorated(*args, **kwargs):
            with self:
                return func(*args, **kwargs)

        return decorated


def _cast(value, device_type, dtype):
    if isinstance(value, _core.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != _core.float64 else value
    if isinstance(value, dict):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


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
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

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
