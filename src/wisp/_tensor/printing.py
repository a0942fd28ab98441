"""Printing of tensors: the text of repr(tensor), and the options that shape it.

The values to be shown are taken out of the tensor once, as nested Python lists (only the edges of a large
tensor); a `_Style` is chosen from them, and the lists are laid out in lines.
"""

import contextlib
import dataclasses
import math
import sys

import wisp
from wisp import _core


@dataclasses.dataclass
class PrintOptions:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PRINT_OPTS = PrintOptions()

_PROFILES = {
    "default": dict(precision=4, threshold=1000, edgeitems=3, linewidth=80),
    "short": dict(precision=2, threshold=1000, edgeitems=2, linewidth=80),
    "full": dict(precision=4, threshold=math.inf, edgeitems=3, linewidth=80),
}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Set how tensors are printed.

    `precision`: digits after the point; `threshold`: tensors with more elements are abridged to `edgeitems`
    at each end of a dimension; `linewidth`: characters per line; `sci_mode`: scientific notation always (True),
    never (False) or where it is shorter to read (None); `profile`: "default", "short" or "full".
    """
    chosen = dict(_PROFILES.get(profile, {}))
    given = dict(precision=precision, threshold=threshold, edgeitems=edgeitems, linewidth=linewidth)
    chosen.update((name, value) for name, value in given.items() if value is not None)
    for name, value in chosen.items():
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions():
    """The current options, as keyword arguments of `set_printoptions`."""
    return dataclasses.asdict(PRINT_OPTS)


@contextlib.contextmanager
def printoptions(**options):
    """A context in which other print options hold."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


class _Style:
    """How numbers of one tensor are written: all with the same notation and at least the same width."""

    def __init__(self, values, floating):
        self.width = 1
        if not floating:
            self.write = str
            self.width = max([1, *(len(str(value)) for value in values)])
            return
        shown = [value for value in values if value != 0 and math.isfinite(value)]
        whole = all(value == math.floor(value) for value in shown)
        scientific = False
        if shown:
            largest, smallest = max(map(abs, shown)), min(map(abs, shown))
            scientific = PRINT_OPTS.sci_mode
            if scientific is None:
                scientific = largest / smallest > 1000 or largest > 1e8 or smallest < 1e-4
        if scientific:
            self.write = f"{{:.{PRINT_OPTS.precision}e}}".format
        elif whole:
            self.write = lambda value: f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        else:
            self.write = f"{{:.{PRINT_OPTS.precision}f}}".format
        self.width = max([1, *(len(self.write(value)) for value in shown)])

    def __call__(self, value):
        return self.write(value).rjust(self.width)


class _ComplexStyle:
    def __init__(self, values):
        self.real = _Style([value.real for value in values], True)
        self.imag = _Style([value.imag for value in values], True)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value):
        imag = self.imag(value.imag).lstrip()
        return f"{self.real(value.real)}{'' if imag[0] in '+-' else '+'}{imag}j"


def _edges(tensor):
    """The elements of `tensor` that an abridged print shows."""
    edge = PRINT_OPTS.edgeitems
    for dim, size in enumerate(tensor.shape):
        if size > 2 * edge:
            ends = tensor.narrow(dim, 0, edge), tensor.narrow(dim, size - edge, edge)
            tensor = wisp.cat(ends, dim)
    return tensor


def _flat(nested, dim):
    if dim == 0:
        return [nested]
    for _ in range(dim - 1):
        nested = [value for row in nested for value in row]
    return nested


def _layout(values, shape, indent, abridged, style):
    """The text of nested lists `values`; `shape` is that of the whole tensor."""
    if not shape:
        return style(values)
    edge = PRINT_OPTS.edgeitems
    cut = abridged and shape[0] > 2 * edge
    if len(shape) == 1:
        words = [style(value) for value in values]
        if cut:
            words[edge:edge] = [" ..."] if edge else ["..."]
        per_line = max(1, (PRINT_OPTS.linewidth - indent) // (style.width + 2))
        lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_layout(value, shape[1:], indent + 1, abridged, style) for value in values]
    if cut:
        rows[edge:edge] = ["..."]
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(rows) + "]"


def _contents(tensor, indent):
    """The numbers of a strided tensor, without name and suffixes."""
    if tensor.numel() == 0:
        return "[]"
    abridged = tensor.numel() > PRINT_OPTS.threshold
    values = (_edges(tensor) if abridged else tensor).tolist()
    flat = _flat(values, tensor.dim()) if 0 not in (PRINT_OPTS.edgeitems, tensor.dim()) or not abridged else []
    if tensor.dtype.is_complex:
        style = _ComplexStyle(flat)
    else:
        style = _Style(flat, tensor.dtype.is_floating_point)
    return _layout(values, tuple(tensor.shape), indent, abridged, style)


def _part(name, tensor, indent):
    head = f"{name}=tensor("
    size = f", size={tuple(tensor.shape)}" if tensor.numel() == 0 else ""
    return head + _contents(tensor, indent + len(head)) + size + ")"


def _body(tensor, indent):
    """-> the text of the values, and the suffixes that describe shape and dtype."""
    default = wisp.get_default_dtype()
    usual = (default, wisp.complex128 if default == wisp.float64 else wisp.complex64, wisp.int64, wisp.bool)
    size = [f"size={tuple(tensor.shape)}"]
    if tensor.device.type == "meta":
        return "...", size + ([] if tensor.dtype == default else [f"dtype={tensor.dtype}"])
    dtype = [] if tensor.dtype in usual else [f"dtype={tensor.dtype}"]
    if tensor.is_sparse:
        parts = _part("indices", tensor._indices(), indent), _part("values", tensor._values(), indent)
        return (",\n" + " " * indent).join(parts), size + [f"nnz={tensor._nnz()}"] + dtype
    if tensor.layout is not wisp.strided:
        names = (
            ("crow_indices", "col_indices") if tensor.layout in (_core.sparse_csr, _core.sparse_bsr) else ("ccol_indices", "row_indices")
        )
        parts = [_part(name, getattr(tensor, name)(), indent) for name in (*names, "values")]
        return (",\n" + " " * indent).join(parts), size + [f"nnz={tensor._nnz()}"] + dtype
    if tensor.numel() == 0:
        dtype = [] if tensor.dtype == default else [f"dtype={tensor.dtype}"]
        return "[]", (size if tensor.dim() != 1 else []) + dtype
    return _contents(tensor, indent), ([] if PRINT_OPTS.edgeitems else size) + dtype


def tensor_str(tensor, contents=None):
    """The text of repr(tensor); `contents` stands for the numbers, if there is such a text."""
    nn = sys.modules.get("wisp.nn.parameter")  # printing does not load wisp.nn: without it there are no parameters
    parameter = nn is not None and isinstance(tensor, nn.Parameter)
    compressed = tensor.layout is not wisp.strided and not tensor.is_sparse
    plain = type(tensor) is wisp.Tensor or compressed or tensor.is_sparse or parameter and type(tensor) is nn.Parameter
    text = "tensor(" if plain else f"{type(tensor).__name__}("
    indent = len(text)
    suffixes = [] if tensor.device.type in ("cpu", "meta") else [f"device='{tensor.device}'"]
    if tensor.device.type == "meta":
        suffixes = ["device='meta'"]
    if contents is None and "_wrapper_device" in tensor.__dict__:
        contents = "..."
    with wisp.no_grad():
        body, described = _body(tensor.detach(), indent) if contents is None else (contents, [])
    suffixes += described
    sparse = tensor.is_sparse
    if sparse or compressed:
        suffixes.append(f"layout={tensor.layout}")
    if _core._has_tangent(tensor):
        from wisp.autograd.forward_ad import unpack_dual

        tangent = unpack_dual(tensor).tangent
        if tangent is not None:
            suffixes.append(f"tangent={tangent}")
    try:
        node = tensor.grad_fn
        name = None if node is None else node.name().rsplit("::", 1)[-1]
    except RuntimeError:  # a view that is of no use any more
        name = "Invalid"
    if name is not None:
        suffixes.append(f"grad_fn=<{name}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")

    text = _add_suffixes(text + body, suffixes, indent, sparse)
    return f"Parameter({text})" if parameter and not plain else text


def _add_suffixes(tensor_str, suffixes, indent, force_newline):
    """The text with suffixes behind it, broken where a line would be too long."""
    text, new_line = tensor_str, force_newline
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if new_line or column + len(suffix) + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + suffix
            column, new_line = indent + len(suffix), False
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def _tensor_str(self, indent):
    """The numbers of a tensor alone, as libraries ask for them."""
    return _contents(self, indent)


def _str(self, *, tensor_contents=None):
    return tensor_str(self, tensor_contents)


_str_intern = _str
