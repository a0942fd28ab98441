"""Methods of Tensor that are written in Python: printing, NumPy, hooks, pickling."""

import copy as _copy
import copyreg as _copyreg
import weakref as _weakref

from wisp import _core
from wisp._core import Tensor  # noqa: F401 (programs import it from here)

_note_export = _core._operators[""]["_note_export"]
_storage = _core._operators[""]["_storage"]


class _Array:
    """What NumPy needs to see a tensor's memory. Holds a tensor of its own on it, since the first one may be given other memory."""

    def __init__(self, tensor, interface):
        self.tensor, self.__array_interface__ = tensor, interface


_KINDS = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}


def _kind_of(tensor):
    """The dtype as NumPy's array interface writes it."""
    kind = _KINDS.get(str(tensor.dtype)[6:])
    if kind is None:
        wide = "cfloat" if tensor.is_complex() else "float"
        raise TypeError(f"Got unsupported ScalarType {TYPE_NAMES[tensor.dtype]}: NumPy has no such type; convert with .{wide}()")
    return kind


def numpy(self, *, force=False):
    """The same memory as a NumPy array; with `force` a copy where sharing is impossible."""
    import numpy as np

    if self.requires_grad and (force or _core.is_grad_enabled()):
        if not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        self = self.detach()
    if self.device.type != "cpu":
        if not force or self.is_meta:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
            )
        self = self.cpu()
    kind = _kind_of(self)
    if self.numel() == 0:
        return np.empty(tuple(self.shape), kind)
    size = self.element_size()
    _note_export(self)
    return np.asarray(
        _Array(
            _storage(self),
            {
                "shape": tuple(self.shape),
                "typestr": kind,
                "version": 3,
                "data": (self.data_ptr(), False),
                "strides": tuple(s * size for s in self.stride()),
            },
        )
    )


def __array__(self, dtype=None, copy=None):
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def _repr(self):
    from wisp._tensor.printing import tensor_str

    return tensor_str(self)


def __repr__(self, *, tensor_contents=None):
    from wisp._tensor.printing import tensor_str

    return tensor_str(self, tensor_contents)


def _repr_html_(self):
    from wisp.viz import tensor_html

    return tensor_html(self)


def __format__(self, spec):
    if self.dim() == 0:
        return self.item().__format__(spec)
    return object.__format__(self, spec)


def _contains(self, element):
    if isinstance(element, (bool, int, float, complex, _core.Tensor)):
        return (self == element).any().item()
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


def register_hook(self, hook):
    """Call `hook(grad)` when the gradient of this tensor is known; a tensor it returns replaces the gradient."""
    from wisp.utils.hooks import add_hook

    return add_hook(self._hooks_dict(), hook)


def register_post_accumulate_grad_hook(self, hook):
    """Call `hook(tensor)` after `.grad` of this leaf was added to."""
    from wisp.utils.hooks import add_hook

    return add_hook(self._post_accumulate_dict(), hook)


class _Memory:
    """A storage in a pickle: written once, however many tensors lie in it."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        if self.data.is_meta:
            return _meta_memory, (self.data.numel(),)
        return _memory, (self.data.detach().cpu().numpy().tobytes(), str(self.data.device))


def _memory(data, device):
    if not data:
        return _core.empty(0, dtype=_core.uint8, device=device)
    return _core.frombuffer(bytearray(data), dtype=_core.uint8).clone().to(device)


def _meta_memory(size):
    return _core.empty(size, dtype=_core.uint8, device="meta")


_memories = _weakref.WeakValueDictionary()  # by address: an entry keeps its memory, so that the address stays its own


def __reduce_ex__(self, protocol):
    cls = None if type(self) is _core.Tensor else type(self)  # the base class goes by PyTorch's name, which pickle can't find
    key = self._storage_ptr(), self._storage_bytes()
    memory = _memories.get(key)
    if memory is None:
        memory = _Memory(_core._operators[""]["_storage"](self.detach()))
        if key[0]:
            _memories[key] = memory
    place = tuple(self.shape), tuple(self.stride()), self.storage_offset()
    return _rebuild_in, (cls, memory, self.dtype, *place, self.requires_grad, self.__dict__)


def _rebuild_in(cls, memory, dtype, shape, stride, offset, requires_grad, attributes):
    data = memory.data if isinstance(memory, _Memory) else memory  # copy.copy: the same memory
    tensor = _core._operators[""]["_from_storage"](data, dtype, list(shape), list(stride), offset)
    if cls is not None:
        tensor = _core.Tensor._make_subclass(cls, tensor, requires_grad)
    else:
        tensor.requires_grad_(requires_grad)
    tensor.__dict__.update(attributes)
    return tensor


def _rebuild_from_type_v2(func, new_type, args, state):
    """What a tensor with attributes, or of a subclass, is made by in PyTorch's pickles."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    elif isinstance(state, tuple):
        made.__dict__.update(state[0])
    else:
        made.__dict__.update(state)
    return made


def _copied_in_memory(tensor, memo):
    """A copy that lies in the copy of the tensor's memory, as the copies of its other views do."""
    if tensor.device.type == "meta":
        return tensor.detach().clone()
    private = _core._operators[""]
    key = "memory", tensor._storage_ptr()
    if key not in memo or not tensor._storage_ptr():
        memory = private["_storage"](tensor.detach())
        memo[key] = memory.clone()
        memo.setdefault(id(memo), []).append(memory)  # its address must not be used again while the memo lives
    return private["_from_storage"](memo[key], tensor.dtype, list(tensor.shape), list(tensor.stride()), tensor.storage_offset())


def __copy__(self):
    """Another tensor over the same memory."""
    reduce = type(self).__reduce_ex__
    if reduce is not _core.Tensor.__reduce_ex__:  # a subclass that says itself how it is made again
        function, arguments, *rest = reduce(self, 4)
        return _copy._reconstruct(self, None, function, arguments, *rest)
    new = self.detach()
    if type(self) is not _core.Tensor:
        new = _core.Tensor._make_subclass(type(self), new, self.requires_grad)
    else:
        new.requires_grad_(self.requires_grad)
    new.__dict__.update(self.__dict__)
    return new


def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage"
        )
    if id(self) in memo:
        return memo[id(self)]
    if "_wrapper_device" in self.__dict__:  # no memory of its own: the class copies
        new = self.detach().clone()
        if type(new) is not type(self):
            raise RuntimeError(
                f"The default implementation of __deepcopy__() for wrapper subclasses only works for subclass types that properly "
                f"implement clone(): that of {type(self).__name__} returned a {type(new).__name__}"
            )
        new.requires_grad_(self.requires_grad)
    else:
        new = _copied_in_memory(self, memo)
    if "_wrapper_device" in self.__dict__:
        pass
    elif type(self) is not _core.Tensor:
        new = _core.Tensor._make_subclass(type(self), new, self.requires_grad)
    elif self.requires_grad:
        new.requires_grad_()
    memo[id(self)] = new
    if self.grad is not None:
        new.grad = _copy.deepcopy(self.grad, memo)
    new.__dict__.update(_copy.deepcopy(self.__dict__, memo))
    for name in _copyreg._slotnames(type(self)):
        if hasattr(self, name):
            setattr(new, name, _copy.deepcopy(getattr(self, name), memo))
    return new


def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    if stream is not None and type(stream) is not int:
        raise TypeError(f"stream must be ``int`` or ``none``, got {type(stream).__name__}")
    if self.layout is not _core.strided:
        raise BufferError("Can't export tensors with layout other than torch.strided")
    for reason, met in (("require gradient, use tensor.detach()", self.requires_grad), ("have the conjugate bit set", self.is_conj())):
        if met:
            raise BufferError(f"Can't export tensors that {reason}")
    if stream not in (None, -1) and self.device.type == "cpu":
        raise AssertionError("stream should be None on cpu.")
    if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
        if int(dl_device[0]) not in (1, 2):
            raise BufferError(f"Unsupported device_type: {int(dl_device[0])}")
        if dl_device[0] != 1 or copy is False:
            raise BufferError(f"Tensor.__dlpack__: the tensor lives on {self.device}, not on {tuple(dl_device)}; copy it there first")
        return self.cpu().__dlpack__()
    if self.is_cuda and stream != -1:  # the taker's stream waits for the work that fills the tensor; None means CUDA's own default, 1
        from wisp.cuda import ExternalStream, current_stream

        mine = current_stream(self.device)
        if (mine.cuda_stream or 1) != (stream or 1):
            ExternalStream(stream or 1, self.device).wait_stream(mine)
    _note_export(self)
    return _core._to_dlpack(self.clone() if copy else self)


def __dlpack_device__(self):
    return (2, self.device.index) if self.is_cuda else (1, 0)


# "torch." + name + "Tensor" is what PyTorch calls the type of a tensor, also in its errors.
TYPE_NAMES = {
    _core.float32: "Float",
    _core.float64: "Double",
    _core.float16: "Half",
    _core.bfloat16: "BFloat16",
    _core.uint8: "Byte",
    _core.int8: "Char",
    _core.int16: "Short",
    _core.int32: "Int",
    _core.int64: "Long",
    _core.bool: "Bool",
    _core.complex64: "ComplexFloat",
    _core.complex128: "ComplexDouble",
    _core.complex32: "ComplexHalf",
    **{getattr(_core, f"float8_{kind}"): f"Float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")},
}


def type_(self, dtype=None, non_blocking=False, **kwargs):
    """The name of the tensor's type, or the tensor converted to a dtype or named type."""
    if dtype is None:
        return ("torch.cuda." if self.is_cuda else "torch.") + TYPE_NAMES.get(self.dtype, "") + "Tensor"
    if dtype is _core.Tensor:
        dtype = _core.get_default_dtype()
    on_cuda = getattr(dtype, "is_cuda", None) if isinstance(dtype, type) else None
    if isinstance(dtype, str):
        on_cuda = dtype.startswith("torch.cuda.")
        name = dtype.split(".")[-1]
        found = [d for d, t in TYPE_NAMES.items() if t + "Tensor" == name]
        if not found:
            raise ValueError(f"invalid type: {dtype!r}")
        dtype = found[0]
    elif isinstance(dtype, type) and hasattr(dtype, "dtype"):
        dtype = dtype.dtype
    if on_cuda is not None and on_cuda != self.is_cuda and self.device.type in ("cpu", "cuda"):
        return self.to("cuda" if on_cuda else "cpu", dtype)
    return self.to(dtype)


def cuda(self, device=None, non_blocking=False, memory_format=None):
    """The tensor on a GPU: the current one, or `device`."""
    moved = self.to("cuda" if device is None else device, non_blocking=non_blocking)
    return moved if memory_format is None else moved.to(memory_format=memory_format)


def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor of `data` with this tensor's dtype."""
    data = data.detach().clone() if isinstance(data, _core.Tensor) else data
    return _core.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad, pin_memory=pin_memory)


def new(self, *args, **kwargs):
    """A tensor of this one's dtype, made as by the old constructors: of sizes, or of data."""
    from wisp._tensor.legacy import new_tensor as legacy

    return legacy(*args, dtype=self.dtype, **kwargs)


def share_memory_(self):
    """Move the memory, in place, to where other processes can see it (see `wisp.multiprocessing`).

    >>> import wisp
    >>> wisp.ones(2).share_memory_().is_shared()
    True
    """
    if self.device.type == "cpu":
        from wisp.multiprocessing.shared import share

        share(self.detach())
    return self


def is_shared(self):
    """Whether other processes can see the memory."""
    return self.device.type == "cuda" or _core._operators[""]["_is_shared"](self.detach())


def get_device(self):
    """The number of the GPU that the tensor lives on, -1 on the CPU."""
    return -1 if self.device.type == "cpu" else self.device.index or 0


def is_set_to(self, tensor):
    """Whether both tensors are the same view of the same memory."""
    return self.data_ptr() == tensor.data_ptr() != 0 and self.shape == tensor.shape and self.stride() == tensor.stride()


def __cuda_array_interface__(self):
    if not self.is_cuda:
        raise AttributeError(f"Tensor.__cuda_array_interface__: the tensor lives on {self.device}, not on a GPU; move it with .cuda()")
    if self.requires_grad:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. Use tensor.detach() first")
    size = self.element_size()
    strides = None if self.is_contiguous() else tuple(s * size for s in self.stride())
    return {"typestr": _kind_of(self), "shape": tuple(self.shape), "strides": strides, "data": (self.data_ptr(), False), "version": 2}


def _dir(self):
    names = set(dir(type(self))) | set(self.__dict__)
    return sorted(names if self.is_cuda else names - {"__cuda_array_interface__"})


def __reversed__(self):
    return self if self.dim() == 0 else self.flip(0)


def dequantize(self):
    """The numbers that a quantised tensor stands for; another tensor in float32."""
    from wisp._tensor import quantized

    return quantized.dequantize(self)


def int_repr(self):
    """The integers of a quantised tensor."""
    from wisp._tensor import quantized

    return quantized.int_repr(self)


def qscheme(self):
    """Whether a quantised tensor has one scale, or one for each channel."""
    raise NotImplementedError("qscheme: the tensor is not quantised; see torch.quantize_per_tensor")


def __div__(self, other):
    """`self / other`, by Python 2's name."""
    return self / other


def __idiv__(self, other):
    """`self /= other`, by Python 2's name."""
    self /= other
    return self


def __rdiv__(self, other):
    return self.reciprocal() * other


def _disabled_torch_function_impl(func, types=(), args=(), kwargs=None):
    from wisp.overrides import DisableTorchFunctionSubclass

    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def _disabled_torch_dispatch_impl(func, types=(), args=(), kwargs=None):
    """What Tensor itself has for `__torch_dispatch__`: the operator as it is."""
    from wisp._tensor.dispatch import no_dispatch

    with no_dispatch():
        return func(*args, **(kwargs or {}))


shells = False  # whether a program has made tensors without memory of their own


def has_shells(tensors):
    """Whether one of the tensors has no memory, so that the core's steps over many tensors cannot take them."""
    return shells and any("_wrapper_device" in tensor.__dict__ for tensor in tensors)


def _make_wrapper_subclass(cls, *args, **kwargs):
    from wisp._tensor.dispatch import make_wrapper_subclass

    global shells
    shells = True
    return make_wrapper_subclass(cls, *args, **kwargs)


def _ones_like(self):
    """Where backward begins at a tensor without memory of its own."""
    return _core.ones_like(self)


def _torch_function(cls, func, types, args=(), kwargs=None):
    from wisp.overrides import default_torch_function

    return default_torch_function(cls, func, types, args, kwargs)


def _init_subclass(cls, **kwargs):
    super(_core.Tensor, cls).__init_subclass__(**kwargs)
    if cls.__torch_dispatch__ is not _core.Tensor.__torch_dispatch__:
        from wisp._tensor.dispatch import dispatching_class

        if getattr(cls.__torch_function__, "__func__", None) is _core.Tensor.__torch_function__.__func__:
            cls.__torch_function__ = _disabled_torch_function_impl  # as PyTorch does: a class answers on one level, unless it says so
        dispatching_class(cls)
    if cls.__torch_function__ is not _disabled_torch_function_impl:
        from wisp.overrides import subclassed

        subclassed(cls)


def _size(sizes):
    return _core.Size(sizes)


def _device(name):
    return _core.device(name)


def _named(name):
    return getattr(_core, name)


def _generator(device, state):
    generator = _core.Generator(device)
    generator.set_state(state)
    return generator


# These types go by PyTorch's names, under which pickle would not find them.
_copyreg.pickle(_core.Size, lambda size: (_size, (tuple(size),)))
_copyreg.pickle(_core.device, lambda device: (_device, (str(device),)))
for _type in (_core.dtype, _core.layout, _core.memory_format):
    _copyreg.pickle(_type, lambda value: (_named, (str(value).split(".")[-1],)))
# A generator, as loaders with one are sent to workers, goes on where it stood.
_copyreg.pickle(_core.Generator, lambda generator: (_generator, (str(generator.device), generator.get_state())))


_NO_METHODS = set(
    """
    install _Array _rebuild_in _rebuild_from_type_v2 _Memory _memory _copied_in_memory _size _kind_of _device _named _generator
    _disabled_torch_function_impl _disabled_torch_dispatch_impl _torch_function _init_subclass _make_wrapper_subclass has_shells _get_hooks
    _set_hooks note_swap _cdata""".split()
)

_swaps = {}  # id -> a number of its own, of a tensor that utils.swap_tensors has given other content
_next_swap = -1


def note_swap(tensor):
    """`_cdata` is another one from now on."""
    global _next_swap
    if id(tensor) not in _swaps:
        _weakref.finalize(tensor, _swaps.pop, id(tensor), None).atexit = False
    _swaps[id(tensor)], _next_swap = _next_swap, _next_swap - 1


def _cdata(self):
    return _swaps.get(id(self), id(self))


def _get_hooks(self):
    if not self.requires_grad:
        return vars(self).get("_unused_hooks")
    return self._hooks_dict() or None


def _set_hooks(self, hooks):
    if self.requires_grad:
        own = self._hooks_dict()
        own.clear()
        own.update(hooks or {})
    else:  # nothing calls them, but the program finds them again
        self._unused_hooks = hooks


def install():
    """Put the functions above into the Tensor type."""
    own = {name: f for name, f in globals().items() if callable(f) and getattr(f, "__module__", None) == __name__}
    methods = {name: f for name, f in own.items() if name not in _NO_METHODS}
    methods["type"], methods["__dir__"] = methods.pop("type_"), methods.pop("_dir")
    methods["__array_priority__"] = 1000
    methods["__torch_function__"] = classmethod(_torch_function)
    methods["__torch_dispatch__"] = _disabled_torch_dispatch_impl
    methods["_make_wrapper_subclass"] = staticmethod(_make_wrapper_subclass)
    methods["__init_subclass__"] = classmethod(_init_subclass)
    methods["__cuda_array_interface__"] = property(methods["__cuda_array_interface__"])
    methods["_backward_hooks"] = property(_get_hooks, _set_hooks, doc="The hooks that were registered, by number, or None.")
    methods["_cdata"] = property(_cdata, doc="What is another number for another tensor, and after `utils.swap_tensors`.")
    methods["__module__"] = "torch"
    _core._extend_tensor(methods)
