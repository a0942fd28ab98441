"""Losses and metrics over the steps of training, as SVG; in a notebook the picture moves while they come."""

import math
import pathlib
import time

from wisp.viz._charts import STYLE
from wisp.viz._page import Picture, embed, escape, number_text, page, read

__all__ = ["Curves", "curves"]

_COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#db2777")
_WIDE, _TALL, _LEFT, _TOP, _GAP = 556, 220, 68, 44, 20
_POINTS = 1500  # of a curve that are drawn; longer ones are thinned, extremes kept
_MANY = 50  # points from which on a curve is smoothed, if that is asked for
_STYLE = (
    f"{STYLE}.curve{{fill:none;stroke-width:1.8;stroke-linejoin:round}}.raw{{fill:none;stroke-width:1;opacity:.3}}"
    ".cursor{stroke:#a1a1aa;display:none}"
)


def _number(value):
    return float(value.item() if hasattr(value, "item") else value)


class Curves(Picture):
    """Drawn curves: `.add(...)` adds values, `.svg()`, `.html()`, `.save(path)` (.html, .svg, .csv); shows itself in a notebook."""

    def __init__(self, log=(), smooth=0.0, title="Training"):
        self.log, self.smooth, self.title = log, float(smooth), title
        self.history = {}  # name -> [(step, value)]
        self._shown, self._drawn_at = None, 0.0

    def add(self, step=None, **values):
        """Add values by name, at a step (by default one more than the last of that name); tensors of one element are numbers here.
        Names that no keyword can be are given as `add(**{"loss/train": value})`."""
        for name, value in values.items():
            points = self.history.setdefault(name, [])
            points.append((float(step) if step is not None else points[-1][0] + 1 if points else 0.0, _number(value)))
        if self._shown is not None and time.monotonic() - self._drawn_at > 0.5:
            self._shown.update(self)
            self._drawn_at = time.monotonic()
        return self

    def show(self):
        """Show the picture here and now; in a notebook it goes on with what `add` brings."""
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            return self
        if get_ipython() is not None:
            self._shown = display(self, display_id=True)
        return self

    def _panels(self):
        """Curves that share axes: those with the same part before a slash."""
        panels = {}
        for name in self.history:
            panels.setdefault(name.partition("/")[0], []).append(name)
        return panels

    # --- drawing
    def _size(self):
        """How many panels stand side by side, and the picture's width and height."""
        count = len(self._panels())
        columns = 1 if count < 2 else 2
        return columns, columns * (_LEFT + _WIDE + _GAP), _TOP + max(1, math.ceil(count / columns)) * (_TALL + 72)

    @property
    def height(self):
        return self._size()[2] + 12

    def svg(self):
        """The picture as the text of an SVG."""
        columns, width, height = self._size()
        parts = []
        for i, (panel, names) in enumerate(self._panels().items()):
            x, y = (i % columns) * (_LEFT + _WIDE + _GAP) + _LEFT, _TOP + (i // columns) * (_TALL + 72) + 24
            parts.append(f"<g class='panel' transform='translate({x},{y})'>{self._panel(panel, names, i)}</g>")
        if not parts:
            parts.append("<text x='16' y='70'>nothing was added yet</text>")
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' class='curves' width='{width}' height='{height}' "
            f"data-cell='{_LEFT + _WIDE + _GAP} {_TALL + 72} {_LEFT} {_TOP}' viewBox='0 0 {width} {height}'>"
            f"<style>{_STYLE}</style><rect class='ground' width='{width}' height='{height}'/>"
            f"<text class='title' x='16' y='26'>{escape(self.title)}</text>{''.join(parts)}</svg>"
        )

    def _scale(self, panel, names):
        """-> from a step to x, from a value to y, the ticks of both."""
        points = [point for name in names for point in self.history[name] if math.isfinite(point[1])]
        log = self.log is True or panel in ([self.log] if isinstance(self.log, str) else self.log or ())
        steps, values = [step for step, _ in points] or [0.0], [value for _, value in points if value > 0 or not log] or [1.0]
        first, last = min(steps), max(max(steps), min(steps) + 1e-9)
        low, high = min(values), max(values)
        if log:
            low, high = math.log10(low), math.log10(high)
        margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        low, high = low - margin, high + margin

        def x(step):
            return (step - first) / (last - first) * _WIDE

        def y(value):
            value = (math.log10(value) if value > 0 else low) if log else value
            return _TALL - (min(max(value, low), high) - low) / (high - low) * _TALL

        if not log:
            return x, y, _round_steps(low, high), _round_steps(first, last)
        powers = [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
        return x, y, powers if len(powers) > 1 else [10**low, 10 ** ((low + high) / 2), 10**high], _round_steps(first, last)

    def _panel(self, panel, names, number):
        x, y, levels, steps = self._scale(panel, names)
        parts = [f"<text x='0' y='-10' style='font-weight:600'>{escape(panel)}</text>"]
        for level in levels:
            at = y(level)
            parts.append(f"<line class='line' x1='0' x2='{_WIDE}' y1='{at:.1f}' y2='{at:.1f}'/>")
            parts.append(f"<text class='tick' x='-8' y='{at + 3:.1f}' text-anchor='end'>{number_text(level)}</text>")
        for step in steps:
            parts.append(f"<text class='tick' x='{x(step):.1f}' y='{_TALL + 15}' text-anchor='middle'>{step:g}</text>")
        place = 0
        for i, name in enumerate(names):
            colour, points = _COLOURS[(i + number) % len(_COLOURS)], _thinned(self.history[name])
            smooth = self.smooth if len(points) >= _MANY else 0
            if smooth:
                parts.append(f"<path class='raw' stroke='{colour}' d='{_line(points, x, y)}'/>")
            parts.append(f"<path class='curve' stroke='{colour}' d='{_line(_smoothed(points, smooth), x, y)}'/>")
            if len(points) == 1:
                parts.append(f"<circle cx='{x(points[0][0]):.1f}' cy='{y(points[0][1]):.1f}' r='3' fill='{colour}'/>")
            label = f"{name.partition('/')[2] or name} {number_text(self.history[name][-1][1])}"
            parts.append(f"<rect x='{place:.0f}' y='{_TALL + 24}' width='11' height='11' rx='3' fill='{colour}'/>")
            parts.append(f"<text class='last' data-name='{escape(name)}' x='{place + 16:.0f}' y='{_TALL + 34}'>{escape(label)}</text>")
            place += 90 + 6.8 * len(label)
        parts.append(f"<line class='cursor' y1='0' y2='{_TALL}'/><rect class='reach' width='{_WIDE}' height='{_TALL}' fill-opacity='0'/>")
        return "".join(parts)

    def html(self):
        """The picture as a page: the pointer reads values off."""
        style = (
            "<style>body{background:#fff}.curves{display:block;max-width:100%;height:auto}"
            "@media (max-width:600px){.curves text{font-size:18px}.curves .tick{font-size:14px}}"
            "@media (prefers-color-scheme:dark){body{background:#18181b}}</style>"
        )
        data = [{name: _thinned(self.history[name]) for name in names} for names in self._panels().values()]
        body = f"{self.svg()}<script type='application/json' id='data'>{embed(data)}</script>"
        return page(self.title, f"{style}{body}<script>{read('curves.js')}</script>")

    def save(self, path):
        """Write the picture: SVG by the name's end .svg, the numbers by .csv, else an HTML page."""
        if not str(path).endswith(".csv"):
            return super().save(path)
        names, table = list(self.history), {}
        for i, name in enumerate(names):
            for step, value in self.history[name]:
                table.setdefault(step, [""] * len(names))[i] = repr(value)
        lines = [",".join(["step", *names]), *(",".join([f"{step:g}", *row]) for step, row in sorted(table.items()))]
        pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def __repr__(self):
        return f"Curves({', '.join(f'{name}: {len(points)}' for name, points in self.history.items())})"


def _round_steps(low, high):
    """Some four round numbers between two."""
    if high <= low:
        return [low]
    rough = (high - low) / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return [round(step * i, 12) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _thinned(points):
    """Long curves by the least and the largest value of each stretch."""
    if len(points) <= _POINTS:
        return points
    stretch, kept = math.ceil(2 * len(points) / _POINTS), []
    for i in range(0, len(points), stretch):
        part = points[i : i + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def _smoothed(points, weight):
    """A running mean that forgets; corrected at its beginning."""
    if not weight:
        return points
    out, mean, total = [], 0.0, 0.0
    for step, value in points:
        if math.isfinite(value):
            mean, total = weight * mean + (1 - weight) * value, weight * total + 1 - weight
            out.append((step, mean / total))
    return out


def _line(points, x, y):
    """A path through points, with gaps where values are not finite."""
    parts, pen = [], "M"
    for step, value in points:
        if math.isfinite(value):
            parts.append(f"{pen}{x(step):.1f},{y(value):.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def curves(values=None, *, log=(), smooth=0.0, title="Training"):
    """Losses and metrics over the steps of training: add values as they come, see them move in a notebook, save the picture at the end.

    `values` are curves that exist already: a dict from names to lists of values, or of pairs (step, value). Names with a common part
    before a slash (`"loss/train"`, `"loss/valid"`) share a panel. `log` names panels with a logarithmic scale (True is all), `smooth`
    (0 to 1) draws a running mean over curves of 50 values or more.

    >>> from wisp import viz
    >>> chart = viz.curves(log="loss")
    >>> for step in range(3):
    ...     chart = chart.add(step=step, loss=0.5**step)
    >>> chart
    Curves(loss: 3)
    >>> chart.save("training.html")  # doctest: +SKIP

    In a notebook, `chart = viz.curves().show()` before the loop shows a picture that moves.
    """
    made = Curves(log, smooth, title)
    for name, points in (values or {}).items():
        pairs = [point if isinstance(point, (tuple, list)) else (i, point) for i, point in enumerate(points)]
        made.history[name] = [(float(step), float(value)) for step, value in pairs]
    return made
