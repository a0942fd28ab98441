"""What a model computes, as a list of calls: a mode sees every operator while the model runs on example inputs.

Functions that have no translation and are written in Python are seen as the operators that they call. Sizes are plain numbers in a
call, so a model with inputs of varying size runs twice, with other sizes the second time: whatever number differs depends on them.
"""

import contextlib
import dataclasses
import types

import wisp
from wisp import _core
from wisp.overrides import TorchFunctionMode


@dataclasses.dataclass(frozen=True)
class Varying:
    """A number that was `first` in one run and `second` in the other."""

    first: int
    second: int


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor of the program at one time. `traced`: it depends on the inputs. `shape` may contain Varying."""

    tensor: object
    traced: bool
    version: int = 0
    shape: tuple = ()
    varies: bool = False  # a constant that differs between runs: what makes it must be exported

    @property
    def dtype(self):
        return self.tensor.dtype

    @property
    def ndim(self):
        return self.tensor.ndim


@dataclasses.dataclass
class Call:
    name: str
    args: tuple
    kwargs: dict
    results: list
    inplace: bool


def map_tree(function, tree):
    """Apply a function to the leaves of nested lists, tuples, dicts and slices."""
    if isinstance(tree, (list, tuple)):
        return (list if isinstance(tree, list) else tuple)(map_tree(function, item) for item in tree)
    if isinstance(tree, dict):
        return {key: map_tree(function, item) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(map_tree(function, item) for item in (tree.start, tree.stop, tree.step)))
    return function(tree)


def leaves(tree, kind):
    found = []
    map_tree(lambda leaf: found.append(leaf) if isinstance(leaf, kind) else None, tree)
    return found


class Recorder(TorchFunctionMode):
    """Keeps the calls of operators in the order in which they are made."""

    def __init__(self, known):
        self.known, self.calls, self.values, self.memory = known, [], {}, {}

    def __torch_function__(self, func, types_, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func.__name__
        if name not in self.known and isinstance(func, types.FunctionType) and hasattr(func, "_unseen"):
            with self:
                return func._unseen(*args, **kwargs)
        inplace = name.endswith("_") and not name.endswith("__")
        given, named = map_tree(self._read, args), map_tree(self._read, kwargs)
        result = func(*args, **kwargs)
        tensors = leaves(result, _core.Tensor)
        if tensors:
            traced = any(value.traced for value in leaves((given, named), Value))
            results = [self.write(tensor, traced) for tensor in tensors]
            self.calls.append(Call(name.rstrip("_") if inplace else name, given, named, results, inplace))
        return result

    def write(self, tensor, traced):
        value = Value(tensor, traced, tensor._version, tuple(tensor.shape))
        self.values[id(tensor)] = value
        if traced and tensor.numel():
            self.memory.setdefault(tensor._storage_ptr(), []).append(value)
        return value

    def read(self, tensor):
        """The value of a tensor that an operator is called with."""
        value = self.values.get(id(tensor))
        if value is not None and value.version == tensor._version:
            return value
        if value is not None and value.traced:
            raise RuntimeError(
                "onnx.export: a tensor was changed in place in a way that a graph cannot express (x[...] = y, or through a "
                "view); use torch.where, torch.cat or operators that return new tensors"
            )
        if not isinstance(tensor, wisp.nn.Parameter) and tensor.numel():
            for base in reversed(self.memory.get(tensor._storage_ptr(), ())):
                if base.version == tensor._version:
                    return self._permuted(base, tensor)
        return self.write(tensor, False)

    def _read(self, leaf):
        return self.read(leaf) if isinstance(leaf, _core.Tensor) else leaf

    def _permuted(self, base, tensor):
        """A view that no operator made: x.T, x.mT, x.data."""
        places = list(zip(base.tensor.shape, base.tensor.stride()))
        order = []
        for place in zip(tensor.shape, tensor.stride()):
            found = next((i for i, other in enumerate(places) if other == place and i not in order), None)
            if found is None:
                raise RuntimeError("onnx.export: an attribute of a tensor gave a view that cannot be exported; x.T, x.mT and x.data can")
            order.append(found)
        if len(order) != len(places):
            raise RuntimeError("onnx.export: an attribute of a tensor gave a view of part of it, which cannot be exported")
        value = self.write(tensor, True)
        self.calls.append(Call("permute", (base, order), {}, [value], False))
        return value

    @contextlib.contextmanager
    def recording(self):
        _core._operators[""]["_see_private"](True)
        try:
            with self:
                yield self
        finally:
            _core._operators[""]["_see_private"](False)


def run(model, args, kwargs, known):
    """-> the recorder, the values of the inputs and those of the outputs."""
    recorder = Recorder(known)
    inputs = [recorder.write(tensor, True) for tensor in leaves((args, kwargs), _core.Tensor)]
    with wisp.no_grad(), recorder.recording():
        result = model(*args, **kwargs)
    outputs = [recorder.read(tensor) for tensor in _outputs(result)]
    return recorder, inputs, outputs


def _outputs(result):
    if isinstance(result, _core.Tensor):
        return [result]
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (list, tuple)):
        return [tensor for item in result for tensor in _outputs(item)]
    return []


def merge(first, second):
    """Mark in the first run what differs in the second: sizes, numbers, constants."""
    if [call.name for call in first.calls] != [call.name for call in second.calls]:
        raise RuntimeError("onnx.export: the model calls other operators when an input has another size, so no one graph stands for it")
    for one, other in zip(first.calls, second.calls):
        one.args, one.kwargs = _merged(one.args, other.args), _merged(one.kwargs, other.kwargs)
        for a, b in zip(one.results, other.results):
            _merged(a, b)


def _merged(a, b):
    if isinstance(a, Value) and isinstance(b, Value):
        a.shape = _merged(tuple(int_of(n) for n in a.shape), b.shape)
        if not a.traced and not a.varies:
            x, y = a.tensor, b.tensor
            a.varies = x is not y and (x.shape != y.shape or not bool(wisp.equal(x.nan_to_num(), y.nan_to_num())))
        return a
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return (list if isinstance(a, list) else tuple)(map(_merged, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: _merged(item, b[key]) for key, item in a.items()}
    if isinstance(a, slice) and isinstance(b, slice):
        return slice(_merged(a.start, b.start), _merged(a.stop, b.stop), _merged(a.step, b.step))
    if type(a) is int and type(b) is int and a != b:
        return Varying(a, b)
    if isinstance(a, (int, float, str, type(None))) and a != b and not (a != a and b != b):
        raise RuntimeError(f"onnx.export: an argument was {a!r} for one size of the input and {b!r} for another")
    return a


def int_of(number):
    return number.first if isinstance(number, Varying) else number
