"""What tests of graphs and libraries reach by inner names of PyTorch: `torch._C._functions`, `torch._C._autograd`."""

import wisp
from wisp.autograd import graph


class _Undefined(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, *tensors):
        return tuple(t.view_as(t) for t in tensors) if len(tensors) > 1 else tensors[0].view_as(tensors[0])

    @staticmethod
    def backward(ctx, *grads):
        return (None,) * len(grads)


class _Failing(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, message, *tensors):
        ctx.message = message
        return tuple(t.detach() for t in tensors) if len(tensors) > 1 else tensors[0].detach()

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(ctx.message)


class UndefinedGrad:
    """Gives its arguments back; their gradients are undefined."""

    def __call__(self, *tensors):
        return _Undefined.apply(*tensors)


class DelayedError:
    """Gives its arguments back; backward raises an error."""

    def __init__(self, message, num_inputs):
        self.message = message

    def __call__(self, *tensors):
        return _Failing.apply(self.message, *tensors)


def _saved_tensors_hooks_is_enabled():
    """Whether hooks of saved tensors may be used here."""
    return graph._disabled is None
