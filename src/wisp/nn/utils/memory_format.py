"""Conversion of convolution weights to a memory format."""

from wisp.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module, kinds, dims, memory_format):
    for child in module.modules():
        if isinstance(child, kinds) and child.weight.dim() == dims:
            child.weight.data = child.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Store the weights of all 2d convolutions in `memory_format`, such as `channels_last`."""
    return _convert(module, (Conv2d, ConvTranspose2d), 4, memory_format)


def convert_conv3d_weight_memory_format(module, memory_format):
    """Store the weights of all 3d convolutions in `memory_format`, such as `channels_last_3d`."""
    return _convert(module, (Conv3d, ConvTranspose3d), 5, memory_format)
