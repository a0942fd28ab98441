"""Operators that PyTorch's programs reach as `torch.ops.aten.name` only, with the arguments that they have there."""

import builtins

import wisp
from wisp.nn import functional as F


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """A convolution of one, two or three dimensions, or a transposed one."""
    if groups <= 0:
        raise RuntimeError(f"expected groups to be greater than 0, but got groups={groups}")
    dims = weight.dim() - 2
    if transposed:
        one = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
        return one(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return (F.conv1d, F.conv2d, F.conv3d)[dims - 1](input, weight, bias, stride, padding, dilation, groups)


def convolution_backward(
    grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
):
    """The gradients of a convolution by its input, weight and bias; None where the mask says so."""
    if groups <= 0:
        raise RuntimeError(f"expected groups to be greater than 0, but got groups={groups}")
    if len(output_mask) != 3:
        raise RuntimeError(f"output_mask: expected 3 elements, got {len(output_mask)}")
    with wisp.enable_grad():
        bias = weight.new_zeros(weight.shape[1] * groups if transposed else weight.shape[0]) if output_mask[2] else None
        tensors = [None if t is None else t.detach().requires_grad_() for t in (input, weight, bias)]
        result = convolution(*tensors, stride, padding, dilation, transposed, output_padding, groups)
        wanted = [t for t, on in zip(tensors, output_mask) if on]
        found = iter(wisp.autograd.grad(result, wanted, grad_output) if wanted else ())
    return tuple(next(found) if on else None for on in output_mask)


def copy(self, src, non_blocking=False):
    """The values of `src` with the shape and dtype of `self`."""
    return src.to(self.dtype).expand(self.shape).clone()


def silu_backward(grad_output, self):
    """The gradient of silu."""
    s = wisp.sigmoid(self)
    return grad_output * s * (1 + self * (1 - s))


def _softmax(self, dim, half_to_float=False):
    """softmax along a dimension."""
    return wisp.softmax(self, dim, wisp.float32 if half_to_float else None)


def _log_softmax(self, dim, half_to_float=False):
    """log_softmax along a dimension."""
    return wisp.log_softmax(self, dim, wisp.float32 if half_to_float else None)


def slice(self, dim=0, start=None, end=None, step=1):
    """A part of the tensor along a dimension."""
    key = [builtins.slice(None)] * self.dim()
    key[dim] = builtins.slice(start, end, step)
    return self[tuple(key)]


def slice_copy(self, dim=0, start=None, end=None, step=1):
    """A copy of a part of the tensor along a dimension."""
    return slice(self, dim, start, end, step).clone(memory_format=wisp.contiguous_format)


def index(self, indices):
    """The elements that tensors of indices name, one for each dimension; None takes all of one."""
    if not indices:
        raise IndexError("index: at least one index must be provided")
    return self[tuple(builtins.slice(None) if i is None else i for i in indices)]


def alias(self):
    """The same memory again."""
    return self.view_as(self)


def lift_fresh(self):
    """The tensor itself: one that was made of Python's numbers."""
    return self


def _to_copy(self, *, dtype=None, layout=None, device=None, pin_memory=False, non_blocking=False, memory_format=None):
    """A copy with another dtype, device or memory format."""
    options = {"dtype": dtype, "device": device, "memory_format": memory_format}
    return self.to(**{k: v for k, v in options.items() if v is not None}, copy=True)


def _local_scalar_dense(self):
    """The number in a tensor of one element."""
    if self.numel() == 0:
        raise RuntimeError("_local_scalar_dense: Empty tensor not supported")
    return self.item()


def _padding(name, mode):
    def pad(self, padding):
        return F.pad(self, list(padding), mode)

    pad.__name__, pad.__doc__ = name, f"`pad` with mode {mode!r}."
    return pad


for _mode, _named in (("reflect", "reflection"), ("replicate", "replication")):
    for _name in (f"{_named}_pad{_d}d" for _d in (1, 2, 3)):
        globals()[_name] = _padding(_name, _mode)
