"""Modules that hold others: Sequential, ModuleList, ModuleDict, and the same for parameters."""

import operator
from collections import OrderedDict, abc
from itertools import islice

import wisp
from wisp.nn.modules.module import Module, _addindent
from wisp.nn.parameter import Parameter

__all__ = ["Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]


class Container(Module):
    """An old name: a module whose children are given by keyword."""

    def __init__(self, **kwargs):
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


def _index(idx, size):
    """A checked, non-negative index."""
    idx = operator.index(idx)
    if not -size <= idx < size:
        raise IndexError(f"index {idx} is out of range")
    return idx % size


class _Numbered(Module):
    # What Sequential and ModuleList share: children named "0", "1", ...
    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def _name_at(self, idx):
        """The child's name at a place; in a Sequential made of a dict names are no numbers."""
        return next(islice(self._modules, _index(idx, len(self)), None))

    def _get_abs_string_index(self, idx):
        return str(_index(idx, len(self)))  # libraries with lists of their own ask for it

    def __delitem__(self, idx):
        names = list(self._modules)[idx] if isinstance(idx, slice) else [self._name_at(idx)]
        for name in names:
            delattr(self, name)
        self._renumber(self._modules.values())

    def _renumber(self, modules):
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def insert(self, index, module):
        """Put a module before the given place."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        modules = list(self._modules.values())
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"Index out of range: {index}")
        modules.insert(index, module)
        self._renumber(modules)

    def append(self, module):
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key):
        """Take a module out and return it."""
        module = self[key]
        del self[key]
        return module

    def __dir__(self):
        return [key for key in super().__dir__() if not key.isdigit()]


class Sequential(_Numbered):
    """Calls its modules one after the other, each with the result of the one before.

    >>> import wisp
    >>> model = wisp.nn.Sequential(wisp.nn.Linear(4, 8), wisp.nn.ReLU(), wisp.nn.Linear(8, 2))
    >>> tuple(model(wisp.zeros(3, 4)).shape), model[1]
    ((3, 2), ReLU())
    """

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return self.__class__(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._name_at(idx)]

    def __setitem__(self, idx, module):
        setattr(self, self._name_at(idx), module)

    def insert(self, index, module):
        """Put a module before the given place."""
        super().insert(index, module)
        return self

    def extend(self, sequential):
        """Add all modules of another Sequential or iterable at the end."""
        for module in list(sequential):
            self.append(module)
        return self

    def __add__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    @staticmethod
    def _check_times(other):
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(Sequential)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {Sequential}")

    def __mul__(self, other):
        self._check_times(other)
        return Sequential(*(module for _ in range(other) for module in self))

    __rmul__ = __mul__

    def __imul__(self, other):
        self._check_times(other)
        modules = list(self)
        for _ in range(other - 1):
            self.extend(modules)
        return self


class ModuleList(_Numbered):
    """A list of modules that its owner's `parameters()` see.

    >>> import wisp
    >>> layers = wisp.nn.ModuleList([wisp.nn.Linear(4, 4) for _ in range(3)])
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return self.__class__(list(self._modules.values())[idx])
        return self._modules[str(_index(idx, len(self)))]

    def __setitem__(self, idx, module):
        setattr(self, str(_index(idx, len(self))), module)

    def extend(self, modules):
        """Add all modules of an iterable at the end."""
        if not isinstance(modules, abc.Iterable):
            raise TypeError("ModuleList.extend should be called with an iterable, but got " + type(modules).__name__)
        for module in list(modules):
            self.append(module)
        return self

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __repr__(self):
        runs = []  # equal neighbours are printed once: [first, last, repr]
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        if not runs:
            return self._get_name() + "()"
        lines = [
            _addindent(f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}", 2)
            for first, last, text in runs
        ]
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"

    forward = Module.forward


def _pairs(owner, entries):
    """The pairs of what is given to `owner.update`, each checked to be one."""
    for i, pair in enumerate(entries):
        if not isinstance(pair, abc.Iterable):
            raise TypeError(f"{owner} update sequence element #{i} should be Iterable; is" + type(pair).__name__)
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{owner} update sequence element #{i} has length {len(pair)}; 2 is required")
        yield pair


class ModuleDict(Module):
    """A dict of modules that its owner's `parameters()` see.

    >>> import wisp
    >>> heads = wisp.nn.ModuleDict({"policy": wisp.nn.Linear(4, 2), "value": wisp.nn.Linear(4, 1)})
    >>> list(heads), "value" in heads
    (['policy', 'value'], True)
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Remove all."""
        self._modules.clear()

    def pop(self, key):
        """Take a module out and return it."""
        return self._modules.pop(key)

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        """Add the modules of a dict, or of an iterable of (key, module) pairs."""
        if not isinstance(modules, abc.Iterable):
            raise TypeError("ModuleDict.update should be called with an iterable of key/value pairs, but got " + type(modules).__name__)
        if isinstance(modules, (ModuleDict, abc.Mapping)):
            modules = modules.items()
        for key, value in _pairs("ModuleDict", modules):
            self[key] = value

    forward = Module.forward


def _as_parameter(value):
    if isinstance(value, wisp.Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _describe(value):
    if not isinstance(value, wisp.Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(n) for n in value.size())
    device = f" (GPU {value.get_device()})" if value.is_cuda else ""
    return f"{kind} containing: [{value.dtype} of size {size}{device}]"


class ParameterList(Module):
    """A list of parameters (tensors are made parameters) that its owner's `parameters()` see.

    >>> import wisp
    >>> weights = wisp.nn.ParameterList([wisp.zeros(2, 2) for _ in range(3)])
    >>> len(weights), weights[0].requires_grad
    (3, True)
    """

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter(self[i] for i in range(len(self)))

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            out = self.__class__()
            out.extend(self[i] for i in range(*idx.indices(len(self))))
            return out
        return getattr(self, str(_index(idx, len(self))))

    def __setitem__(self, idx, param):
        setattr(self, str(_index(idx, len(self))), _as_parameter(param))

    def append(self, value):
        """Add a value at the end."""
        name = str(self._size)
        self._size += 1
        setattr(self, name, _as_parameter(value))
        return self

    def extend(self, values):
        """Add all values of an iterable at the end."""
        if not isinstance(values, abc.Iterable) or isinstance(values, wisp.Tensor):
            raise TypeError("ParameterList.extend should be called with an iterable, but got " + type(values).__name__)
        for value in values:
            self.append(value)
        return self

    def __iadd__(self, parameters):
        return self.extend(parameters)

    def __dir__(self):
        return [key for key in super().__dir__() if not key.isdigit()]

    def extra_repr(self):
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters (tensors are made parameters) that its owner's `parameters()` see.

    >>> import wisp
    >>> scales = wisp.nn.ParameterDict({"left": wisp.ones(3), "right": wisp.ones(3)})
    >>> list(scales), scales["left"].requires_grad
    (['left', 'right'], True)
    """

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _check(key):
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key):
        if self._check(key) not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key, value):
        self._keys[self._check(key)] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[self._check(key)]
        delattr(self, key)

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """A new ParameterDict with the same parameters."""
        return ParameterDict(OrderedDict((key, self[key]) for key in self._keys))

    def setdefault(self, key, default=None):
        """The value of `key`, which is set to `default` first if it is absent."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self):
        """Remove all."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        """Take a value out and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """Take the last pair out and return it."""
        key = next(reversed(list(self._keys)))
        return key, self.pop(key)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def fromkeys(self, keys, default=None):
        """A new ParameterDict of the given keys."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        return self._keys.keys()

    def items(self):
        return ((key, self[key]) for key in self._keys)

    def values(self):
        return (self[key] for key in self._keys)

    def update(self, parameters):
        """Add the entries of a dict, or of an iterable of (key, value) pairs."""
        if not isinstance(parameters, abc.Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got " + type(parameters).__name__
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            parameters = parameters.items()
        elif isinstance(parameters, abc.Mapping):
            parameters = sorted(parameters.items())
        for key, value in _pairs("ParameterDict", parameters):
            self[key] = value

    def extra_repr(self):
        return "\n".join(f"  ({key}): {_describe(value)}" for key, value in self.items())

    def __call__(self, input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        copy = self.copy()
        copy.update(other)
        return copy

    def __ror__(self, other):
        copy = other.copy()
        copy.update(self)
        return copy

    def __ior__(self, other):
        self.update(other)
        return self
