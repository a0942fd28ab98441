"""Counts the multiplications and additions of a program: `with FlopCounterMode() as counter`.

A call is counted as the operator of `torch.ops.aten` that PyTorch runs for it. What backward computes is counted when it reaches the
node of the call: a product or convolution for each input that needs a gradient.
"""

import math
import warnings
from collections import defaultdict

import wisp
from wisp import ops
from wisp._ops import OpOverload, OpOverloadPacket
from wisp.overrides import TorchFunctionMode
from wisp.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

flop_registry = {}  # operator -> formula(*args, out_val=result, **kwargs), where args may be shapes or tensors
_aten = ops.aten


def _shape(value):
    return value.shape if isinstance(value, wisp.Tensor) else value


def _unpack_flash_attention_nested_shapes(*, query, key, value, grad_out=None, cum_seq_q, cum_seq_k, max_q, max_k):
    """The shapes of each sample: those given, or those of sequences that lie end to end."""
    if cum_seq_q is None:
        yield query.shape, key.shape, value.shape, None if grad_out is None else grad_out.shape
        return
    lengths = lambda ends, most: [most] * (len(ends) - 1) if ends.is_meta else ends.diff().tolist()
    shape = lambda tensor, length: (1, tensor.shape[1], length, tensor.shape[2])
    for queries, keys in zip(lengths(cum_seq_q, max_q), lengths(cum_seq_k, max_k)):
        one = shape(query, queries)
        yield one, shape(key, keys), shape(value, keys), None if grad_out is None else one


def _shapes(values):
    return type(values)(_shapes(v) for v in values) if type(values) in (list, tuple) else _shape(values)


def _of_shapes(formula):
    """A formula of tensors from one of shapes, which gets the result's as `out_shape`."""

    def count(*args, out_val=None, **kwargs):
        return formula(*map(_shapes, args), out_shape=_shapes(out_val), **{key: _shapes(value) for key, value in kwargs.items()})

    return count


def register_flop_formula(targets, get_raw=False):
    """Set how many operations an operator takes: a decorator for `formula(*shapes, out_shape=..., **kwargs)`, or, with `get_raw`,
    for one of the tensors themselves, which gets the result as `out_val`.

    >>> import wisp
    >>> from wisp.utils.flop_counter import FlopCounterMode, register_flop_formula
    >>> @register_flop_formula(wisp.ops.aten.cosh)
    ... def cosh_flops(x, *args, out_shape=None, **kwargs):
    ...     return 3 * out_shape.numel()
    >>> with FlopCounterMode(display=False) as counter:
    ...     _ = wisp.cosh(wisp.ones(5))
    >>> counter.get_total_flops()
    15
    """

    def register(formula):
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if not isinstance(target, OpOverloadPacket):
                raise ValueError(
                    f"register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. torch.ops.mylib.foo), got "
                    f"{target} which is of type {type(target)}"
                )
            flop_registry[target] = formula if get_raw else _of_shapes(formula)
        return formula

    return register


@register_flop_formula([_aten.mm, _aten.bmm])
def _product_flops(a, b, *args, out_shape=None, **kwargs):
    """Of a product of matrices, or of a batch of them."""
    return 2 * math.prod(a) * b[-1]


@register_flop_formula([_aten.addmm, _aten.baddbmm])
def _added_product_flops(bias, a, b, *args, out_shape=None, **kwargs):
    """Of a product that is added to something."""
    return _product_flops(a, b)


@register_flop_formula(_aten.convolution)
def _convolution_flops(x, weight, bias=None, stride=1, padding=0, dilation=1, transposed=False, *args, out_shape=None, **kwargs):
    """Of a convolution: each place of the kernel meets each of the result, or, transposed, of the input."""
    places = x if transposed else out_shape
    return 2 * x[0] * math.prod(places[2:]) * math.prod(weight)


def sdpa_flop_count(query_shape, key_shape, value_shape):
    """The operations of attention: the products of queries with keys, and of weights with values."""
    *batch, queries, width = query_shape
    *_, keys, key_width = key_shape
    ratio = batch[-1] % key_shape[-3] if len(batch) > 1 else 0
    if ratio or width != key_width or keys != value_shape[-2]:
        raise AssertionError(f"attention: queries {query_shape}, keys {key_shape} and values {value_shape} do not fit")
    return 2 * math.prod(batch) * queries * keys * (width + value_shape[-1])


@register_flop_formula(_aten._scaled_dot_product_flash_attention)
def _attention_flops(query, key, value, *args, out_shape=None, **kwargs):
    """Of scaled dot product attention."""
    return sdpa_flop_count(query, key, value)


# --- which operator of PyTorch's a call is, and how often backward repeats it ---------------------------------------------------


def _plain(operator):
    def call(out, *args, **kwargs):
        yield operator, out, args, kwargs

    return call


def _matmul(out, a, b, **kwargs):
    if a.dim() < 2 or b.dim() < 2:  # a vector: PyTorch has no formula for these
        return
    if a.dim() == 2 and b.dim() == 2:
        yield _aten.mm, out, (a, b), {}
    elif b.dim() == 2:
        yield _aten.mm, out, (a, b), {"sizes": ((a.shape[:-1].numel(), a.shape[-1]), b.shape)}
    else:
        rows = (out.shape[:-2].numel(), a.shape[-2], a.shape[-1])
        yield _aten.bmm, out, (a, b), {"sizes": (rows, (rows[0], *b.shape[-2:]))}


def _linear(out, x, weight, bias=None):
    sizes = (x.shape[:-1].numel(), x.shape[-1]), tuple(reversed(weight.shape))
    if bias is None:
        yield _aten.mm, out, (x, weight), {"sizes": sizes}
    else:
        yield _aten.addmm, out, (x, weight), {"sizes": (bias.shape, *sizes)}


def _convolution(transposed):
    def call(out, x, weight, *args, **kwargs):
        batch = x.shape if x.dim() == weight.dim() else (1, *x.shape)
        result = out.shape if out.dim() == weight.dim() else (1, *out.shape)
        yield _aten.convolution, result, (x, weight), {"sizes": (batch, weight.shape, None, 1, 0, 1, transposed)}

    return call


def _attention(out, query, key, value, *args, **kwargs):
    yield _aten._scaled_dot_product_flash_attention, out, (query, key, value), {}


def _einsum(out, equation, *operands, **kwargs):
    """Contracted from the left, two at a time, each as a batch of products."""
    if not isinstance(equation, str):
        return
    operands = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    given, _, kept = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if "..." in equation or len(operands) < 2:
        return
    size = {label: n for term, operand in zip(terms, operands) for label, n in zip(term, operand.shape)}
    if "->" not in equation:
        kept = "".join(sorted(label for label in size if given.count(label) == 1))
    left = set(terms[0])
    for i, term in enumerate(terms[1:], 1):
        both, later = left | set(term), set(kept).union(*terms[i + 1 :])
        summed = math.prod(size[label] for label in both - later)
        rest = math.prod(size[label] for label in both & later)
        yield _aten.bmm, out, (operands[i - 1], operands[i]), {"sizes": ((1, rest, summed), (1, summed, 1))}
        left = both & later


_CALLS = {
    "matmul": _matmul,
    "linear": _linear,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    **{name: _plain(getattr(_aten, name)) for name in ("mm", "bmm", "addmm", "baddbmm")},
    **{f"conv{d}d": _convolution(False) for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": _convolution(True) for d in (1, 2, 3)},
}
# what backward runs for an operator, and how many times the forward's operations for each input that needs a gradient
_BACKWARD = {
    _aten.mm: (_aten.mm, 1),
    _aten.bmm: (_aten.bmm, 1),
    _aten.addmm: (_aten.mm, 1),
    _aten.baddbmm: (_aten.bmm, 1),
    _aten.convolution: (_aten.convolution_backward, 1),
    _aten._scaled_dot_product_flash_attention: (_aten._scaled_dot_product_flash_attention_backward, None),
}


class FlopCounterMode(TorchFunctionMode):
    """Counts the operations of products, convolutions and attention, forward and backward, by module and operator.

    >>> import wisp
    >>> from wisp.utils.flop_counter import FlopCounterMode
    >>> with FlopCounterMode(display=False) as counter:
    ...     loss = wisp.nn.Linear(3, 4)(wisp.ones(2, 3)).sum()
    ...     forward = counter.get_total_flops()
    ...     loss.backward()
    >>> forward, counter.get_total_flops()
    (48, 96)
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth, self.display, self.flop_counts = depth, display, defaultdict(lambda: defaultdict(int))
        self._tracker = ModuleTracker()
        custom = {k: v if getattr(v, "_get_raw", False) else _of_shapes(v) for k, v in (custom_mapping or {}).items()}
        self.flop_registry = {**flop_registry, **custom}

    def __enter__(self):
        self.flop_counts.clear()
        self._tracker.__enter__()
        return super().__enter__()

    def __exit__(self, *details):
        super().__exit__(*details)
        self._tracker.__exit__(*details)
        if self.display:
            print(self.get_table(self.depth))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for operator, out, inputs, options in self._operators(func, result, args, kwargs):
            self._count(operator, out, inputs, options, result)
        return result

    def _operators(self, func, result, args, kwargs):
        if isinstance(func, OpOverload):
            return [(func.overloadpacket, result, args, kwargs)] if func.overloadpacket in self.flop_registry else []
        name = getattr(func, "__name__", "").replace(".", "_")
        if name in _CALLS:
            return _CALLS[name](result, *args, **{key: value for key, value in kwargs.items() if key != "out"})
        operator = vars(_aten).get(name)  # made when somebody named it
        return [(operator, result, args, kwargs)] if operator in self.flop_registry else []

    def _count(self, operator, out, inputs, options, result):
        sizes = options.pop("sizes", None)
        flops = int(self.flop_registry[operator](*(inputs if sizes is None else sizes), out_val=out, **({} if sizes else options)))
        parents = set(self._tracker.parents)
        for module in parents:
            self.flop_counts[module][operator] += flops
        node = getattr(result, "grad_fn", None)
        if operator not in _BACKWARD or node is None:
            return
        backward, times = _BACKWARD[operator]
        factors = inputs[1:] if operator in (_aten.addmm, _aten.baddbmm) and sizes is None else inputs
        needed = sum(isinstance(factor, wisp.Tensor) and factor.requires_grad for factor in factors[:2])
        if times is None:  # the scores again, and one product for each of the weights, values, queries and keys
            flops, needed = flops * 5 // 2, 1
        if needed:

            def ran(*_):
                for module in parents:
                    self.flop_counts[module][backward] += flops * needed

            node.register_prehook(ran)

    def get_total_flops(self):
        """All operations that were counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """The operations by module and operator."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth=None):
        """The operations by module, as text."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops() or 1
        rows = [("Module", "FLOP", "% Total")]
        for module in sorted(self.flop_counts, key=lambda name: (name != "Global", name)):
            if module.count(".") < depth:
                count = sum(self.flop_counts[module].values())
                rows.append((module, f"{count:,}", f"{100 * count / total:.2f}%"))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
