"""Initialisation of parameters: every function fills its tensor in place, without a gradient, and returns it."""

import functools
import math
import warnings

import wisp
from wisp import _reference

__all__ = """
    calculate_gain uniform_ normal_ trunc_normal_ constant_ ones_ zeros_ eye_ dirac_ xavier_uniform_ xavier_normal_ kaiming_uniform_
    kaiming_normal_ orthogonal_ sparse_ uniform normal constant eye dirac xavier_uniform xavier_normal kaiming_uniform
    kaiming_normal orthogonal sparse""".split()

_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"), 1.0),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def _of_the_whole(fill):
    """A parameter that is cut over ranks (a DTensor) gets its part of what the whole one would get: the same for any number of ranks."""

    @functools.wraps(fill)
    def call(tensor, *args, **kwargs):
        if type(tensor) is wisp.Tensor or not hasattr(tensor, "device_mesh"):
            return fill(tensor, *args, **kwargs)
        with wisp.no_grad():
            return tensor.copy_(fill(wisp.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device), *args, **kwargs))

    return call


def calculate_gain(nonlinearity, param=None):
    """How much a nonlinearity shrinks the standard deviation of its input, as the factor that makes up for it.

    >>> import wisp
    >>> wisp.nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


@_of_the_whole
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Fill with numbers drawn uniformly from [a, b)."""
    with wisp.no_grad():
        return tensor.uniform_(a, b, generator=generator)


@_of_the_whole
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Fill with normally distributed numbers.

    >>> import wisp
    >>> w = wisp.nn.init.normal_(wisp.empty(1000), std=0.1)
    >>> abs(w.std().item() - 0.1) < 0.02
    True
    """
    with wisp.no_grad():
        return tensor.normal_(mean, std, generator=generator)


@_of_the_whole
def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Fill with numbers of a normal distribution cut off outside of [a, b]."""

    def cdf(x):
        return (1.0 + math.erf((x - mean) / (std * math.sqrt(2.0)))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.", stacklevel=2
        )
    low, high = cdf(a), cdf(b)
    with wisp.no_grad():
        if high - low > 0.5:  # what falls outside is drawn again: far quicker than the inverse of the cdf
            tensor.normal_(mean, std, generator=generator)
            outside = (tensor < a) | (tensor > b)
            while not tensor.is_meta and outside.any():  # without data nothing is outside
                again = wisp.empty(int(outside.sum()), dtype=tensor.dtype, device=tensor.device).normal_(mean, std, generator=generator)
                tensor[outside] = again
                outside = (tensor < a) | (tensor > b)
            return tensor
        short = tensor.dtype in (wisp.float16, wisp.bfloat16)  # too few digits for the tails of the inverse
        values = wisp.empty_like(tensor, dtype=wisp.float32) if short else tensor
        values.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
        values.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)
        return tensor.copy_(values) if short else tensor


def constant_(tensor, val):
    """Fill with one value."""
    with wisp.no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """Fill with zeros."""
    with wisp.no_grad():
        return tensor.zero_()


@_of_the_whole
def eye_(tensor):
    """Fill a matrix with the identity."""
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with wisp.no_grad():
        return tensor.copy_(wisp.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@_of_the_whole
def dirac_(tensor, groups=1):
    """Fill a convolution's weight so that the layer passes on its input, channel by channel."""
    if tensor.ndimension() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    sizes = tuple(tensor.shape)
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = sizes[0] // groups
    centre = tuple(size // 2 for size in sizes[2:])
    with wisp.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, sizes[1])):
                tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


def _no_grad_uniform_(tensor, a, b, generator=None):
    return uniform_(tensor, a, b, generator)


def _no_grad_normal_(tensor, mean, std, generator=None):
    return normal_(tensor, mean, std, generator)


def _no_grad_trunc_normal_(tensor, mean, std, a, b, generator=None):
    return trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_fill_(tensor, val):
    return constant_(tensor, val)


def _no_grad_zero_(tensor):
    return zeros_(tensor)


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    receptive_field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive_field, tensor.shape[0] * receptive_field


def _calculate_correct_fan(tensor, mode):
    modes = ["fan_in", "fan_out"]
    if mode.lower() not in modes:
        raise ValueError(f"Mode {mode.lower()} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Uniform, with a variance of `gain² · 2 / (fan_in + fan_out)` (Glorot and Bengio, 2010).

    >>> import wisp
    >>> w = wisp.nn.init.xavier_uniform_(wisp.empty(3, 5))
    """
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal, with a variance of `gain² · 2 / (fan_in + fan_out)` (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_std(tensor, a, mode, nonlinearity):
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def _is_empty(tensor):
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Uniform, with a variance of `gain² / fan` (He et al., 2015); `a` is the slope of leaky_relu."""
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal, with a variance of `gain² / fan` (He et al., 2015); `a` is the slope of leaky_relu.

    >>> import wisp
    >>> w = wisp.nn.init.kaiming_normal_(wisp.empty(3, 5), mode="fan_out", nonlinearity="relu")
    """
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


@_of_the_whole
def orthogonal_(tensor, gain=1, generator=None):
    """Fill with a (semi-)orthogonal matrix (Saxe et al., 2013); dimensions after the first count as columns."""
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with wisp.no_grad():
        random = wisp.empty(rows, columns, dtype=tensor.dtype, device=tensor.device).normal_(0, 1, generator=generator)
        q, r = wisp.linalg.qr(random.t() if rows < columns else random)
        q = q * wisp.diag(r, 0).sign()  # makes the decomposition unique, and the result uniformly distributed
        q = q.t() if rows < columns else q
        return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


@_of_the_whole
def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Fill a matrix with normal numbers, and set that part `sparsity` of each column to zero (Martens, 2010)."""
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with wisp.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[wisp.randperm(rows, device=tensor.device)[:zeros], column] = 0
    return tensor


def _deprecated(function):
    new, old = function.__name__, function.__name__[:-1]

    def wrapper(*args, **kwargs):
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    wrapper.__name__ = old
    wrapper.__doc__ = f"The old name of `{new}`."
    return wrapper


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)

_reference.attach(__name__, globals())
