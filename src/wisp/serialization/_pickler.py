"""The pickles in checkpoints as PyTorch writes them: tensors over numbered storages, modules and optimizers under its names."""

import collections
import copyreg
import functools
import io
import pickle
import sys
import threading
import types
import uuid
import warnings

import wisp
from wisp._compat import module_of
from wisp.serialization._names import STORAGES
from wisp.serialization._storages import skipping

__all__ = ["pickled"]

_STORAGE_OF = {dtype: name for name, dtype in STORAGES.items() if name != "UntypedStorage"}


@functools.cache
def _dtype_name(dtype):
    return str(dtype).rsplit(".", 1)[-1]


# The pickler of the standard library that is written in C looks for a global name in its module, and PyTorch's need not be there: it finds
# ours in modules whose names begin with this, which is taken out of the pickle afterwards.
_MARK = f"wisp-{uuid.uuid4().hex}-"
_marked = {}  # name -> module, in sys.modules while a pickle is written
_writing = threading.RLock()


class _Global:
    """Stands for a global name in a pickle, without importing its module."""

    def __init__(self, module, name):
        self.module, self.name = module, name
        self.__module__ = _MARK + module
        setattr(_marked.setdefault(self.__module__, types.ModuleType(self.__module__)), name, self)

    def __call__(self):
        raise TypeError(f"{self.module}.{self.name} is only a name")


_TENSOR, _TENSOR_V3 = _Global("torch._utils", "_rebuild_tensor_v2"), _Global("torch._utils", "_rebuild_tensor_v3")
_NESTED, _JAGGED = _Global("torch._utils", "_rebuild_nested_tensor"), _Global("torch.nested._internal.nested_tensor", "_rebuild_njt")
_SPARSE, _LAYOUT = _Global("torch._utils", "_rebuild_sparse_tensor"), _Global("torch.serialization", "_get_layout")
_LAZY = {name: _Global("torch.nn.parameter", name) for name in ("UninitializedParameter", "UninitializedBuffer")}
_PARAMETER, _META = _Global("torch._utils", "_rebuild_parameter"), _Global("torch._utils", "_rebuild_meta_tensor_no_storage")
_WRAPPER = _Global("torch._utils", "_rebuild_wrapper_subclass")
_PARAMETER_STATE = _Global("torch._utils", "_rebuild_parameter_with_state")
_WITH_ATTRIBUTES, _PLAIN_TENSOR = _Global("torch._tensor", "_rebuild_from_type_v2"), _Global("torch", "Tensor")
_DEVICE, _SIZE, _GENERATOR = _Global("torch", "device"), _Global("torch", "Size"), _Global("torch._C", "Generator")
_KINDS = {name: _Global("torch.storage" if name == "UntypedStorage" else "torch", name) for name in STORAGES}
_named = functools.cache(_Global)


# Where PyTorch has what lies elsewhere here.
_THEIR_MODULES = {
    "wisp.nn.modules.attention": "torch.nn.modules.activation",
    "wisp.optim._adafactor": "torch.optim",
    "wisp.optim._muon": "torch.optim",
    "wisp.optim._lr_base": "torch.optim.lr_scheduler",
    "wisp.optim._lr_cycles": "torch.optim.lr_scheduler",
    "wisp.vision.ops.layers": "torchvision.ops.misc",
}
_THEIR_LAYERS = {
    "wisp.vision.models.mobilenet InvertedResidual": "torchvision.models.mobilenetv2",
    "wisp.vision.models.mobilenet MobileNetV2": "torchvision.models.mobilenetv2",
    "wisp.vision.ops.layers DropBlock2d": "torchvision.ops.drop_block",
    "wisp.vision.ops.layers PSRoIAlign": "torchvision.ops.ps_roi_align",
    "wisp.vision.ops.layers PSRoIPool": "torchvision.ops.ps_roi_pool",
    "wisp.vision.ops.layers RoIAlign": "torchvision.ops.roi_align",
    "wisp.vision.ops.layers RoIPool": "torchvision.ops.roi_pool",
    "wisp.vision.ops.layers StochasticDepth": "torchvision.ops.stochastic_depth",
}
_GLOBALS = type, types.FunctionType, type(wisp.relu)
# What PyTorch's modules have besides, which keep no hooks until there is one here.
_HOOKS = """
    _backward_pre_hooks _backward_hooks _forward_hooks _forward_hooks_with_kwargs _forward_hooks_always_called _forward_pre_hooks
    _forward_pre_hooks_with_kwargs _state_dict_hooks _state_dict_pre_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks""".split()


def _their_name(value):
    """The name in PyTorch of a layer, an optimizer or an operator, so that it finds them in our files; else the value."""
    module = value.__module__
    if isinstance(module, str) and module.startswith(("wisp.vision.models.", "wisp.vision.ops.")):
        theirs = _THEIR_MODULES.get(module, "torchvision" + module[11:])
        return _named(_THEIR_LAYERS.get(f"{module} {value.__qualname__}", theirs), value.__qualname__)
    if module != "wisp" and not (isinstance(module, str) and module.startswith(("wisp.nn.", "wisp.optim"))):
        return value
    return _named(_THEIR_MODULES.get(module, "torch" + module[4:]), value.__qualname__)


def _of_program(kind):
    return kind is not wisp.Tensor and module_of(kind).partition(".")[0] not in ("wisp", "builtins")


class _Storage:
    """The part of a storage that saved tensors cover."""

    def __init__(self, tensor, untyped=False):
        self.tensor, self.untyped = tensor, untyped  # any of them; keeps the memory alive
        self.key = None
        self.low, self.high = sys.maxsize, 0
        self.patterns = set()

    def add(self, tensor):
        """Cover a tensor, too; -> whether what was written of the storage before is no longer true."""
        before = (self.low, self.high, self.compact()) if self.patterns else None
        offset, shape, strides = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
        end = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        self.low, self.high = min(self.low, offset), max(self.high, end)
        self.patterns.add((offset, shape, strides))
        return before is not None and before != (self.low, self.high, self.compact())

    def compact(self):
        """Whether a copy of the single tensor in it is smaller than the range of memory."""
        return self.tensor.numel() == 0 or len(self.patterns) == 1 and self.high - self.low > self.tensor.numel()

    def content(self):
        """The elements to write, as a tensor of one dimension in main memory."""
        if self.compact():
            return self.tensor.contiguous().cpu().reshape(-1)
        return self.tensor.as_strided((self.high - self.low,), (1,), self.low).cpu()

    def count(self):
        return self.tensor.numel() if self.compact() else self.high - self.low

    def kind(self):
        return "UntypedStorage" if self.untyped else _STORAGE_OF.get(_dtype_name(self.tensor.dtype), "UntypedStorage")

    def entries(self, content):
        """How many there are of its kind in the content."""
        return content.numel() * (content.element_size() if self.kind() == "UntypedStorage" else 1)


class _Reducer:
    """Says how tensors, modules and what belongs to them are written. A first run collects which part of each storage is needed, so that a
    view of a large tensor is saved small, and tensors that share memory share it in the file; where a part grew after it had been written
    (`outdated`), a second run writes it all."""

    def __init__(self, file, protocol, surveyed=None, legacy=False):
        super().__init__(file, protocol)
        self.legacy = legacy  # identifiers of storages have a place for a view, too
        self.first, self.outdated = surveyed is None, False
        self.storages = {} if surveyed is None else surveyed
        self.dtypes = {}  # of the memories seen
        self.written = []  # in the order of their keys
        self.alive = []  # while we hold a tensor, its address is not used again

    def persistent_id(self, value):
        if type(value) is not _Storage:
            return None
        if value.key is None:
            value.key = str(len(self.written))
            self.written.append(value)
        kind, count = value.kind(), value.count()
        if kind == "UntypedStorage":
            count *= value.tensor.element_size()
        identifier = "storage", _KINDS[kind], value.key, str(value.tensor.device), count
        return (*identifier, None) if self.legacy else identifier

    def _claim(self, elements):
        """A file has one dtype for a memory, as PyTorch's do."""
        place = elements._storage_ptr()
        if elements.numel() and place and self.dtypes.setdefault(place, elements.dtype) != elements.dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different types "
                f"({self.dtypes[place]} and {elements.dtype}): clone() one of them"
            )

    def _whole(self, storage):
        """What stands for a storage that is saved by itself."""
        typed = storage if hasattr(storage, "_elements") else None
        elements = storage._bytes if typed is None else typed._elements()
        self.alive.append(elements)
        self._claim(elements)
        place = elements._storage_ptr(), elements.dtype, str(elements.device)
        if typed is None:
            place = *place, "untyped"
        kept = self.storages.get(place) if elements.numel() else _Storage(elements, typed is None)
        if kept is None:
            kept = self.storages[place] = _Storage(elements, typed is None)
        if self.first and elements.numel():
            self.outdated |= kept.add(elements)
        return kept

    def reducer_override(self, value):
        if isinstance(value, wisp.Tensor):
            return self._reduce_tensor(value)
        if isinstance(value, wisp.device):
            return _DEVICE, (value.type,) if value.index is None else (value.type, value.index)
        if isinstance(value, wisp.Size):
            return _SIZE, (tuple(value),)
        if isinstance(value, wisp.Generator):
            _, arguments, state = value.__reduce__()
            self.alive.append(state)
            return _GENERATOR, arguments, state
        if isinstance(value, wisp.layout):
            return _LAYOUT, (str(value),)
        if isinstance(value, dict) and type(value).__module__ == "wisp.nn.modules.registry":
            return collections.OrderedDict, (), None, None, iter(value.items())
        layers = sys.modules.get("wisp.nn.modules.module")
        if layers is not None and isinstance(value, layers.Module):
            return self._reduce_module(value)
        return NotImplemented

    def _reduce_module(self, module):
        """A module with the attributes of PyTorch's."""
        reduced = module.__reduce_ex__(self.proto)
        if not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
            return reduced
        registered = {name for registry in ("_parameters", "_buffers", "_modules") for name in getattr(module, registry)}
        state = {name: value for name, value in reduced[2].items() if name not in registered}
        for name in _HOOKS:
            state.setdefault(name, collections.OrderedDict())
        state.setdefault("_is_full_backward_hook", None)
        if hasattr(module, "_flat_weights_names"):  # a recurrent layer
            state.update(_flat_weights_names=module._flat_weights_names, _flat_weights=module._flat_weights)
        self.alive.append(state)
        return (*reduced[:2], state, *reduced[3:])

    def _reduce_tensor(self, tensor):
        if skipping():
            if tensor.is_nested:
                raise RuntimeError("Cannot serialize nested tensor under skip_data context manager")
            if tensor.is_meta:
                warnings.warn("Serializing tensors on the meta device under skip_data context manager is a no-op", stacklevel=2)
        if type(tensor).__name__ == "ZeroTensor":
            return tensor.__reduce_ex__(self.proto)
        if tensor.is_nested:
            key = "nested", id(tensor)
            if key not in self.storages:  # the same parts for both passes
                self.storages[key] = tensor._for_file()
            parts = self.storages[key]
            return (_JAGGED, (parts,)) if tensor.layout is wisp.jagged else (_NESTED, parts)
        if tensor.layout is not wisp.strided:
            parts = [*tensor._index, tensor._sparse_values.detach(), wisp.Size(tensor.shape)]
            self.alive.append(parts)
            return _SPARSE, (tensor.layout, (*parts, tensor._coalesced) if tensor.is_sparse else tuple(parts))
        hooks = collections.OrderedDict()
        exact = type(tensor) is wisp.Tensor
        if not exact and "wisp.nn.parameter" in sys.modules and wisp.nn.parameter.is_lazy(tensor):
            kind, arguments = tensor.__reduce_ex__(self.proto)
            return _LAZY[kind.__name__], arguments
        if not exact and any(
            "__reduce_ex__" in vars(base) or "__reduce__" in vars(base) for base in type(tensor).__mro__ if _of_program(base)
        ):
            return NotImplemented
        if "_wrapper_device" in tensor.__dict__:  # no memory of its own
            state = _state(tensor)
            self.alive.append(state)
            place = tuple(tensor.shape), tuple(tensor.stride()), 0, tensor.layout, tensor.device, tensor.requires_grad
            return _WITH_ATTRIBUTES, (_WRAPPER, type(tensor), (type(tensor), tensor.dtype, *place), state)
        if exact:
            plain = tensor.detach()
        else:
            with wisp.overrides.DisableTorchFunctionSubclass():
                plain = tensor.detach()
        if plain.is_meta:
            args = plain.dtype, tuple(plain.shape), tuple(plain.stride()), tensor.requires_grad
            if exact:
                return _META, args
            state = _state(tensor)
            self.alive.append(state)
            return _WITH_ATTRIBUTES, (_META, type(tensor), args, state)
        nn = None if exact else sys.modules.get("wisp.nn.parameter")
        if nn is not None and issubclass(type(tensor), nn.Parameter):
            self.alive.append(plain)
            if tensor.__dict__:
                return _PARAMETER_STATE, (plain, tensor.requires_grad, hooks, tensor.__dict__)
            return _PARAMETER, (plain, tensor.requires_grad, hooks)
        if plain.is_complex() and plain.is_conj():  # the same copy for both passes
            plain = self.storages.setdefault(("conjugate", id(tensor)), plain.resolve_conj())
        self.alive.append(plain)
        self._claim(plain)
        place = plain._storage_ptr(), plain.dtype, str(plain.device)
        storage = self.storages.get(place) if plain.numel() else _Storage(plain)
        if storage is None:
            storage = self.storages[place] = _Storage(plain)
        if self.first and plain.numel():
            self.outdated |= storage.add(plain)
        offset, strides = plain.storage_offset() - storage.low, tuple(plain.stride())
        if storage.compact():
            offset, strides = 0, tuple(plain.contiguous().stride())
        args = storage, offset, tuple(plain.shape), strides, tensor.requires_grad, hooks
        function = _TENSOR
        if _dtype_name(plain.dtype) not in _STORAGE_OF:
            function, args = _TENSOR_V3, (*args, plain.dtype)
        if exact and tensor.__dict__:
            return _WITH_ATTRIBUTES, (function, _PLAIN_TENSOR, args, tensor.__dict__)
        if not exact and _of_program(type(tensor)):
            state = _state(tensor)
            self.alive.append(state)
            return _WITH_ATTRIBUTES, (function, type(tensor), args, state)
        return function, args


def _state(tensor):
    """What `__getstate__` of a tensor says: its attributes, and slots, where its class does not say otherwise."""
    if hasattr(type(tensor), "__getstate__"):  # every class has one from Python 3.11 on
        return tensor.__getstate__()
    slots = {name: getattr(tensor, name) for name in copyreg._slotnames(type(tensor)) if hasattr(tensor, name)}
    return (tensor.__dict__, slots) if slots else tensor.__dict__


class _Renamed(Exception):
    """A value has another name in PyTorch."""


class _QuickPickler(_Reducer, pickle.Pickler):
    """For tensors in plain values, as most files have them. It cannot write a class or a function under another name."""

    proto = 2  # the only one that it is used for

    def reducer_override(self, value):
        if type(value) is _Global:
            return value.name
        if isinstance(value, _GLOBALS):
            if _their_name(value) is not value:
                raise _Renamed
            return NotImplemented
        if isinstance(value, wisp.dtype) or type(value).__module__ == "wisp.storage" or "_original_class" in type(value).__dict__:
            raise _Renamed
        return super().reducer_override(value)


class _FullPickler(_Reducer, pickle._Pickler):
    def save(self, value, save_persistent_id=True):
        own = type(value).__dict__.get("_original_class")
        if own is not None:  # a module that jit.script was given is saved as one of its own class
            scripted, value.__class__ = type(value), own
            try:
                return self.save(value, save_persistent_id)
            finally:
                value.__class__ = scripted
        if isinstance(value, wisp.dtype):
            value = _named("torch", _dtype_name(value))
        elif type(value).__module__ == "wisp.storage":
            value = self._whole(value)
        elif isinstance(value, _GLOBALS):
            value = _their_name(value)
        if type(value) is not _Global:
            super().save(value, save_persistent_id)
        elif id(value) in self.memo:
            self.write(self.get(self.memo[id(value)][0]))
        else:
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
            self.memoize(value)


def pickled(value, protocol, legacy=False):
    """The pickle of a value, and the storages that it refers to."""
    if protocol == 2:  # later ones write the lengths of names
        try:
            with _writing:
                sys.modules.update(_marked)
                try:
                    data, storages = _written(_QuickPickler, value, protocol, legacy)
                finally:
                    for name in list(_marked):
                        sys.modules.pop(name, None)
            return data.replace(b"c" + _MARK.encode(), b"c"), storages
        except _Renamed:
            pass
    return _written(_FullPickler, value, protocol, legacy)


def _written(pickler, value, protocol, legacy):
    stream = io.BytesIO()
    run = pickler(stream, protocol, None, legacy)
    run.dump(value)
    if run.outdated:
        for storage in run.written:
            storage.key = None
        stream, first = io.BytesIO(), run
        run = pickler(stream, protocol, first.storages, legacy)
        run.dump(value)
    return stream.getvalue(), run.written
