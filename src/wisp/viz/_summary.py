"""A table of a model's layers: shapes, parameters, work and memory."""

import math
import pathlib

import wisp
from wisp import nn
from wisp.viz._page import bytes_text, escape, page, shape_text

__all__ = ["Summary", "summary"]


class Row:
    """One call of a module."""

    def __init__(self, depth, name, module):
        self.depth, self.name, self.kind = depth, name, type(module).__name__
        self.leaf = True  # no rows of its own parts follow
        self.own_parameters = sum(p.numel() for p in module.parameters(recurse=False))
        self.all_parameters = sum(p.numel() for p in module.parameters())
        self.shape, self.bytes, self.mult_adds, self.again = (), 0, 0, False  # again: it was called before

    @property
    def parameters(self):
        return self.all_parameters if self.leaf else self.own_parameters

    @property
    def title(self):
        return f"{self.name} ({self.kind})" if self.depth else self.kind


def _first_tensor(value):
    if isinstance(value, wisp.Tensor):
        return value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        found = _first_tensor(part)
        if found is not None:
            return found
    return None


def _mult_adds(module, args, result):
    """Multiplications that are added up in one call of a layer; 0 for layers without weights to multiply by."""
    out = _first_tensor(result)
    if out is None:
        return 0
    if isinstance(module, nn.Linear):
        return out.numel() * module.in_features
    if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        return args[0].numel() * math.prod(module.weight.shape[1:])
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return out.numel() * math.prod(module.weight.shape[1:])
    if isinstance(module, nn.Bilinear):
        return out.numel() * module.in1_features * module.in2_features
    if isinstance(module, nn.RNNBase):
        steps = math.prod(args[0].shape[:-1])
        return steps * sum(p.numel() for name, p in module.named_parameters() if name.startswith("weight"))
    if isinstance(module, (nn.RNNCell, nn.LSTMCell, nn.GRUCell)):
        return math.prod(args[0].shape[:-1]) * sum(p.numel() for name, p in module.named_parameters() if name.startswith("weight"))
    if isinstance(module, nn.MultiheadAttention):
        query, key = args[0], args[1] if len(args) > 1 else args[0]
        length, size = query.numel() // module.embed_dim, module.embed_dim
        others = key.numel() // key.shape[-1]
        per_sequence = key.shape[1 if module.batch_first and key.dim() == 3 else 0]
        return 2 * length * size * size + 2 * others * size * size + 2 * length * per_sequence * size
    return 0


class Summary:
    """A model's layers as a table: print it, or look at `rows`, `total_params`, `trainable_params`, `total_mult_adds`,
    `total_param_bytes`, `total_output_bytes`."""

    def __init__(self, model, rows, inputs):
        self.rows = rows
        self.input_size = [tuple(t.shape) for t in inputs]
        parameters = list(model.parameters())
        self.total_params = sum(p.numel() for p in parameters)
        self.trainable_params = sum(p.numel() for p in parameters if p.requires_grad)
        self.total_param_bytes = sum(p.numel() * p.element_size() for p in parameters)
        self.total_mult_adds = sum(row.mult_adds for row in rows)
        self.total_output_bytes = sum(row.bytes for row in rows if row.leaf)
        self.input_bytes = sum(t.numel() * t.element_size() for t in inputs)

    def _cells(self):
        """Texts of the table: layer, output, parameters, multiply-adds, bytes."""
        for row in self.rows:
            parameters = "(again)" if row.again and row.parameters else f"{row.parameters:,}" if row.parameters else "—"
            yield (
                row,
                (
                    shape_text(row.shape) if row.shape is not None else "—",
                    parameters,
                    f"{row.mult_adds:,}" if row.mult_adds else "—",
                    bytes_text(row.bytes) if row.leaf else "—",
                ),
            )

    def _totals(self):
        frozen = self.total_params - self.trainable_params
        yield "parameters", f"{self.total_params:,}" + (f" ({frozen:,} of them frozen)" if frozen else "")
        yield "multiply-adds", f"{self.total_mult_adds:,}"
        yield "input", f"{', '.join(map(shape_text, self.input_size))}, {bytes_text(self.input_bytes)}"
        yield "layers' outputs", bytes_text(self.total_output_bytes)
        yield "weights", bytes_text(self.total_param_bytes)

    _TITLES = ("layer", "output", "parameters", "multiply-adds", "bytes")

    def __str__(self):
        lines = [("  " * row.depth + row.title, *cells) for row, cells in self._cells()]
        widths = [max(len(line[i]) for line in [self._TITLES, *lines]) for i in range(5)]

        def text(line):
            return "  ".join([line[0].ljust(widths[0]), line[1].ljust(widths[1]), *(c.rjust(w) for c, w in zip(line[2:], widths[2:]))])

        rule = "─" * (sum(widths) + 8)
        return "\n".join([text(self._TITLES), rule, *map(text, lines), rule, *(f"{name}: {value}" for name, value in self._totals())])

    __repr__ = __str__

    def html(self):
        """The table as the text of a page."""
        style = (
            "<style>body{font:14px system-ui,'DejaVu Sans',sans-serif;background:#fff;color:#27272a}table{white-space:nowrap}"
            "tbody tr:nth-child(odd){background:#8881}@media (prefers-color-scheme:dark){body{background:#18181b;color:#e4e4e7}}</style>"
        )
        return page("summary", f"{style}<div style='padding:16px;overflow-x:auto'>{self._repr_html_()}</div>")

    def save(self, path):
        """Write the table: text by the name's end .txt, else an HTML page."""
        text = f"{self}\n" if str(path).endswith(".txt") else self.html()
        pathlib.Path(path).write_text(text, encoding="utf-8")

    def _repr_html_(self):
        side = "padding:2px 10px;text-align:"
        head = "".join(f"<th style='{side}{'left' if i < 2 else 'right'}'>{title}</th>" for i, title in enumerate(self._TITLES))
        body = "".join(
            f"<tr><td style='{side}left;padding-left:{10 + 16 * row.depth}px'><b>{escape(row.name if row.depth else row.kind)}</b> "
            f"<span style='opacity:.6'>{escape(row.kind if row.depth else '')}</span></td>"
            + "".join(
                f"<td style='{side}{'right' if i else 'left'};font-family:monospace'>{escape(cell)}</td>" for i, cell in enumerate(cells)
            )
            + "</tr>"
            for row, cells in self._cells()
        )
        totals = " &nbsp;·&nbsp; ".join(f"{name}: <b>{escape(value)}</b>" for name, value in self._totals())
        return f"<table style='border-collapse:collapse'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{totals}</p>"


def summary(model, x=None, *, input_size=None, depth=None, **kwargs):
    """What each layer of a model makes of `x` (a tensor, a tuple of arguments, or `input_size`): output shapes, parameters,
    multiply-adds, bytes. The model is called once, in evaluation mode and without gradients.

    >>> from wisp import nn
    >>> summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), wisp.ones(2, 4))
    layer         output  parameters  multiply-adds  bytes
    ──────────────────────────────────────────────────────
    Sequential    [2, 1]           —              —      —
      0 (Linear)  [2, 8]          40             64   64 B
      1 (ReLU)    [2, 8]           —              —   64 B
      2 (Linear)  [2, 1]           9             16    8 B
    ──────────────────────────────────────────────────────
    parameters: 49
    multiply-adds: 80
    input: [2, 4], 32 B
    layers' outputs: 136 B
    weights: 196 B
    """
    if x is None:
        if input_size is None:
            raise ValueError("viz.summary(): give an input, or its shape: summary(model, x) or summary(model, input_size=(1, 3, 32, 32))")
        parameter = next(model.parameters(), None)
        x = wisp.zeros(input_size) if parameter is None else wisp.zeros(input_size, device=parameter.device)
    arguments = x if isinstance(x, (tuple, list)) else (x,)
    rows, open_rows, handles, seen = [], [], [], set()

    def before(module, args, name=""):
        row = Row(len(open_rows), name, module)
        row.again = id(module) in seen
        seen.add(id(module))
        if depth is None or row.depth <= depth:
            rows.append(row)
            if open_rows:
                open_rows[-1].leaf = False
        open_rows.append(row)

    def after(module, args, kwargs, result):
        row = open_rows.pop()
        out = _first_tensor(result)
        row.shape = tuple(out.shape) if out is not None else None
        row.bytes = out.numel() * out.element_size() if out is not None else 0
        row.mult_adds += _mult_adds(module, args or tuple(kwargs.values()), result)
        if depth is not None and row.depth > depth:  # counts for the row that is shown
            open_rows[-1].mult_adds += row.mult_adds

    training = {module: module.training for module in model.modules()}
    try:
        for name, module in model.named_modules():
            label = name.rsplit(".", 1)[-1]
            handles.append(module.register_forward_pre_hook(lambda module, args, label=label: before(module, args, label)))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        model.eval()
        with wisp.no_grad():
            model(*arguments, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in training.items():
            module.training = mode
    return Summary(model, rows, [t for t in (*arguments, *kwargs.values()) if isinstance(t, wisp.Tensor)])
