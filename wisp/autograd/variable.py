"""Variable: what tensors with gradients were called once."""
import wisp


class _VariableMeta(type):
    def __instancecheck__(cls, value):
        return isinstance(value, wisp.Tensor)


class Variable(metaclass=_VariableMeta):
    """`Variable(data, requires_grad)` is a tensor that shares memory with `data`; every tensor is a Variable."""

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        if data is None:
            return wisp.empty(0, requires_grad=requires_grad)
        if volatile is not None or requires_grad:
            return data.detach().requires_grad_(requires_grad and not volatile)
        return data.detach() if data.grad_fn is None else data
