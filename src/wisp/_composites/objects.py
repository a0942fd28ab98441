"""What programs ask of tensors as objects: their storage, other types for them, Python functions on their elements."""

import wisp
from wisp import _core

_op = _core._operators[""]


def untyped_storage(self):
    """The memory behind the tensor, in bytes."""
    from wisp import storage

    return storage.of(self)


def _storage_method(self):
    """The memory behind the tensor, in elements."""
    from wisp import storage

    return storage.TypedStorage(wrap_storage=storage.of(self), dtype=self.dtype)


_storage_method.__name__ = "storage"


def storage_type(self):
    """The class of the tensor's storage."""
    from wisp import storage

    return storage.TypedStorage


def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Make the tensor view other memory: another tensor's, or a storage."""
    if source is None:
        return _op["_set"](self, self.new_empty(0))
    if not isinstance(source, _core.Tensor):
        memory = source.untyped()
        if getattr(source, "dtype", self.dtype) != self.dtype:
            raise RuntimeError(
                f"Expected a Storage of type {self.dtype} or an UntypedStorage, but got type {source.dtype} for argument 1 'storage'"
            )
        if size is None:
            size = [(memory.nbytes() // self.element_size()) - storage_offset]
        if stride is None:
            stride = _op["empty"](size, dtype=self.dtype).stride()
        return _op["_set"](self, _op["_from_storage"](memory._bytes, self.dtype, size, stride, storage_offset))
    if source.dtype != self.dtype:
        raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
    if size is not None:
        strides = stride if stride is not None else _op["empty"](size, dtype=self.dtype).stride()
        source = source.detach().as_strided(size, strides, storage_offset)
    return _op["_set"](self, source.detach())


def apply_(self, callable):
    """Replace each element by `callable` of it, one at a time."""
    values = [callable(v) for v in self.detach().reshape(-1).tolist()]
    self.detach().copy_(_core.tensor(values, dtype=self.dtype, device=self.device).reshape(self.shape))
    return self


def map_(self, tensor, callable):
    """Replace each element by `callable` of it and of the one of another tensor, one at a time."""
    pairs = zip(self.detach().reshape(-1).tolist(), tensor.detach().expand(self.shape).reshape(-1).tolist())
    self.detach().copy_(_core.tensor([callable(a, b) for a, b in pairs], dtype=self.dtype, device=self.device).reshape(self.shape))
    return self


def map2_(self, x, y, callable):
    """Replace each element by `callable` of it and of those of two other tensors, one at a time."""
    if any(t.requires_grad for t in (self, x, y)):
        raise RuntimeError("Can't call map2_() on Variable that requires grad. Use var.detach().map2_() instead.")
    values = zip(*(t.expand(self.shape).reshape(-1).tolist() for t in (self, x, y)))
    self.copy_(_core.tensor([callable(*v) for v in values], dtype=self.dtype, device=self.device).reshape(self.shape))
    return self


def as_subclass(self, cls):
    """The same tensor, with the same history, as an instance of a subclass of Tensor."""
    if not (isinstance(cls, type) and issubclass(cls, _core.Tensor)):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your class inherits "
            f"from Tensor: got {cls!r}"
        )
    if type(self) is not _core.Tensor:  # which would answer itself, with a tensor of its own class
        from wisp.overrides import DisableTorchFunctionSubclass

        with DisableTorchFunctionSubclass():
            return _core._operators[""]["_as_class"](self, cls)
    if cls is _core.Tensor and not self.requires_grad:
        return self.detach()
    return _core._operators[""]["_as_class"](self, cls)


def _check_one_order(tensor, formats):
    if formats is True:
        strides = [s for s, n in zip(tensor.stride(), tensor.shape)]
        if len(set(strides)) != len(strides) or 1 in tensor.shape or 0 in tensor.shape:
            raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    elif not isinstance(formats, (list, tuple)) or not all(isinstance(f, type(_core.contiguous_format)) for f in formats):
        raise TypeError(f"The ambiguity_check argument must be a bool or a list of memory formats, got {formats!r}")
    elif sum(tensor.is_contiguous(memory_format=f) for f in formats) != 1:
        raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")


def dim_order(self, *, ambiguity_check=False):
    """The dimensions from the outermost in memory to the innermost. With `ambiguity_check` (or formats to check for) it must be the only
    such order, or that of exactly one of the formats."""
    if self.layout is not _core.strided:
        raise AttributeError(f"Can't get dim order on sparse type: {type(self)}: use Tensor.to_dense() first")
    if ambiguity_check:
        _check_one_order(self, ambiguity_check)
    return tuple(sorted(range(self.dim()), key=lambda d: -self.stride()[d]))


def const_data_ptr(self):
    """The address of the first element, for reading."""
    return self.data_ptr()


def record_stream(self, stream):
    """Another stream uses this tensor too: its memory is not used again before that work is done. Nothing to do on the CPU."""
    if self.is_cuda:
        _core._operators["_cuda"]["record_stream"](self, stream.cuda_stream)


def module_load(self, other, assign=False):
    """What `load_state_dict` puts in place of this parameter."""
    from wisp import overrides

    if overrides.has_torch_function((self, other)):  # the class of what is loaded may have its say
        return overrides.handle_torch_function(wisp.Tensor.module_load, (self, other), self, other, assign=assign)
    return other.detach() if assign else self.detach().copy_(other)


def __complex__(self):
    if self.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return complex(self.item())


def __array_wrap__(self, array, *_):
    return _core.from_numpy(array.astype("uint8") if array.dtype == bool else array)  # as PyTorch has it


# --- checks ---------------------------------------------------------------------------------------------------------


def _assert(condition, message):
    """Raise AssertionError unless the condition holds."""
    if hasattr(type(condition), "__torch_function__") and type(condition) is not _core.Tensor:  # a traced value has no truth yet
        from wisp.overrides import handle_torch_function, has_torch_function

        if has_torch_function((condition,)):
            return handle_torch_function(_assert, (condition,), condition, message)
    if not condition:
        raise AssertionError(message)


def _check_with(error_type, cond, message=None):
    """Raise an error of that type unless the condition holds."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise error_type(str(message()) if callable(message) else "Expected cond to be True, but got False.")


def _check(cond, message=None):
    """Raise RuntimeError unless the condition holds."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond, message=None):
    """Raise IndexError unless the condition holds."""
    _check_with(IndexError, cond, message)


def _check_value(cond, message=None):
    """Raise ValueError unless the condition holds."""
    _check_with(ValueError, cond, message)


def _check_type(cond, message=None):
    """Raise TypeError unless the condition holds."""
    _check_with(TypeError, cond, message)


def _check_is_size(i, message=None, *, max=None):
    """Raise RuntimeError unless a number can be a size."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all(cond, message=None):
    """Raise RuntimeError unless every element holds."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_tensor_all_with(error_type, cond, message=None):
    """Raise an error of that type unless every element holds."""
    if not isinstance(cond, _core.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _core.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all().item()), message)


def to_padded_tensor(self, padding, output_size=None):
    """A dense tensor of a nested one: the parts, filled up with `padding` (see `wisp.nested`)."""
    raise NotImplementedError("to_padded_tensor: the tensor is not nested; make one with torch.nested.nested_tensor or as_nested_tensor")


FUNCTIONS = [
    _assert,
    _check,
    _check_with,
    _check_index,
    _check_value,
    _check_type,
    _check_is_size,
    _check_tensor_all,
    _check_tensor_all_with,
]
METHODS = [
    untyped_storage,
    _storage_method,
    storage_type,
    set_,
    apply_,
    map_,
    map2_,
    as_subclass,
    dim_order,
    const_data_ptr,
    record_stream,
    to_padded_tensor,
    module_load,
    __complex__,
    __array_wrap__,
]
INPLACE = []
