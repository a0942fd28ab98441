"""How tensors and modules show themselves in a notebook."""

import base64
import math
import pathlib
import struct
import zlib

import wisp
from wisp.viz._page import bytes_text, escape, shape_text

__all__ = ["Image", "image", "module_html", "tensor_html"]

_EDGE, _LIMIT = 4, 12  # of a longer row or column this many are shown at each end


def _picked(size):
    """Which indices are shown, None for those between."""
    return list(range(size)) if size <= _LIMIT else [*range(_EDGE), None, *range(size - _EDGE, size)]


def _cell_text(value):
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, complex)):
        return str(value)
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _cell(value, largest):
    tint = ""
    if isinstance(value, float) and not math.isfinite(value):
        tint = ";background:#dc262640"
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and largest:
        share = min(1.0, abs(value) / largest) * 0.35
        tint = f";background:rgba({'37,99,235' if value >= 0 else '234,88,12'},{share:.2f})"
    return f"<td style='text-align:right;padding:1px 7px{tint}'>{escape(_cell_text(value))}</td>"


def _table(matrix):
    """The two last dimensions as a table whose colours show the values."""
    rows, columns = _picked(matrix.shape[0]), _picked(matrix.shape[1])
    values = {(i, j): matrix[i, j].item() for i in rows for j in columns if i is not None and j is not None}
    sizes = [abs(v) for v in values.values() if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
    largest = max(sizes, default=0)
    gap = "<td style='text-align:center;opacity:.5'>⋯</td>"
    lines = []
    for i in rows:
        if i is None:
            lines.append("<tr>" + "<td style='text-align:center;opacity:.5'>⋮</td>" * len(columns) + "</tr>")
        else:
            lines.append("<tr>" + "".join(gap if j is None else _cell(values[i, j], largest) for j in columns) + "</tr>")
    return f"<table style='border-collapse:collapse;font-family:monospace;font-size:12px'>{''.join(lines)}</table>"


def tensor_html(tensor):
    """A tensor as a table: its facts, and its last two dimensions with colours for the values.

    >>> "[2, 3]" in tensor_html(wisp.ones(2, 3))
    True
    """
    if tensor.layout != wisp.strided:  # sparse ones say best what they have as text
        return f"<div><pre>{escape(repr(tensor))}</pre></div>"
    facts = [
        f"<b>{shape_text(tensor.shape)}</b>",
        str(tensor.dtype).removeprefix("torch."),
        str(tensor.device),
        bytes_text(tensor.numel() * tensor.element_size()),
    ]
    if tensor.grad_fn is not None:
        facts.append(escape(tensor.grad_fn.name()))
    elif tensor.requires_grad:
        facts.append("requires grad")
    head = f"<div style='font-size:12px;opacity:.75;margin-bottom:3px'>{' · '.join(facts)}</div>"
    if tensor.device.type == "meta" or tensor.numel() == 0:
        return head + ("<div style='font-size:12px'>no elements</div>" if tensor.numel() == 0 else "")
    t = tensor.detach().cpu()
    if t.dim() == 0:
        return head + f"<div style='font-family:monospace'>{escape(_cell_text(t.item()))}</div>"
    if t.dim() == 1:
        return head + _table(t.unsqueeze(0))
    lead = math.prod(t.shape[:-2])
    flat = t.reshape(lead, *t.shape[-2:])
    tables = []
    for i in range(min(lead, 3)):
        index, rest = [], i
        for size in reversed(t.shape[:-2]):
            index.insert(0, rest % size)
            rest //= size
        label = f"<div style='font-size:11px;opacity:.6'>{shape_text(index)}</div>" if lead > 1 else ""
        tables.append(f"<div>{label}{_table(flat[i])}</div>")
    more = f"<div style='align-self:center;opacity:.6'>… {lead - 3:,} more</div>" if lead > 3 else ""
    return head + f"<div style='display:flex;gap:18px;flex-wrap:wrap'>{''.join(tables)}{more}</div>"


def module_html(module, name="", depth=0):
    """A module as a tree that can be folded, with the parameters of every part.

    >>> from wisp import nn
    >>> "Linear" in module_html(nn.Sequential(nn.Linear(2, 3)))
    True
    """
    count = sum(p.numel() for p in module.parameters())
    title = (f"<span style='opacity:.6'>{escape(name)}</span> " if name else "") + f"<b>{escape(type(module).__name__)}</b>"
    extra = module.extra_repr()
    if extra and "\n" not in extra:
        title += f"<span style='font-family:monospace;font-size:12px'>({escape(extra)})</span>"
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    note = f" <span style='opacity:.55;font-size:12px'>{count:,} parameters, {bytes_text(size)}</span>" if count else ""
    children = list(module.named_children())
    own = "".join(
        f"<div style='margin-left:22px;font-family:monospace;font-size:12px;opacity:.75'>{escape(key)} {shape_text(p.shape)} "
        f"{str(p.dtype).removeprefix('torch.')}{'' if p.requires_grad else ' frozen'}</div>"
        for key, p in module.named_parameters(recurse=False)
    )
    if not children and not own:
        return f"<div style='margin-left:22px'>{title}{note}</div>"
    inside = own + "".join(module_html(child, key, depth + 1) for key, child in children)
    shown = " open" if children and depth < 2 else ""
    return (
        f"<details style='margin-left:{8 if depth else 0}px'{shown}><summary style='cursor:pointer'>{title}{note}</summary>"
        f"<div style='border-left:1px solid #8884;margin-left:5px'>{inside}</div></details>"
    )


class Image:
    """A picture made of pixels: shows itself in a notebook; `save(path)` writes a PNG."""

    def __init__(self, png, width, height):
        self.png, self.width, self.height = png, width, height

    def save(self, path):
        """Write the PNG."""
        pathlib.Path(path).write_bytes(self.png)

    def _repr_html_(self):
        scale = max(1, min(8, 256 // max(1, self.height)))
        return (
            f"<img src='data:image/png;base64,{base64.b64encode(self.png).decode()}' width='{self.width * scale}' "
            f"style='image-rendering:pixelated;max-width:100%'>"
        )

    def __repr__(self):
        return f"Image({self.height} x {self.width})"


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def encode_png(pixels):
    """A PNG file from bytes of shape [height, width, channels], 1, 3 or 4 channels."""
    height, width, channels = pixels.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    rows = pixels.contiguous().reshape(height, width * channels).numpy()
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(raw, 6))
        + _chunk(b"IEND", b"")
    )


def to_pixels(tensor, scale=False):
    """[C, H, W] as bytes [H, W, C]: bytes stay, other numbers are between 0 and 1 (`scale`: between least and largest)."""
    t = tensor.detach().cpu()
    if t.dtype != wisp.uint8:
        t = t.double()
        if scale:
            low, high = t.min(), t.max()
            t = (t - low) / (high - low if high > low else 1.0)
        t = (t.nan_to_num(0.0).clamp(0, 1) * 255).round().to(wisp.uint8)
    return t.permute(1, 2, 0)


def image(tensor, *, scale=False, columns=8):
    """A tensor as a picture: [H, W], [C, H, W] with 1, 3 or 4 channels, or several of those, [N, C, H, W], in a grid.

    Numbers are taken between 0 and 1 (bytes between 0 and 255); `scale=True` stretches them from the least to the largest.

    >>> image(wisp.rand(3, 16, 20))
    Image(16 x 20)
    >>> image(wisp.rand(10, 1, 8, 8))
    Image(20 x 82)
    """
    t = tensor if tensor.dim() != 2 else tensor.unsqueeze(0)
    if t.dim() == 4 and t.shape[1] in (1, 3, 4):
        count, channels, height, width = t.shape
        across = max(1, min(columns, count))
        down = -(-count // across)
        if t.dtype != wisp.uint8:
            t = t.detach().double()
        grid = t.new_zeros(channels, down * (height + 2) or 1, across * (width + 2) + 2)
        for i in range(count):
            y, x = (i // across) * (height + 2) + 1, (i % across) * (width + 2) + 2
            grid[:, y : y + height, x : x + width] = t[i]
        t = grid
    if t.dim() != 3 or t.shape[0] not in (1, 3, 4):
        raise ValueError(f"viz.image(): expected [H, W], [C, H, W] or [N, C, H, W] with 1, 3 or 4 channels, got {shape_text(tensor.shape)}")
    pixels = to_pixels(t, scale)
    return Image(encode_png(pixels), pixels.shape[1], pixels.shape[0])
