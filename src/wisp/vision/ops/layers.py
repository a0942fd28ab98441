"""Layers that vision models are made of."""

import math

import wisp
from wisp import nn
from wisp.nn import functional as F

__all__ = """
    Conv2dNormActivation DropBlock2d FrozenBatchNorm2d MLP PSRoIAlign PSRoIPool Permute RoIAlign RoIPool SqueezeExcitation StochasticDepth
    drop_block2d ps_roi_align ps_roi_pool roi_align roi_pool sigmoid_focal_loss stochastic_depth""".split()


class Conv2dNormActivation(nn.Sequential):
    """A convolution, a norm and an activation; "same" padding where none is given."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=3,
        stride=1,
        padding=None,
        groups=1,
        norm_layer=nn.BatchNorm2d,
        activation_layer=nn.ReLU,
        dilation=1,
        inplace=True,
        bias=None,
    ):
        if padding is None:
            if isinstance(kernel_size, int) and isinstance(dilation, int):
                padding = (kernel_size - 1) // 2 * dilation
            else:
                sizes = (kernel_size,) * 2 if isinstance(kernel_size, int) else kernel_size
                spread = (dilation,) * 2 if isinstance(dilation, int) else dilation
                padding = tuple((size - 1) // 2 * step for size, step in zip(sizes, spread))
        layers = [
            nn.Conv2d(
                in_channels, out_channels, kernel_size, stride, padding, dilation, groups, norm_layer is None if bias is None else bias
            )
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer() if inplace is None else activation_layer(inplace=inplace))
        super().__init__(*layers)
        self.out_channels = out_channels


class SqueezeExcitation(nn.Module):
    """Each channel scaled by what the whole picture says about it."""

    def __init__(self, input_channels, squeeze_channels, activation=nn.ReLU, scale_activation=nn.Sigmoid):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input):
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input))))) * input


class MLP(nn.Sequential):
    """Linear layers with norms, activations and dropout between them."""

    def __init__(self, in_channels, hidden_channels, norm_layer=None, activation_layer=nn.ReLU, inplace=None, bias=True, dropout=0.0):
        options = {} if inplace is None else {"inplace": inplace}
        layers, size = [], in_channels
        for width in hidden_channels[:-1]:
            layers.append(nn.Linear(size, width, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(width))
            layers += [activation_layer(**options), nn.Dropout(dropout, **options)]
            size = width
        layers += [nn.Linear(size, hidden_channels[-1], bias=bias), nn.Dropout(dropout, **options)]
        super().__init__(*layers)


class Permute(nn.Module):
    """`permute` as a layer."""

    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)


def stochastic_depth(input, p, mode, training=True):
    """Zero with the probability `p`: the whole batch ("batch") or each row ("row"); the rest is scaled up.

    >>> import wisp
    >>> from wisp.vision.ops import stochastic_depth
    >>> stochastic_depth(wisp.ones(2), 0.5, "batch", training=False)
    tensor([1., 1.])
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    shape = [input.shape[0] if mode == "row" else 1] + [1] * (input.dim() - 1)
    noise = input.new_empty(shape).bernoulli_(1.0 - p)
    return input * (noise.div_(1.0 - p) if p < 1.0 else noise)


class StochasticDepth(nn.Module):
    """`stochastic_depth` as a layer."""

    def __init__(self, p, mode):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input):
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self):
        return f"p={self.p}, mode={self.mode}"


def drop_block2d(input, p, block_size, inplace=False, eps=1e-6, training=True):
    """Square blocks of the picture set to zero, the rest scaled up."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}.")
    if not training or p == 0.0:
        return input
    count, channels, height, width = input.shape
    block = min(block_size, height, width)
    rate = p * height * width / (block**2 * (height - block + 1) * (width - block + 1))
    noise = input.new_empty(count, channels, height - block + 1, width - block + 1).bernoulli_(min(rate, 1.0))
    noise = F.pad(noise, [block // 2] * 4, value=0)
    noise = 1 - F.max_pool2d(noise, (block, block), (1, 1), block // 2)[..., :height, :width]
    scale = noise.numel() / (eps + noise.sum())
    return input.mul_(noise).mul_(scale) if inplace else input * noise * scale


class DropBlock2d(nn.Module):
    """`drop_block2d` as a layer."""

    def __init__(self, p, block_size, inplace=False, eps=1e-6):
        super().__init__()
        self.p, self.block_size, self.inplace, self.eps = p, block_size, inplace, eps

    def forward(self, input):
        return drop_block2d(input, self.p, self.block_size, self.inplace, self.eps, self.training)


class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation with fixed numbers."""

    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, wisp.full((num_features,), value))

    def forward(self, x):
        scale = (self.weight * (self.running_var + self.eps).rsqrt()).reshape(1, -1, 1, 1)
        return x * scale + (self.bias.reshape(1, -1, 1, 1) - self.running_mean.reshape(1, -1, 1, 1) * scale)


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2, reduction="none"):
    """Cross entropy of logits that counts hard examples more."""
    chance = wisp.sigmoid(inputs)
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    loss = loss * (1 - (chance * targets + (1 - chance) * (1 - targets))) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ValueError(f"Invalid Value for arg 'reduction': '{reduction}'. Supported reduction modes: 'none', 'mean', 'sum'")
    return loss.mean() if reduction == "mean" else loss.sum()


def _with_maps(boxes):
    """Boxes [K, 5], each with the number of its map first."""
    if isinstance(boxes, (list, tuple)):
        boxes = wisp.cat([wisp.cat((part.new_full((len(part), 1), index), part), 1) for index, part in enumerate(boxes)])
    return boxes


def roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    """Regions of feature maps [N, C, H, W] brought to one size, by bilinear sampling.

    `boxes` is [K, 5] with the number of the map first, or a list with one [L, 4] per map.

    >>> import wisp
    >>> from wisp.vision.ops import roi_align
    >>> roi_align(wisp.arange(16.0).reshape(1, 1, 4, 4), [wisp.tensor([[0.0, 0.0, 2.0, 2.0]])], 1)
    tensor([[[[5.]]]])
    """
    boxes = _with_maps(boxes)
    rows, columns = (output_size,) * 2 if isinstance(output_size, int) else output_size
    boxes = boxes.to(input.dtype)
    corners = boxes[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    sides = corners[:, 2:] - corners[:, :2]
    if not aligned:
        sides = sides.clamp(min=1.0)
    # samples per cell, down and across: given, or as many as the box has places
    cells = input.new_tensor([columns, rows])
    counts = wisp.full_like(sides, sampling_ratio) if sampling_ratio > 0 else (sides / cells).ceil().clamp(min=1)
    table = input.permute(0, 2, 3, 1).reshape(-1, input.shape[1])
    result = input.new_zeros(len(boxes), input.shape[1], rows, columns)
    for wide, tall in {tuple(pair) for pair in counts.detach().long().tolist()}:
        chosen = wisp.where((counts[:, 0] == wide) & (counts[:, 1] == tall))[0]
        for part in chosen.split(max(1, 4_000_000 // max(1, rows * columns * wide * tall * input.shape[1]))):
            sampled = _sampled(table, input.shape, boxes[part, 0].long(), corners[part], sides[part], rows * tall, columns * wide)
            pooled = sampled.reshape(len(part), rows, tall, columns, wide, -1).mean((2, 4)).permute(0, 3, 1, 2)
            result = result.index_copy(0, part, pooled)
    return result


def _sampled(table, shape, maps, corners, sides, rows, columns):
    """Bilinear samples [K, rows, columns, C] on a grid over each box; `table` has a row for each place of the maps."""

    def axis(start, length, count, size):
        place = start[:, None] + (wisp.arange(count, dtype=table.dtype, device=table.device) + 0.5) * (length[:, None] / count)
        inside = ((place >= -1) & (place <= size)).to(table.dtype)
        place = place.clamp(0, size - 1)
        low = place.floor()
        return low.long(), (low + 1).clamp(max=size - 1).long(), place - low, inside

    height, width = shape[-2:]
    top, bottom, down, inside_y = axis(corners[:, 1], sides[:, 1], rows, height)
    left, right, across, inside_x = axis(corners[:, 0], sides[:, 0], columns, width)
    result = 0
    for y, by_y in ((top, 1 - down), (bottom, down)):
        for x, by_x in ((left, 1 - across), (right, across)):
            places = (maps[:, None, None] * height + y[:, :, None]) * width + x[:, None, :]
            weight = (by_y * inside_y)[:, :, None, None] * (by_x * inside_x)[:, None, :, None]
            result = result + F.embedding(places, table) * weight
    return result


def roi_pool(input, boxes, output_size, spatial_scale=1.0):
    """Regions of feature maps [N, C, H, W] brought to one size by the largest values of their cells.

    >>> import wisp
    >>> from wisp.vision.ops import roi_pool
    >>> roi_pool(wisp.arange(16.0).reshape(1, 1, 4, 4), [wisp.tensor([[0.0, 0.0, 3.0, 3.0]])], 2)
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """
    boxes = _with_maps(boxes)
    rows, columns = (output_size,) * 2 if isinstance(output_size, int) else output_size
    height, width = input.shape[-2:]
    input.new_empty(len(boxes), input.shape[1], rows, columns)  # a size that no memory holds ends here
    results = []
    for number, *corners in boxes.tolist():
        left, top, right, bottom = (math.floor(value * spatial_scale + 0.5) for value in corners)
        tall, wide = max(bottom - top + 1, 1) / rows, max(right - left + 1, 1) / columns

        def ends(start, size, count, limit):
            return [
                (min(max(math.floor(i * size) + start, 0), limit), min(max(math.ceil((i + 1) * size) + start, 0), limit))
                for i in range(count)
            ]

        cells = [
            input[int(number), :, a:b, c:d].flatten(1).amax(1) if b > a and d > c else input.new_zeros(input.shape[1])
            for a, b in ends(top, tall, rows, height)
            for c, d in ends(left, wide, columns, width)
        ]
        results.append(wisp.stack(cells, 1).reshape(-1, rows, columns))
    return wisp.stack(results) if results else input.new_zeros(0, input.shape[1], rows, columns)


def _of_cells(input, rows, columns):
    """How many channels are left where each cell of a region has channels of its own."""
    channels, rest = divmod(input.shape[1], rows * columns)
    if rest:
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
    return channels


def ps_roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1):
    """`roi_align` where each cell of a region has channels of its own: [N, C * rows * columns, H, W] -> [K, C, rows, columns].

    >>> import wisp
    >>> from wisp.vision.ops import ps_roi_align
    >>> maps = wisp.arange(4.0).reshape(1, 4, 1, 1).expand(1, 4, 4, 4)
    >>> ps_roi_align(maps, [wisp.tensor([[0.0, 0.0, 3.0, 3.0]])], 2)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    rows, columns = (output_size,) * 2 if isinstance(output_size, int) else output_size
    channels = _of_cells(input, rows, columns)
    every = roi_align(input, boxes, (rows, columns), spatial_scale, sampling_ratio, True)
    every = every.reshape(-1, channels, rows, columns, rows, columns)
    return every.diagonal(0, 2, 4).diagonal(0, 2, 3).contiguous()


def ps_roi_pool(input, boxes, output_size, spatial_scale=1.0):
    """Means of the cells of regions, each of channels of its own: [N, C * rows * columns, H, W] -> [K, C, rows, columns].

    >>> import wisp
    >>> from wisp.vision.ops import ps_roi_pool
    >>> maps = wisp.arange(4.0).reshape(1, 4, 1, 1).expand(1, 4, 4, 4)
    >>> ps_roi_pool(maps, [wisp.tensor([[0.0, 0.0, 3.0, 3.0]])], 2)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    rows, columns = (output_size,) * 2 if isinstance(output_size, int) else output_size
    channels = _of_cells(input, rows, columns)
    maps = input.reshape(len(input), channels, rows * columns, *input.shape[2:])
    results = []
    for number, *corners in _with_maps(boxes).tolist():
        # halves are rounded away from 0, as by C
        left, top, right, bottom = (int(value * spatial_scale + math.copysign(0.5, value)) for value in corners)

        def ends(start, size, count, limit):
            return [
                tuple(min(max(place + start, 0), limit - 1) for place in (math.floor(i * size / count), math.ceil((i + 1) * size / count)))
                for i in range(count)
            ]

        down = ends(top, max(bottom - top, 1), rows, maps.shape[3])
        across = ends(left, max(right - left, 1), columns, maps.shape[4])
        cells = [(*y, *x) for y in down for x in across]
        means = [
            maps[int(number), :, i, a:b, c:d].mean((1, 2)) if b > a and d > c else maps.new_zeros(channels)
            for i, (a, b, c, d) in enumerate(cells)
        ]
        results.append(wisp.stack(means, 1).reshape(channels, rows, columns))
    return wisp.stack(results) if results else input.new_zeros(0, channels, rows, columns)


class PSRoIAlign(nn.Module):
    """`ps_roi_align` as a layer."""

    def __init__(self, output_size, spatial_scale, sampling_ratio):
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio = output_size, spatial_scale, sampling_ratio

    def forward(self, input, rois):
        return ps_roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)


class PSRoIPool(nn.Module):
    """`ps_roi_pool` as a layer."""

    def __init__(self, output_size, spatial_scale):
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input, rois):
        return ps_roi_pool(input, rois, self.output_size, self.spatial_scale)


class RoIPool(nn.Module):
    """`roi_pool` as a layer."""

    def __init__(self, output_size, spatial_scale):
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input, rois):
        return roi_pool(input, rois, self.output_size, self.spatial_scale)


class RoIAlign(nn.Module):
    """`roi_align` as a layer."""

    def __init__(self, output_size, spatial_scale, sampling_ratio, aligned=False):
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned = output_size, spatial_scale, sampling_ratio, aligned

    def forward(self, input, rois):
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)
