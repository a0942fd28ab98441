"""Normalisation within a sample: LayerNorm, RMSNorm, GroupNorm, and responses across channels."""

import numbers

import wisp
from wisp.autograd import Function
from wisp.nn import functional as F
from wisp.nn import init
from wisp.nn.modules.module import Module
from wisp.nn.parameter import Parameter

__all__ = ["LocalResponseNorm", "CrossMapLRN2d", "LayerNorm", "GroupNorm", "RMSNorm"]


class LocalResponseNorm(Module):
    """Divides each channel by a power of the mean square of its `size` neighbours."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _sums_of_channels(x, before, after):
    """For each channel the sum of those from `before` ones before it to `after` ones after it."""
    return F.pad(x, (0, 0, 0, 0, before, after)).unfold(1, before + after + 1, 1).sum(-1)


class _CrossMapLRN(Function):
    """Values and gradients as PyTorch has them: the first channel never leaves the window of squares, and the window of the
    gradient is not quite that of the values, so that it is not their derivative."""

    @staticmethod
    def forward(ctx, input, size, alpha, beta, k):
        reach = (size - 1) // 2  # channels to either side
        squares = input.square()
        total = _sums_of_channels(squares, reach, reach)
        total = wisp.cat([total[:, : reach + 1], total[:, reach + 1 :] + squares[:, :1]], 1)
        scale = k + alpha / size * total
        output = input * scale.pow(-beta)
        ctx.save_for_backward(input, output, scale)
        ctx.numbers = size, alpha, beta
        return output

    @staticmethod
    def backward(ctx, grad):
        (input, output, scale), (size, alpha, beta) = ctx.saved_tensors, ctx.numbers
        before = min(int(size - (size - 1) / 2), size - 1)
        total = _sums_of_channels(grad * output / scale, before, size - 1 - before)
        return grad * scale.pow(-beta) - 2 * alpha * beta / size * input * total, None, None, None, None


class CrossMapLRN2d(Module):
    """LocalResponseNorm of images (N, C, H, W), in the form that old models use."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        return _CrossMapLRN.apply(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _as_shape(normalized_shape):
    return (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)


class _Affine(Module):
    # A scale and a shift, each of which may be missing.
    def _add_affine(self, shape, weight, bias, device, dtype):
        for name, wanted in (("weight", weight), ("bias", bias)):
            self.register_parameter(name, Parameter(wisp.empty(shape, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Set scale 1 and shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(_Affine):
    """Each sample to mean 0 and variance 1 over its last dimensions, then scaled and shifted.

    >>> import wisp
    >>> layer = wisp.nn.LayerNorm(10)
    >>> abs(layer(wisp.randn(20, 5, 10)).mean().item()) < 1e-5
    True
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._add_affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class GroupNorm(_Affine):
    """Normalises groups of channels, sample by sample.

    >>> import wisp
    >>> layer = wisp.nn.GroupNorm(num_groups=3, num_channels=6)
    >>> tuple(layer(wisp.randn(2, 6, 4, 4)).shape)
    (2, 6, 4, 4)
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        super().__init__()
        if num_groups <= 0:
            raise ValueError(f"num_groups must be positive, got {num_groups}")
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._add_affine(num_channels, affine, affine and bias, device, dtype)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divides by the root of the mean square over the last dimensions, then scales.

    >>> import wisp
    >>> tuple(wisp.nn.RMSNorm([2, 3])(wisp.randn(2, 2, 3)).shape)
    (2, 2, 3)
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter(
            "weight", Parameter(wisp.empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        )
        self.reset_parameters()

    def reset_parameters(self):
        """Set scale 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
