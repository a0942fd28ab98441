"""Parameter and Buffer: the tensors that a module owns, and their lazy forms whose shape is not known yet."""

import functools
from collections import OrderedDict

import wisp
from wisp._compat import module_of
from wisp._tensor import _disabled_torch_function_impl

__all__ = ["Parameter", "UninitializedParameter", "is_lazy", "Buffer", "UninitializedBuffer", "UninitializedTensorMixin"]


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """Undo `Parameter.__reduce_ex__`; the arguments are those of PyTorch's files."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    parameter = Parameter(data, requires_grad)
    parameter.__dict__.update(state)
    return parameter


class _ParameterMeta(type(wisp.Tensor)):
    # A parameter of a program's own subclass of Tensor is of that class, with a mark.
    def __instancecheck__(cls, instance, _is_instance=type.__instancecheck__, _Tensor=wisp.Tensor):
        kind = type(instance)
        if kind is _Tensor or not issubclass(kind, _Tensor):
            return False
        return _is_instance(cls, instance) or (cls is Parameter and getattr(instance, "_is_param", False))


class Parameter(wisp.Tensor, metaclass=_ParameterMeta):
    """A tensor that a module trains: assigned to an attribute of a module, it appears in `module.parameters()`.

    >>> import wisp
    >>> weight = wisp.nn.Parameter(wisp.zeros(2, 3))
    >>> weight.requires_grad, weight.is_leaf
    (True, True)
    """

    __torch_function__ = _disabled_torch_function_impl

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = wisp.empty(0)
        if type(data) is not wisp.Tensor and hasattr(data, "device_mesh"):  # a part of a tensor that many ranks hold stays one
            return data._as_parameter(requires_grad)
        own = isinstance(data, wisp.Tensor) and type(data) is not wisp.Tensor
        if own and (not module_of(type(data)).startswith("wisp.") or getattr(type(data), "_stays_itself", False)):
            made = data.detach().requires_grad_(requires_grad)
            if type(made) is not type(data):
                raise RuntimeError(
                    f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an instance of "
                    f"the same type, but return type {type(made).__name__} was found instead. To use the type as a Parameter, please "
                    "correct the detach() semantics defined by its __torch_dispatch__() implementation."
                )
            made._is_param = True
            return made
        return wisp.Tensor._make_subclass(cls, data, requires_grad)

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        copy = type(self)(self.data.clone(memory_format=wisp.preserve_format), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __copy__(self):
        copy = type(self)(self.data, self.requires_grad)
        copy.__dict__.update(self.__dict__)
        return copy

    def __repr__(self):
        return "Parameter containing:\n" + wisp.Tensor.__repr__(self)

    def __reduce_ex__(self, protocol):
        parts = self.data, self.requires_grad, OrderedDict()
        return (_rebuild_parameter_with_state, (*parts, self.__dict__)) if self.__dict__ else (_rebuild_parameter, parts)


class _BufferMeta(type(wisp.Tensor)):
    # A buffer is an ordinary tensor with a mark, so that operators return ordinary tensors.
    def __instancecheck__(cls, instance):
        if cls is Buffer:
            return isinstance(instance, wisp.Tensor) and getattr(instance, "_is_buffer", False)
        return super().__instancecheck__(instance)


class Buffer(wisp.Tensor, metaclass=_BufferMeta):
    """A tensor that belongs to a module's state but is not trained; assigned to an attribute, it is registered.

    >>> import wisp
    >>> module = wisp.nn.Module()
    >>> module.mean = wisp.nn.Buffer(wisp.zeros(3))
    >>> list(module.state_dict())
    ['mean']
    """

    __torch_function__ = _disabled_torch_function_impl

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = wisp.empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer


_UNKNOWN_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. "
    "This usually means that a lazy module has not been called yet: run one forward pass first."
)


# What asks for neither shape nor values, or is Python's own; any other method or operator would find an empty tensor.
_ANSWERED = {
    *vars(object),
    *"to cpu cuda half float double bfloat16 char short int long bool get_device is_floating_point is_complex copy_ as_subclass".split(),
    *"requires_grad_ register_hook register_post_accumulate_grad_hook __setstate__ __class_getitem__".split(),
    *"_make_subclass _make_wrapper_subclass __torch_function__ __torch_dispatch__".split(),
}


def _refusal(name):
    def refuse(self, *args, **kwargs):
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {name}(). It has no shape before the first forward pass of its module: "
            "call the model once, on an example, before you count, initialize or compute with its parameters."
        )

    return refuse


@functools.cache
def _refuse(cls):
    """Let a class refuse what needs a shape; when its first object is made, so that importing costs nothing."""
    for name in vars(wisp.Tensor).keys() - _ANSWERED - vars(UninitializedTensorMixin).keys() - vars(cls).keys():
        if callable(getattr(wisp.Tensor, name)):
            setattr(cls, name, _refusal(name))


class UninitializedTensorMixin:
    """What the lazy parameter and the lazy buffer share: an empty tensor that `materialize` gives a shape."""

    cls_to_become = None

    def materialize(self, shape, device=None, dtype=None):
        """Become an ordinary parameter or buffer of the given shape, with uninitialized elements, in place."""
        self.data = wisp.empty(shape, device=device or self.data.device, dtype=dtype or self.data.dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError(_UNKNOWN_SHAPE)

    def size(self, dim=None):
        raise RuntimeError(_UNKNOWN_SHAPE)

    def __len__(self):
        raise RuntimeError(_UNKNOWN_SHAPE)

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` once before `module.share_memory()`."
        )

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)


def is_lazy(param):
    """Whether `param` still waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter without a shape, until the module that owns it sees its first input."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        _refuse(cls)
        return wisp.Tensor._make_subclass(cls, wisp.empty(0, device=device, dtype=dtype), requires_grad)


class MaterializedBuffer(wisp.Tensor):
    """What a lazy buffer is between getting its shape and the end of its module's first call, which puts an ordinary
    tensor in its place (an object can't become an instance of a class that is written in C)."""

    __torch_function__ = _disabled_torch_function_impl  # as for Parameter: results are ordinary tensors, and other calls need not look


class UninitializedBuffer(UninitializedTensorMixin, wisp.Tensor):
    """A buffer without a shape, until the module that owns it sees its first input."""

    __torch_function__ = _disabled_torch_function_impl
    cls_to_become = MaterializedBuffer

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        _refuse(cls)
        buffer = wisp.Tensor._make_subclass(cls, wisp.empty(0, device=device, dtype=dtype), requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer
