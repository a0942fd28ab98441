"""Convolutions and transposed convolutions, and their lazy forms."""

import math

import wisp
from wisp.nn import functional as F
from wisp.nn import init
from wisp.nn.modules.lazy import LazyModuleMixin
from wisp.nn.modules.module import Module
from wisp.nn.modules.utils import _ntuple, _reverse_repeat_tuple, _unusual
from wisp.nn.parameter import Parameter, UninitializedParameter

__all__ = """
    Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d
    LazyConvTranspose2d LazyConvTranspose3d""".split()

_PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    __constants__ = "stride padding dilation groups padding_mode output_padding in_channels out_channels kernel_size".split()

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        bias,
        padding_mode,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {_PADDING_MODES}, but got padding_mode='{padding_mode}'")
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.stride, self.padding, self.dilation, self.transposed = stride, padding, dilation, transposed
        self.output_padding, self.groups, self.padding_mode = output_padding, groups, padding_mode
        if padding == "valid":
            self._reversed_padding_repeated_twice = [0] * 2 * len(kernel_size)
        elif padding == "same":
            totals = [d * (k - 1) for d, k in zip(dilation, kernel_size)]
            self._reversed_padding_repeated_twice = [n for total in reversed(totals) for n in (total // 2, total - total // 2)]
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(padding, 2)
        sides = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(wisp.empty((*sides, *kernel_size), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(wisp.empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw new parameters, uniformly from ±1/√(inputs of one output)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        n = len(self.kernel_size)
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += _unusual(self, padding=(0,) * n, dilation=(1,) * n, output_padding=(0,) * n, groups=1)
        if self.bias is None:
            text += ", bias=False"
        return text + _unusual(self, padding_mode="zeros")

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _Conv(_ConvNd):
    # Subclasses say in how many dimensions, and by which function.
    dims = 0

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        sizes = _ntuple(self.dims)
        padding = padding if isinstance(padding, str) else sizes(padding)
        shape = in_channels, out_channels, sizes(kernel_size), sizes(stride), padding, sizes(dilation)
        super().__init__(*shape, False, sizes(0), groups, bias, padding_mode, device, dtype)

    def _conv_forward(self, input, weight, bias):
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return self._convolve(input, weight, bias, self.stride, 0, self.dilation, self.groups)
        return self._convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Cross-correlation of (N, C, L) or (C, L) with `out_channels` filters.

    >>> import wisp
    >>> layer = wisp.nn.Conv1d(16, 33, kernel_size=3, stride=2)
    >>> tuple(layer(wisp.randn(20, 16, 50)).shape)
    (20, 33, 24)
    """

    dims = 1

    def _convolve(self, *args):
        return F.conv1d(*args)


class Conv2d(_Conv):
    """Cross-correlation of (N, C, H, W) or (C, H, W) with `out_channels` filters.

    >>> import wisp
    >>> layer = wisp.nn.Conv2d(3, 8, kernel_size=(3, 5), padding=(1, 2))
    >>> tuple(layer(wisp.randn(2, 3, 10, 10)).shape), tuple(layer.weight.shape)
    ((2, 8, 10, 10), (8, 3, 3, 5))
    """

    dims = 2

    def _convolve(self, *args):
        return F.conv2d(*args)

    def forward(self, input):
        if self.padding_mode != "zeros":
            return self._conv_forward(input, self.weight, self.bias)
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """Cross-correlation of (N, C, D, H, W) or (C, D, H, W) with `out_channels` filters.

    >>> import wisp
    >>> layer = wisp.nn.Conv3d(2, 4, kernel_size=3)
    >>> tuple(layer(wisp.randn(1, 2, 5, 5, 5)).shape)
    (1, 4, 3, 3, 3)
    """

    dims = 3

    def _convolve(self, *args):
        return F.conv3d(*args)


class _ConvTransposeNd(_ConvNd):
    dims = 0

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        sizes = _ntuple(self.dims)
        shape = in_channels, out_channels, sizes(kernel_size), sizes(stride), sizes(padding), sizes(dilation)
        super().__init__(*shape, True, sizes(output_padding), groups, bias, padding_mode, device, dtype)

    def _output_padding(self, input, output_size, stride, padding, kernel_size, num_spatial_dims, dilation=None):
        """What must be added at one side so that the output has the size asked for."""
        if output_size is None:
            return self.output_padding
        n = num_spatial_dims
        batch_dims = input.dim() - n
        if len(output_size) == batch_dims + n:
            output_size = output_size[batch_dims:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}d: for {input.dim()}D input, output_size must have {n} or "
                f"{batch_dims + n} elements (got {len(output_size)})"
            )
        dilation = dilation or (1,) * n
        smallest = [
            (input.shape[batch_dims + d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel_size[d] - 1) + 1 for d in range(n)
        ]
        largest = [size + stride[d] - 1 for d, size in enumerate(smallest)]
        if not all(low <= size <= high for low, size, high in zip(smallest, output_size, largest)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {smallest} to "
                f"{largest} (for an input of {tuple(input.shape[batch_dims:])})"
            )
        return [size - low for size, low in zip(output_size, smallest)]

    def forward(self, input, output_size=None):
        output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, self.dims, self.dilation)
        return self._convolve(input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation)


_ConvTransposeMixin = _ConvTransposeNd  # its name in older programs


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of Conv1d as a linear map; upsamples when strided.

    >>> import wisp
    >>> layer = wisp.nn.ConvTranspose1d(4, 2, kernel_size=3, stride=2)
    >>> tuple(layer(wisp.randn(1, 4, 5)).shape)
    (1, 2, 11)
    """

    dims = 1

    def _convolve(self, *args):
        return F.conv_transpose1d(*args)


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of Conv2d as a linear map; upsamples when strided.

    >>> import wisp
    >>> layer = wisp.nn.ConvTranspose2d(4, 2, kernel_size=3, stride=2, padding=1)
    >>> tuple(layer(wisp.randn(1, 4, 6, 6), output_size=(12, 12)).shape)
    (1, 2, 12, 12)
    """

    dims = 2

    def _convolve(self, *args):
        return F.conv_transpose2d(*args)


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of Conv3d as a linear map; upsamples when strided."""

    dims = 3

    def _convolve(self, *args):
        return F.conv_transpose3d(*args)


class _LazyConvXdMixin(LazyModuleMixin):
    def reset_parameters(self):
        if self.in_channels != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def _make_lazy(self, out_channels, bias, device, dtype):
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def initialize_parameters(self, input, *args, **kwargs):
        if not self.has_uninitialized_params():
            return
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(
                f"Expected {self.dims + 1}D (unbatched) or {self.dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        self.in_channels = input.shape[-1 - self.dims]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        ins, outs = self.in_channels, self.out_channels
        sides = (ins, outs // self.groups) if self.transposed else (outs, ins // self.groups)
        self.weight.materialize((*sides, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((outs,))
        self.reset_parameters()


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros", device=None, dtype=None
    ):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._make_lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """A Conv1d that learns `in_channels` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A Conv2d that learns `in_channels` from its first input.

    >>> import wisp
    >>> layer = wisp.nn.LazyConv2d(8, kernel_size=3)
    >>> tuple(layer(wisp.zeros(1, 5, 6, 6)).shape), layer.in_channels
    ((1, 8, 4, 4), 5)
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A Conv3d that learns `in_channels` from its first input."""

    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype)
        self._make_lazy(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A ConvTranspose1d that learns `in_channels` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A ConvTranspose2d that learns `in_channels` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A ConvTranspose3d that learns `in_channels` from its first input."""

    cls_to_become = ConvTranspose3d
