"""Layers that vision models are made of."""
import wisp
from wisp import nn
from wisp.nn import functional as F

__all__ = ["Conv2dNormActivation", "DropBlock2d", "FrozenBatchNorm2d", "MLP", "Permute", "RoIAlign", "SqueezeExcitation", "StochasticDepth",
           "drop_block2d", "roi_align", "sigmoid_focal_loss", "stochastic_depth"]


class Conv2dNormActivation(nn.Sequential):
    """A convolution, a norm and an activation; "same" padding where none is given."""

    def __init__(self, in_channels, out_channels, kernel_size=3, stride=1, padding=None, groups=1, norm_layer=nn.BatchNorm2d,
                 activation_layer=nn.ReLU, dilation=1, inplace=True, bias=None):
        if padding is None:
            if isinstance(kernel_size, int) and isinstance(dilation, int):
                padding = (kernel_size - 1) // 2 * dilation
            else:
                sizes = (kernel_size,) * 2 if isinstance(kernel_size, int) else kernel_size
                spread = (dilation,) * 2 if isinstance(dilation, int) else dilation
                padding = tuple((size - 1) // 2 * step for size, step in zip(sizes, spread))
        layers = [nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                            norm_layer is None if bias is None else bias)]
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
    rate = p * height * width / (block ** 2 * (height - block + 1) * (width - block + 1))
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


def roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    """Regions of feature maps [N, C, H, W] brought to one size, by bilinear sampling.

    `boxes` is [K, 5] with the number of the map first, or a list with one [L, 4] per map.
    """
    if isinstance(boxes, (list, tuple)):
        boxes = wisp.cat([wisp.cat((wisp.full((len(part), 1), float(index), dtype=part.dtype), part), 1)
                          for index, part in enumerate(boxes)])
    rows, columns = (output_size,) * 2 if isinstance(output_size, int) else output_size
    height, width = input.shape[-2:]
    results = []
    for number, *corners in boxes.tolist():
        shift = 0.5 if aligned else 0.0
        left, top, right, bottom = (value * spatial_scale - shift for value in corners)
        across, down = right - left, bottom - top
        if not aligned:
            across, down = max(across, 1.0), max(down, 1.0)
        tall = sampling_ratio if sampling_ratio > 0 else max(int(-(-down // rows)), 1)
        wide = sampling_ratio if sampling_ratio > 0 else max(int(-(-across // columns)), 1)
        ys = top + (wisp.arange(rows * tall, dtype=input.dtype) + 0.5) * (down / (rows * tall))
        xs = left + (wisp.arange(columns * wide, dtype=input.dtype) + 0.5) * (across / (columns * wide))
        inside = ((ys >= -1) & (ys <= height)).to(input.dtype)[:, None] * ((xs >= -1) & (xs <= width)).to(input.dtype)
        ys, xs = ys.clamp(0, height - 1), xs.clamp(0, width - 1)
        grid = wisp.stack(wisp.broadcast_tensors((xs * 2 + 1) / width - 1, ((ys * 2 + 1) / height - 1)[:, None]), -1)
        sampled = F.grid_sample(input[int(number)][None], grid[None], mode="bilinear", padding_mode="border", align_corners=False)
        results.append(F.avg_pool2d(sampled * inside, (tall, wide)))
    return wisp.cat(results) if results else input.new_zeros(0, input.shape[1], rows, columns)


class RoIAlign(nn.Module):
    """`roi_align` as a layer."""

    def __init__(self, output_size, spatial_scale, sampling_ratio, aligned=False):
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned = output_size, spatial_scale, sampling_ratio, aligned

    def forward(self, input, rois):
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)
