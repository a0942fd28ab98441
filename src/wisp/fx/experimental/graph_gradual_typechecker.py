"""Checks the shapes that a graph's values are annotated with, and infers those of the others as far as they are known."""

import itertools
import math
import operator

import wisp
from wisp import nn
from wisp.fx.experimental.refinement_types import Equality, Var
from wisp.fx.node import Node, map_arg
from wisp.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

__all__ = ["GraphTypeChecker", "Refine", "broadcast_types"]


def broadcast_types(t1, t2):
    """Two types of the same number of sizes, those of 1 as large as the other's.

    >>> broadcast_types(TensorType((3, 1)), TensorType((4,)))
    (TensorType[3, 4], TensorType[3, 4])
    """
    if Dyn in (t1, t2) or not (isinstance(t1, TensorType) and isinstance(t2, TensorType)):
        return t1, t2
    length = max(len(t1.dims), len(t2.dims))
    first, second = ([1] * (length - len(t.dims)) + list(t.dims) for t in (t1, t2))
    for i, (a, b) in enumerate(zip(first, second)):
        if a == 1:
            first[i] = b
        elif b == 1:
            second[i] = a
    return TensorType(first), TensorType(second)


def _of(value):
    if isinstance(value, Node):
        return Dyn if value.type is None else value.type
    return type(value)


def _join(t1, t2, node):
    """What both types say together."""
    if not is_consistent(t1, t2):
        raise TypeError(f"{node}: {t1} and {t2} cannot both be the type of one value")
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        return TensorType([a if is_more_precise(a, b) else b for a, b in zip(t1.dims, t2.dims)])
    return t1 if is_more_precise(t1, t2) else t2


def _expanded(node, length):
    """The type of a value that has this many dimensions."""
    kind = _of(node)
    if kind == Dyn:
        kind = TensorType((Dyn,) * length)
    if not isinstance(kind, TensorType) or len(kind.dims) != length:
        raise TypeError(f"{node}: expected {length} dimensions, got {kind}")
    return kind


def _require(agree, node, text):
    if not agree:
        raise TypeError(f"{node}: {text}")


def _pair(value):
    return value if isinstance(value, (tuple, list)) else (value, value)


def _window(size, module, i):
    if size == Dyn:
        return Dyn
    kernel, stride, padding, dilation = (_pair(getattr(module, name))[i] for name in ("kernel_size", "stride", "padding", "dilation"))
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _add(node):
    left, right = map(_of, node.args[:2])
    if left in (int, float) or right in (int, float):
        return right if left in (int, float) else left
    new = broadcast_types(left, right)
    node.meta["broadcast"] = new != (left, right)
    _require(is_consistent(*new), node, f"operands of types {left} and {right} cannot be added")
    return new[1] if is_more_precise(*new) else new[0]


def _reshape(node):
    given, wanted = _of(node.args[0]), TensorType([Dyn if size == -1 else size for size in node.args[1]])
    if isinstance(given, TensorType):
        one, other = (math.prod(size for size in t.dims if size != Dyn) for t in (given, wanted))
        unknown = Dyn in given.dims or Dyn in wanted.dims
        fits = one % other == 0 or other % one == 0 if unknown else one == other
        _require(fits, node, f"{given} cannot be reshaped to {wanted}")
    return wanted


def _transpose(node):
    given, dims = _of(node.args[0]), node.args[1:3]
    if not isinstance(given, TensorType):
        return Dyn
    sizes = list(given.dims)
    _require(all(-len(sizes) <= d < len(sizes) for d in dims), node, f"{given} has no dimensions {dims}")
    sizes[dims[0]], sizes[dims[1]] = sizes[dims[1]], sizes[dims[0]]
    return TensorType(sizes)


def _flatten(node):
    given, sizes = _of(node.args[0]), None
    if not isinstance(given, TensorType):
        return Dyn
    start, end = (node.args[i] if len(node.args) > i else node.kwargs.get(name, default) for i, name, default in _FLATTEN)
    sizes = list(given.dims)
    start, end = start % len(sizes), end % len(sizes)
    inner = sizes[start : end + 1]
    return TensorType([*sizes[:start], Dyn if Dyn in inner else math.prod(inner), *sizes[end + 1 :]])


_FLATTEN = ((1, "start_dim", 0), (2, "end_dim", -1))


def _same(node, module=None):
    return _of(node.args[0])


def _batch_norm(node, module):
    given = node.args[0].type = _expanded(node.args[0], 4)
    node.type = _expanded(node, 4)
    for kind in (given, node.type):
        _require(is_consistent(kind.dims[1], module.num_features), node, f"{kind} has not {module.num_features} channels")
    return given


def _convolution(node, module):
    given = node.args[0].type = _expanded(node.args[0], 4)
    node.type = _expanded(node, 4)
    _require(is_consistent(given.dims[1], module.in_channels), node, f"{given} has not {module.in_channels} channels")
    return TensorType((given.dims[0], module.out_channels, *(_window(given.dims[2 + i], module, i) for i in range(2))))


def _max_pool(node, module):
    given = _of(node.args[0])
    if not isinstance(given, TensorType):
        return Dyn
    _require(len(given.dims) in (3, 4), node, f"expected 3 or 4 dimensions, got {given}")
    return TensorType((*given.dims[:-2], *(_window(given.dims[i - 2], module, i) for i in range(2))))


def _adaptive(node, module):
    given = _of(node.args[0])
    if not isinstance(given, TensorType):
        return Dyn
    return TensorType((*given.dims[:-2], *_pair(module.output_size)))


def _linear(node, module):
    given = _of(node.args[0])
    if not isinstance(given, TensorType):
        return Dyn
    _require(is_consistent(given.dims[-1], module.in_features), node, f"{given} has not {module.in_features} features")
    return TensorType((*given.dims[:-1], module.out_features))


_FUNCTIONS = {
    **dict.fromkeys((wisp.add, operator.add, operator.iadd), _add),
    wisp.reshape: _reshape,
    wisp.transpose: _transpose,
    wisp.flatten: _flatten,
    **dict.fromkeys((wisp.relu, nn.functional.relu), _same),
}
_MODULES = {
    nn.BatchNorm2d: _batch_norm,
    nn.Conv2d: _convolution,
    nn.MaxPool2d: _max_pool,
    nn.AdaptiveAvgPool2d: _adaptive,
    nn.Linear: _linear,
    nn.ReLU: _same,
}


class GraphTypeChecker:
    """Gives every step of a traced module a type; TypeError where annotations and operators contradict each other.

    >>> def scaled(x: TensorType((2, Dyn))):
    ...     return wisp.transpose(x, 0, 1)
    >>> traced = wisp.fx.symbolic_trace(scaled)
    >>> GraphTypeChecker({}, traced).type_check()
    True
    >>> traced.graph.output_node().type
    TensorType[Dyn, 2]
    """

    def __init__(self, env, traced):
        self.env, self.traced = env, traced

    def type_check(self):
        """Check all steps in order."""
        for node in self.traced.graph.nodes:
            self.type_check_node(node)
        return True

    def type_check_node(self, n):
        """The type of a step; one that no rule is known for keeps its annotation."""
        n.type = _of(n)
        if n.op == "output":
            n.type = _of(n.args[0])
        elif n.op == "get_attr":
            value = self.traced
            for part in n.target.split("."):
                value = getattr(value, part)
            n.type = _join(n.type, TensorType(value.shape), n) if isinstance(value, wisp.Tensor) else n.type
        elif n.op == "call_function" and n.target in _FUNCTIONS:
            n.type = _join(_FUNCTIONS[n.target](n), n.type, n)
        elif n.op == "call_module" and type(self.traced.get_submodule(n.target)) in _MODULES:
            module = self.traced.get_submodule(n.target)
            made = _MODULES[type(module)](n, module)
            n.type = _join(made, n.type, n)
        return n.type


# --- which sizes are the same -------------------------------------------------------------------------------------------------


def _first(count):
    return lambda given, made, node: zip(given.dims[:count], made.dims)


def _broadcast_alike(given, made, node):
    other = _of(node.args[1])
    if not isinstance(other, TensorType):
        return []
    left, right = broadcast_types(given, other)
    return [(a, c) for a, b, c in zip(left.dims, right.dims, made.dims) if a == b]


def _beside_flattened(given, made, node):
    start, end = (node.args[i] if len(node.args) > i else node.kwargs.get(name, default) for i, name, default in _FLATTEN)
    start, end = start % len(given.dims), end % len(given.dims)
    return [*zip(given.dims[:start], made.dims), *zip(given.dims[end + 1 :], made.dims[start + 1 :])]


_ALIKE = {  # pairs of sizes of the first argument and of the result that are the same
    **dict.fromkeys((wisp.add, operator.add, operator.iadd), _broadcast_alike),
    wisp.flatten: _beside_flattened,
    **dict.fromkeys((nn.Conv2d, nn.Linear), _first(1)),
    **dict.fromkeys((nn.AdaptiveAvgPool2d, nn.MaxPool2d), _first(2)),
    **dict.fromkeys((nn.BatchNorm2d, nn.ReLU), _first(None)),
}


def _mapped(kind, change):
    """The type with `change` applied to its sizes."""
    if isinstance(kind, TensorType):
        return TensorType([change(size) for size in kind.dims])
    return type(kind)(_mapped(part, change) for part in kind) if isinstance(kind, (tuple, list)) else change(kind)


class Refine:
    """Collects in `constraints` which sizes of a checked graph are the same; unknown ones become variables.

    >>> traced = wisp.fx.symbolic_trace(wisp.nn.Sequential(wisp.nn.ReLU()))
    >>> traced.graph.nodes[0].type = traced.graph.nodes[1].type = TensorType((2, Dyn))
    >>> refined = Refine(traced)
    >>> refined.refine(), refined.constraints
    (True, [2 = 2, ~0 = ~1])
    """

    def __init__(self, traced):
        self.constraints, self.traced, self._numbers = [], traced, itertools.count()

    def refine(self):
        """Go through all steps."""
        for node in self.traced.graph.nodes:
            node.type = _mapped(Dyn if node.type is None else node.type, lambda size: Var(next(self._numbers)) if size == Dyn else size)
            given = _of(node.args[0]) if node.args and isinstance(node.args[0], Node) else None
            if isinstance(given, TensorType) and isinstance(node.type, TensorType):
                self.constraints += [Equality(a, b) for a, b in _rule(_ALIKE, node, self.traced)(given, node.type, node)]
            _pass_on(node)
        return True

    def symbolic_relations(self):
        """Let the sizes of convolutions be formulas of SymPy's of those before them."""
        try:
            import sympy
        except ImportError:
            raise RuntimeError("Refine.symbolic_relations: formulas of sizes need SymPy (pip install sympy)") from None
        for node in self.traced.graph.nodes:
            node.type = _mapped(node.type, lambda size: sympy.symbols(str(size)) if isinstance(size, Var) else size)
            given = _of(node.args[0]) if node.args and isinstance(node.args[0], Node) else None
            module = self.traced.get_submodule(node.target) if node.op == "call_module" else None
            if type(module) is nn.Conv2d and isinstance(given, TensorType) and isinstance(node.type, TensorType):
                node.type = TensorType((*node.type.dims[:2], *(_window(given.dims[2 + i], module, i) for i in range(2))))
            _pass_on(node)
        return True


def _rule(rules, node, traced):
    target = type(traced.get_submodule(node.target)) if node.op == "call_module" else node.target
    return rules.get(target, lambda *values: []) if node.op in ("call_module", "call_function") else lambda *values: []


def _pass_on(node):
    if node.op == "output":
        node.type = map_arg(node.args[0], _of)
