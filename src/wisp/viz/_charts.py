"""Gradients and activations of a model, a row per parameter or layer, as SVG."""

import math

import wisp
from wisp.viz._collect import dense, unchanged
from wisp.viz._page import Picture, escape, number_text, page, shape_text

__all__ = ["STYLE", "Chart", "activations", "gradient_flow"]

STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px;fill:#27272a}"
    ".mono{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:10.5px;fill:#52525b}"
    ".title{font-size:15px;font-weight:650}.tick{font-size:10px;fill:#8b8b94}.line{stroke:#e4e4e7}.bad{fill:#dc2626}"
    ".faint{fill:#93c5fd}.full{fill:#2563eb}.area{fill:#86efac;stroke:#16a34a;stroke-width:1}.dead{fill:#fecaca;stroke:#dc2626}"
    ".zero{stroke:#a1a1aa;stroke-dasharray:2 2}.ground{fill:#fff}"
    "@media (prefers-color-scheme:dark){.ground{fill:#18181b}text{fill:#e4e4e7}.mono,.tick{fill:#a1a1aa}.line{stroke:#33333a}"
    ".faint{fill:#1e40af}.full{fill:#60a5fa}.area{fill:#14532d;stroke:#4ade80}.dead{fill:#450a0a}.bad{fill:#f87171}.zero{stroke:#71717a}}"
)


class Chart(Picture):
    """A drawn chart: `.svg()`, `.html()`, `.save(path)`; shows itself in a notebook. `rows` has the numbers."""

    def __init__(self, title, width, height, parts, rows):
        self.title, self.rows, self.width, self.height = title, rows, width, height + 10
        self._svg = (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>"
            f"<style>{STYLE}</style><rect class='ground' width='{width}' height='{height}'/>"
            f"<text class='title' x='16' y='26'>{escape(title)}</text>{''.join(parts)}</svg>"
        )

    def svg(self):
        """The chart as the text of an SVG."""
        return self._svg

    def html(self):
        """The chart as a page; on a small screen it scrolls, so that it can be read."""
        style = "<style>body{background:#fff}@media (prefers-color-scheme:dark){body{background:#18181b}}</style>"
        return page(self.title, f"{style}<div style='overflow-x:auto'>{self._svg}</div>")

    def __repr__(self):
        return f"Chart({self.title!r}, {len(self.rows)} rows)"


def _text(x, y, text, style="", anchor=""):
    return (
        f"<text x='{x:.1f}' y='{y:.1f}'"
        + (f" class='{style}'" if style else "")
        + (f" text-anchor='{anchor}'" if anchor else "")
        + f">{escape(text)}</text>"
    )


def gradient_flow(model):
    """The mean and the largest absolute gradient of every parameter, from the first layer to the last, on a scale of
    powers of ten: gradients that vanish or explode along the way are seen at a glance. Call it after `backward()`.

    >>> from wisp import nn
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> model(wisp.ones(1, 2)).sum().backward()
    >>> chart = gradient_flow(model)
    >>> [row["name"] for row in chart.rows]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """
    rows = []
    for name, p in model.named_parameters():
        row = {"name": name, "shape": tuple(p.shape), "mean": None, "max": None}
        if p.grad is not None and p.numel():
            size = dense(p.grad).abs().double()
            row["mean"], row["max"] = size.mean().item(), size.max().item()
        rows.append(row)
    if not any(row["mean"] is not None for row in rows):
        raise ValueError("viz.gradient_flow(): no parameter has a gradient yet; call loss.backward() first")
    finite = [value for row in rows for value in (row["mean"], row["max"]) if value is not None and math.isfinite(value) and value > 0]
    low = math.floor(math.log10(min(finite))) if finite else -1
    high = max(math.ceil(math.log10(max(finite))), low + 1) if finite else 0
    left, right, top, step = 24 + 7.2 * max(len(row["name"]) for row in rows), 640, 76, 22
    scale = right / (high - low)

    def at(value):
        return (math.log10(value) - low) * scale if value > 0 else 0

    parts = [_text(16, 44, "mean, and behind it largest, absolute value", "tick")]
    every = max(1, (high - low) // 8)
    for power in range(low, high + 1, every):
        x = left + (power - low) * scale
        parts.append(f"<line class='line' x1='{x:.1f}' x2='{x:.1f}' y1='{top - 4}' y2='{top + step * len(rows)}'/>")
        parts.append(_text(x, top - 8, f"1e{power}", "tick", "middle"))
    for i, row in enumerate(rows):
        y = top + step * i
        parts.append(_text(left - 10, y + 14, row["name"], "", "end"))
        mean, peak = row["mean"], row["max"]
        tip = f"<title>{escape(row['name'])} {shape_text(row['shape'])}: mean {mean}, largest {peak}</title>"
        if mean is None:
            parts.append(_text(left + 4, y + 14, "no gradient", "tick"))
        elif not math.isfinite(peak):
            parts.append(
                f"<g>{tip}<rect class='bad' x='{left:.1f}' y='{y + 4}' width='{right}' height='13' rx='2' opacity='.25'/>"
                + _text(left + 4, y + 14, "not finite", "bad")
                + "</g>"
            )
        elif peak == 0:
            parts.append(_text(left + 4, y + 14, "all zero", "bad"))
        else:
            parts.append(
                f"<g>{tip}<rect class='faint' x='{left:.1f}' y='{y + 4}' width='{max(1, at(peak)):.1f}' height='13' rx='2'/>"
                f"<rect class='full' x='{left:.1f}' y='{y + 4}' width='{max(1, at(mean)):.1f}' height='13' rx='2'/></g>"
            )
            parts.append(_text(left + right + 10, y + 14, f"{number_text(mean)} / {number_text(peak)}", "mono"))
    return Chart("Gradients", round(left + right + 150), top + step * len(rows) + 16, parts, rows)


def activations(model, x, *, bins=60, **kwargs):
    """A histogram of what every layer gives for `x` (a tensor, or a tuple of arguments), with mean, deviation and the share of
    zeros; layers that give nothing but zeros, or something that is not finite, are red. The model is called once; its running
    statistics stay as they are.

    >>> from wisp import nn
    >>> chart = activations(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), wisp.ones(1, 2))
    >>> [(row["name"], row["kind"], row["shape"]) for row in chart.rows]
    [('0', 'Linear', (1, 3)), ('1', 'ReLU', (1, 3))]
    """
    rows, handles = [], []

    def watch(name, module):
        def hook(module, args, result):
            out = result[0] if isinstance(result, (tuple, list)) else result
            if isinstance(out, wisp.Tensor) and out.numel() and not out.is_complex():
                rows.append(_statistics(name, type(module).__name__, out.detach(), bins))

        return module.register_forward_hook(hook)

    try:
        handles += [watch(name, module) for name, module in model.named_modules() if not list(module.children())]
        with wisp.no_grad(), unchanged(model):
            model(*(x if isinstance(x, (tuple, list)) else (x,)), **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    names = [f"{row['name']} {row['kind']}" for row in rows]
    left, width, top, step = 24 + 7.2 * max(map(len, names), default=0), 420, 48, 58
    parts = []
    for i, (row, label) in enumerate(zip(rows, names)):
        y, base = top + step * i, top + step * i + 40
        parts += [_text(left - 14, y + 22, label, "", "end"), _text(left - 14, y + 38, shape_text(row["shape"]), "tick", "end")]
        parts += _histogram(row, left, width, y, base)
        facts = [f"mean {number_text(row['mean'])}", f"std {number_text(row['std'])}", f"zeros {row['zeros']:.0%}"]
        bad = row["zeros"] == 1 or not row["finite"]
        parts.append(_text(left + width + 14, y + 24, "  ".join(facts), "mono"))
        if bad:
            parts.append(_text(left + width + 14, y + 39, "all zero" if row["zeros"] == 1 else "not finite", "bad"))
    return Chart("Activations", round(left + width + 260), top + step * len(rows) + 10, parts, rows)


def _statistics(name, kind, out, bins):
    values = out.double().flatten()
    kept = values[values.isfinite()]
    row = {
        "name": name,
        "kind": kind,
        "shape": tuple(out.shape),
        "finite": kept.numel() == values.numel(),
        "zeros": (values == 0).double().mean().item(),
        "mean": math.nan,
        "std": math.nan,
        "min": 0.0,
        "max": 0.0,
        "counts": [],
    }
    if kept.numel():
        low, high = kept.min().item(), kept.max().item()
        row.update(mean=kept.mean().item(), std=kept.std(unbiased=False).item(), min=low, max=high)
        if high > low:
            row["counts"] = [int(c) for c in wisp.histc(kept, bins, low, high).tolist()]
    return row


def _histogram(row, left, width, y, base):
    """The histogram of one layer, a few large bins cut off at the top so that the rest is seen."""
    style = "dead" if row["zeros"] == 1 or not row["finite"] else "area"
    parts = [f"<line class='line' x1='{left:.1f}' x2='{left + width:.1f}' y1='{base}' y2='{base}'/>"]
    counts = row["counts"]
    if not counts:
        value = f"all {number_text(row['mean'])}"
        return parts + [
            f"<rect class='{style}' x='{left + width / 2 - 2:.1f}' y='{y + 6}' width='4' height='{base - y - 6}'/>",
            _text(left + width / 2 + 10, y + 20, value, "tick"),
        ]
    peak = sorted(counts)[-2] * 1.25 if len(counts) > 2 else max(counts)
    peak = max(peak, max(counts) / 20, 1)
    each = width / len(counts)
    line = "".join(f"L{left + i * each:.1f},{base - min(1, c / peak) * 34:.1f}h{each:.2f}" for i, c in enumerate(counts))
    parts.append(f"<path class='{style}' d='M{left:.1f},{base}{line}L{left + width:.1f},{base}z'/>")
    low, high = row["min"], row["max"]
    if low < 0 < high:
        x = left + width * -low / (high - low)
        parts.append(f"<line class='zero' x1='{x:.1f}' x2='{x:.1f}' y1='{y + 4}' y2='{base}'/>")
    return parts + [_text(left, base + 11, number_text(low), "tick"), _text(left + width, base + 11, number_text(high), "tick", "end")]
