"""Counts the multiplications and additions of a program: `with FlopCounterMode() as counter`."""

import math
from collections import defaultdict

import wisp
from wisp.overrides import TorchFunctionMode
from wisp.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

_formulas = {}


def register_flop_formula(targets, get_raw=False):
    """Set how many operations a function takes: a decorator for `formula(*args, out_val=..., **kwargs)` or of shapes."""

    def register(formula):
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            function = getattr(target, "_function", target)
            _formulas[getattr(function, "__name__", function)] = lambda out, *args, **kwargs: formula(
                *(a.shape if isinstance(a, wisp.Tensor) and not get_raw else a for a in args),
                **({"out_val": out} if get_raw else {"out_shape": out.shape}),
                **kwargs,
            )
        return formula

    return register


def _product(out, a, b, *rest, **options):
    return 2 * out.numel() * a.shape[-1]


def _added_product(out, bias, a, b, **options):
    return _product(out, a, b)


def _convolution(out, x, weight, *rest, **options):
    return 2 * out.numel() * math.prod(weight.shape[1:])


def _transposed(out, x, weight, *rest, **options):
    return 2 * x.numel() * math.prod(weight.shape[1:])


def _attention(out, q, k, v, *rest, **options):
    batch = math.prod(q.shape[:-1])
    return 2 * batch * k.shape[-2] * (q.shape[-1] + v.shape[-1])


_COUNTED = {
    "mm": _product,
    "matmul": _product,
    "bmm": _product,
    "linear": _product,
    "addmm": _added_product,
    "baddbmm": _added_product,
    **{f"conv{d}d": _convolution for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": _transposed for d in (1, 2, 3)},
    "scaled_dot_product_attention": _attention,
}


class FlopCounterMode(TorchFunctionMode):
    """Counts the operations of products, convolutions and attention in the forward pass, by module.

    >>> import wisp
    >>> from wisp.utils.flop_counter import FlopCounterMode
    >>> with FlopCounterMode(display=False) as counter:
    ...     _ = wisp.nn.Linear(3, 4)(wisp.ones(2, 3))
    >>> counter.get_total_flops()
    48
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        self.depth, self.display, self.flop_counts = depth, display, defaultdict(lambda: defaultdict(int))
        self._tracker = ModuleTracker()
        for target, formula in (custom_mapping or {}).items():
            register_flop_formula(target)(formula)

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
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        formula = _formulas.get(name) or _COUNTED.get(name)
        if formula is not None:
            flops = int(formula(result, *args, **(kwargs or {})))
            for module in self._tracker.parents:
                self.flop_counts[module][name] += flops
        return result

    def get_total_flops(self):
        """All operations that were counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """The operations by module and function."""
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
