"""Variable: what tensors with gradients were called once."""

import wisp
from wisp import _core


class _Engine:
    """What programs reach as `Variable._execution_engine`."""

    @staticmethod
    def queue_callback(callback):
        """During a backward pass: call `callback()` when it has ended.

        >>> import wisp
        >>> x = wisp.ones(1, requires_grad=True)
        >>> engine = wisp.autograd.Variable._execution_engine
        >>> handle = x.register_hook(lambda grad: engine.queue_callback(lambda: print("done", x.grad)))
        >>> x.sum().backward()
        done tensor([1.])
        """
        _core._queue_callback(callback)


class _VariableMeta(type):
    def __instancecheck__(cls, value):
        return isinstance(value, wisp.Tensor)


class Variable(metaclass=_VariableMeta):
    """`Variable(data, requires_grad)` is a tensor that shares memory with `data`; every tensor is a Variable."""

    _execution_engine = _Engine()

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        if data is None:
            return wisp.empty(0, requires_grad=requires_grad)
        if volatile is not None or requires_grad:
            return data.detach().requires_grad_(requires_grad and not volatile)
        return data.detach() if data.grad_fn is None else data
