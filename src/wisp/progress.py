"""Progress bars for terminals and notebooks: how far, how fast, how long to go, and the numbers you give them.

    for epoch in range(3):
        bar = progress.bar(loader, f"epoch {epoch + 1}")
        for x, y in bar:
            ...
            bar.set(loss=loss)

    epoch 1  ━━━━━━━━━━━━━━━━━╸             63%  154 it/s  0:02 left  loss 0.2134

In a terminal the line is redrawn in place (a bar within a bar takes the line below it), in a notebook the bar is drawn in
HTML, and elsewhere (a log file, a pipe) a plain line is written every few seconds and one at the end.
"""

import collections
import html
import shutil
import sys
import time

from wisp import _reference

__all__ = ["Progress", "bar", "trange"]

_open = []  # the bars being drawn in a terminal, outermost first


def _clock(seconds):
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _number(value):
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    value = float(value.item() if hasattr(value, "item") else value)
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"


def _notebook():
    """Whether the output goes to a notebook, which shows HTML."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


class Progress:
    """A progress bar over an iterable, or one that is counted by hand with `update`.

    `total` is what is counted up to (the iterable's length by default; unknown is fine). `count` is a function that says
    how much an item counts, 1 by default: `count=lambda batch: len(batch[0])` with `total=len(dataset)` counts samples.
    `interval` is the least number of seconds between two drawings (0.1 in a terminal or notebook, 5 elsewhere).

    >>> import sys
    >>> with Progress(total=3, label="reading", file=sys.stdout) as bar:
    ...     bar.update(3, lines=120)  # doctest: +ELLIPSIS
    reading  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 100%  ...  lines 120
    """

    def __init__(self, iterable=None, label="", total=None, unit="it", *, count=None, file=None, interval=None):
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)
        self.iterable, self.label, self.total, self.unit, self.count = iterable, label, total, unit, count
        self.file = sys.stdout if file is None else file
        self.done = 0
        self.values = {}
        self.start = self._shown = time.perf_counter()
        self._recent = collections.deque([(self.start, 0)], maxlen=50)  # when how much was done, for the rate now
        self._terminal = hasattr(self.file, "isatty") and self.file.isatty()
        self._display = None
        self._closed = False
        if file is None and _notebook():
            from IPython.display import display

            self._terminal, self._display = False, display(self, display_id=True)
        live = self._terminal or self._display is not None
        self.interval = interval if interval is not None else 0.1 if live else 5.0
        if live:
            self._shown -= self.interval

    def __iter__(self):
        if self.iterable is None:
            raise TypeError("a Progress without an iterable can't be iterated over: give it one, or call update(n) yourself")
        with self:
            for item in self.iterable:
                yield item
                self.update(1 if self.count is None else self.count(item))

    def __len__(self):
        if self.total is None:
            raise TypeError("this Progress has no total")
        return self.total

    @property
    def elapsed(self):
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def rate(self):
        """Units per second so far."""
        return self.done / max(self.elapsed, 1e-9)

    def set(self, **values):
        """Show values by their names. A tensor is only read when it is drawn, so this costs nothing in a hot loop."""
        for name, value in values.items():
            self.values[name] = value.detach() if hasattr(value, "detach") else value

    def update(self, count=1, **values):
        """Count on, and show values by their names."""
        self.done += count
        if values:
            self.set(**values)
        now = time.perf_counter()
        if now - self._shown >= self.interval:
            self._shown = now
            self._recent.append((now, self.done))
            self._draw()

    def _numbers(self, finished):
        """Rate, time and values, as texts."""
        rate = self.rate
        if not finished and len(self._recent) > 1:
            (since, before), (now, done) = self._recent[0], self._recent[-1]
            rate = (done - before) / max(now - since, 1e-9) or rate
        parts = [f"{rate:,.0f} {self.unit}/s" if rate >= 10 else f"{rate:.2f} {self.unit}/s"]
        if finished or not self.total:
            parts.append(_clock(self.elapsed))
        elif self.done:
            parts.append(_clock(max(0, self.total - self.done) / rate) + " left")
        return parts + [f"{name.replace('_', ' ')} {_number(value)}" for name, value in self.values.items()]

    def text(self, finished=False):
        """The line as it looks now."""
        numbers = "  ".join(self._numbers(finished))
        if not self.total:
            return f"{self.label}  {self.done:,}  {numbers}".strip()
        share = min(1.0, self.done / self.total)
        columns = shutil.get_terminal_size().columns
        width = max(5, min(30, columns - len(self.label) - len(numbers) - 10))
        filled = share * width
        bar = "━" * int(filled) + ("╸" if filled % 1 >= 0.5 else "")
        try:
            bar.encode(getattr(self.file, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            bar = "#" * int(filled)
        return f"{self.label}  {bar:<{width}} {share:4.0%}  {numbers}".strip()

    def _repr_html_(self):
        numbers = " &nbsp; ".join(map(html.escape, self._numbers(self._closed)))
        if self.total:
            share = min(1.0, self.done / self.total)
            colour = "#2e9e5b" if share == 1 else "#c0392b" if self._closed else "#3b7dd8"
            middle = (
                f"<span style='display:inline-block;width:16em;height:.7em;border-radius:.35em;background:#8883;overflow:hidden'>"
                f"<span style='display:block;height:100%;width:{share:.1%};background:{colour}'></span></span>"
                f"<span style='min-width:3em;text-align:right'>{share:.0%}</span>"
            )
        else:
            middle = f"<b>{self.done:,}</b>"
        return (
            f"<div style='display:flex;align-items:center;gap:.8em;font-family:monospace;white-space:nowrap'>"
            f"<span>{html.escape(str(self.label))}</span>{middle}<span>{numbers}</span></div>"
        )

    def _write(self, *text):
        self.file.write("".join(text))
        self.file.flush()

    def _line(self):
        """Which line of the terminal is this bar's, below the outermost one."""
        if self not in _open:
            _open.append(self)
        return _open.index(self)

    def _draw(self, finished=False):
        if self._display is not None:
            self._display.update(self)
        elif self._terminal:
            depth = self._line()
            text = "" if finished and depth else self.text(finished)[: max(1, shutil.get_terminal_size().columns - 1)]
            self._write("\n" * depth, "\r", text, "\x1b[K", f"\x1b[{depth}A" if depth else "")
        else:
            self._write(self.text(finished), "\n")

    def write(self, text):
        """Write a line above the bar."""
        if self._terminal:
            depth = self._line()
            self._write("\r\x1b[K", str(text), "\n")
            for other in _open[: depth + 1]:
                other._draw()
        else:
            print(text, file=self.file)

    def close(self):
        """Draw the last state and end the line; an inner bar's line is taken away."""
        if self._closed:
            return
        self._closed = True
        self._draw(finished=True)
        if self._terminal:
            if _open[0] is self:
                self._write("\n")
            _open.remove(self)

    def __enter__(self):
        if self._terminal:
            self._line()
        return self

    def __exit__(self, *_):
        self.close()


def bar(iterable=None, label="", total=None, unit="it", **options):
    """A bar to iterate over (or, without an iterable, to `update`), closed at the end of the loop.

    >>> steps = bar([3, 2, 1], "count")
    >>> for x in steps:  # doctest: +ELLIPSIS
    ...     steps.set(loss=x / 10)
    count  ━...━ 100%  ...  loss 0.1000
    """
    return Progress(iterable, label, total, unit, **options)


def trange(*arguments, label="", **options):
    """`bar(range(...))`.

    >>> for i in trange(3, label="steps"):  # doctest: +ELLIPSIS
    ...     pass
    steps  ━...━ 100%  ... it/s  ...
    """
    return Progress(range(*arguments), label, **options)


_reference.attach(__name__, globals())
