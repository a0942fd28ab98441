"""What tests of graphs and libraries reach by inner names of PyTorch: `torch._C._functions`, `torch._C._autograd`."""

import wisp
from wisp import _core
from wisp.autograd import graph


class SavedTensor:
    """A tensor that a node keeps for backward: `node._raw_saved_self`, or one of `node._raw_saved_tensors`."""

    __slots__ = ("_node", "_place")

    def __init__(self):
        raise RuntimeError(
            "Trying to create a SavedTensor object from Python is forbidden. Make one with torch._C._autograd._make_saved_tensor, or read "
            "it from a node."
        )

    def register_hooks(self, *hooks):
        """Let `pack_hook(tensor)` say what is kept, and `unpack_hook` bring the tensor back."""
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError(f"register_hooks(): incompatible function arguments: expected two functions, got {hooks}")
        _core._saved_hooks(self._node, self._place, *hooks)

    @property
    def data(self):
        """What is kept: the object that a hook has packed, or the tensor, which for a result has no history."""
        return _core._saved_parts(self._node, self._place)[0]

    @property
    def unpack_hook(self):
        """The hook that brings the tensor back, or None."""
        return _core._saved_parts(self._node, self._place)[1]

    def unpack(self):
        """The tensor."""
        return _core._node_saved_tensors(self._node)[self._place]


def _saved_tensor(node, place):
    made = object.__new__(SavedTensor)
    made._node, made._place = node, place
    return made


class _Keep(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, is_output):
        result = tensor.view_as(tensor)
        ctx.save_for_backward(result if is_output else tensor)
        return result


def _make_saved_tensor(tensor, is_output=False):
    """A tensor kept as a node would keep it."""
    with wisp.enable_grad():
        return _Keep.apply(tensor, is_output).grad_fn._raw_saved_tensors[0]


class _Undefined(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, *tensors):
        return tuple(t.view_as(t) for t in tensors) if len(tensors) > 1 else tensors[0].view_as(tensors[0])

    @staticmethod
    def backward(ctx, *grads):
        return (None,) * len(grads)


class _Failing(wisp.autograd.Function):
    _node_name = "Error"

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


for _class in (UndefinedGrad, DelayedError):
    graph.Node.register(_class)


def _saved_tensors_hooks_is_enabled():
    """Whether hooks of saved tensors may be used here."""
    return graph._disabled is None


def __getattr__(name):
    if name == "AccumulateGrad":  # the class of a leaf's node
        return type(graph._gradient_node(wisp.zeros((), requires_grad=True)))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
