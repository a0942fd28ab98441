"""Activation functions as modules. (MultiheadAttention, which PyTorch keeps here too, is in attention.py.)"""

import warnings

import wisp
from wisp.nn import functional as F
from wisp.nn.modules.attention import MultiheadAttention  # noqa: F401
from wisp.nn.modules.module import Module
from wisp.nn.modules.utils import if_inplace, join_repr
from wisp.nn.parameter import Parameter

__all__ = """
    Threshold ReLU RReLU Hardtanh ReLU6 Sigmoid Hardsigmoid Tanh SiLU Mish Hardswish ELU CELU SELU GLU GELU Hardshrink LeakyReLU
    LogSigmoid Softplus Softshrink MultiheadAttention PReLU Softsign Tanhshrink Softmin Softmax Softmax2d LogSoftmax""".split()


class _Inplace(Module):
    # An activation whose only setting is whether it overwrites its input.
    __constants__ = ["inplace"]

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self):
        return if_inplace(self.inplace)


class Threshold(Module):
    """`x` where it is above `threshold`, else `value`.

    >>> import wisp
    >>> wisp.nn.Threshold(0.5, 20.0)(wisp.tensor([0.0, 1.0]))
    tensor([20.,  1.])
    """

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self):
        return join_repr(f"threshold={self.threshold}", f"value={self.value}", if_inplace(self.inplace))


class ReLU(_Inplace):
    """`max(0, x)`.

    >>> import wisp
    >>> wisp.nn.ReLU()(wisp.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, input):
        return F.relu(input, self.inplace)


class RReLU(Module):
    """Leaky ReLU with a random slope between `lower` and `upper` while training, and their mean afterwards."""

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return join_repr(f"lower={self.lower}", f"upper={self.upper}", if_inplace(self.inplace))


class Hardtanh(Module):
    """`x` clamped to [min_val, max_val].

    >>> import wisp
    >>> wisp.nn.Hardtanh(-2, 2)(wisp.tensor([-3.0, 1.0]))
    tensor([-2.,  1.])
    """

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__()
        if min_value is not None:
            warnings.warn("keyword argument `min_value` is deprecated and rename to `min_val`", FutureWarning, stacklevel=2)
            min_val = min_value
        if max_value is not None:
            warnings.warn("keyword argument `max_value` is deprecated and rename to `max_val`", FutureWarning, stacklevel=2)
            max_val = max_value
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace
        if self.max_val <= self.min_val:
            raise AssertionError("max_val must be larger than min_val")

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return join_repr(f"min_val={self.min_val}", f"max_val={self.max_val}", if_inplace(self.inplace))


class ReLU6(Hardtanh):
    """`min(max(0, x), 6)`."""

    def __init__(self, inplace=False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self):
        return if_inplace(self.inplace)


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`.

    >>> import wisp
    >>> wisp.nn.Sigmoid()(wisp.zeros(1))
    tensor([0.5000])
    """

    def forward(self, input):
        return wisp.sigmoid(input)


class Hardsigmoid(_Inplace):
    """`clamp(x / 6 + 1 / 2, 0, 1)`."""

    extra_repr = Module.extra_repr  # as in PyTorch, which does not say it here

    def forward(self, input):
        return F.hardsigmoid(input, self.inplace)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input):
        return wisp.tanh(input)


class SiLU(_Inplace):
    """`x * sigmoid(x)`, also known as swish."""

    def forward(self, input):
        return F.silu(input, self.inplace)


class Mish(_Inplace):
    """`x * tanh(softplus(x))`."""

    def forward(self, input):
        return F.mish(input, self.inplace)


class Hardswish(_Inplace):
    """`x * hardsigmoid(x)`."""

    extra_repr = Module.extra_repr  # as in PyTorch, which does not say it here

    def forward(self, input):
        return F.hardswish(input, self.inplace)


class ELU(Module):
    """`x` if positive, else `alpha * (exp(x) - 1)`."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return join_repr(f"alpha={self.alpha}", if_inplace(self.inplace))


class CELU(ELU):
    """`x` if positive, else `alpha * (exp(x / alpha) - 1)`."""

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)


class SELU(_Inplace):
    """A scaled ELU whose outputs tend to mean 0 and variance 1."""

    def forward(self, input):
        return F.selu(input, self.inplace)


class GLU(Module):
    """`a * sigmoid(b)` of the two halves of the input along `dim`.

    >>> import wisp
    >>> tuple(wisp.nn.GLU()(wisp.zeros(4, 6)).shape)
    (4, 3)
    """

    __constants__ = ["dim"]

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class GELU(Module):
    """`x * Φ(x)` with the normal distribution's Φ, exact or by its tanh approximation.

    >>> import wisp
    >>> wisp.nn.GELU(approximate="tanh")(wisp.zeros(2))
    tensor([0., 0.])
    """

    __constants__ = ["approximate"]

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class Hardshrink(Module):
    """`x`, but 0 where |x| <= lambd."""

    __constants__ = ["lambd"]

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.hardshrink(input, self.lambd)

    def extra_repr(self):
        return f"{self.lambd}"


class LeakyReLU(Module):
    """`x` if positive, else `negative_slope * x`.

    >>> import wisp
    >>> wisp.nn.LeakyReLU(0.5)(wisp.tensor([-1.0, 2.0]))
    tensor([-0.5000,  2.0000])
    """

    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope=1e-2, inplace=False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return join_repr(f"negative_slope={self.negative_slope}", if_inplace(self.inplace))


class LogSigmoid(Module):
    """`log(sigmoid(x))`, computed without overflow."""

    def forward(self, input):
        return F.logsigmoid(input)


class Softplus(Module):
    """`log(1 + exp(beta * x)) / beta`, and `x` itself where `beta * x` is above `threshold`."""

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Hardshrink):
    """`x` moved by `lambd` towards 0."""

    def forward(self, input):
        return F.softshrink(input, self.lambd)


class PReLU(Module):
    """Leaky ReLU with learned slopes: one, or one per channel.

    >>> import wisp
    >>> wisp.nn.PReLU()(wisp.tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    __constants__ = ["num_parameters"]

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(wisp.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Set the slopes to their first value."""
        with wisp.no_grad():
            self.weight.fill_(self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def forward(self, input):
        return F.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`."""

    def forward(self, input):
        return F.tanhshrink(input)


class _Dim(Module):
    __constants__ = ["dim"]

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def __setstate__(self, state):
        super().__setstate__(state)
        if not hasattr(self, "dim"):
            self.dim = None

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmin(_Dim):
    """Softmax of `-x`."""

    def forward(self, input):
        return F.softmin(input, self.dim)


class Softmax(_Dim):
    """`exp(x) / exp(x).sum(dim)`.

    >>> import wisp
    >>> wisp.nn.Softmax(dim=-1)(wisp.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def forward(self, input):
        return F.softmax(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class LogSoftmax(_Dim):
    """`log(softmax(x))`, computed without underflow."""

    def forward(self, input):
        return F.log_softmax(input, self.dim)
