"""The gradients of convolutions, as functions: of the input, and of the weight."""

import wisp
from wisp.nn import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradient(convolve, input, weight, wanted, grad_output, *options):
    """The gradient of one operand; that its own values don't matter is what makes these functions possible."""
    again = wisp.is_grad_enabled() and any(tensor.requires_grad for tensor in (input, weight, grad_output))
    with wisp.enable_grad():
        return wisp.autograd.grad(convolve(input, weight, None, *options), wanted, grad_output, create_graph=again)[0]


def _of_input(convolve, input_size, weight, grad_output, *options):
    input = wisp.zeros(input_size, dtype=weight.dtype, device=weight.device, requires_grad=True)
    return _gradient(convolve, input, weight, input, grad_output, *options)


def _of_weight(convolve, input, weight_size, grad_output, *options):
    weight = wisp.zeros(weight_size, dtype=input.dtype, device=input.device, requires_grad=True)
    return _gradient(convolve, input, weight, weight, grad_output, *options)


def conv1d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of `conv1d` with respect to its input.

    >>> import wisp
    >>> wisp.nn.grad.conv1d_input((1, 1, 4), wisp.ones(1, 1, 2), wisp.ones(1, 1, 3))
    tensor([[[1., 2., 2., 1.]]])
    """
    return _of_input(F.conv1d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of `conv1d` with respect to its weight.

    >>> import wisp
    >>> wisp.nn.grad.conv1d_weight(wisp.ones(1, 1, 4), (1, 1, 2), wisp.ones(1, 1, 3))
    tensor([[[3., 3.]]])
    """
    return _of_weight(F.conv1d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of `conv2d` with respect to its input.

    >>> import wisp
    >>> wisp.nn.grad.conv2d_input((1, 1, 2, 2), wisp.ones(1, 1, 2, 1), wisp.ones(1, 1, 1, 2))
    tensor([[[[1., 1.],
              [1., 1.]]]])
    """
    return _of_input(F.conv2d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of `conv2d` with respect to its weight.

    >>> import wisp
    >>> wisp.nn.grad.conv2d_weight(wisp.ones(1, 1, 2, 2), (1, 1, 2, 1), wisp.ones(1, 1, 1, 2))
    tensor([[[[2.],
              [2.]]]])
    """
    return _of_weight(F.conv2d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of `conv3d` with respect to its input.

    >>> import wisp
    >>> wisp.nn.grad.conv3d_input((1, 1, 1, 1, 2), wisp.ones(1, 1, 1, 1, 2), wisp.ones(1, 1, 1, 1, 1)).shape
    torch.Size([1, 1, 1, 1, 2])
    """
    return _of_input(F.conv3d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of `conv3d` with respect to its weight.

    >>> import wisp
    >>> wisp.nn.grad.conv3d_weight(wisp.ones(1, 1, 1, 1, 2), (1, 1, 1, 1, 2), wisp.ones(1, 1, 1, 1, 1)).shape
    torch.Size([1, 1, 1, 1, 2])
    """
    return _of_weight(F.conv3d, input, weight_size, grad_output, stride, padding, dilation, groups)
