"""A progress bar for the terminal: how far, how fast, how long to go, and the numbers you give it.

    with Progress(total=60000, label="epoch 1", unit="images") as bar:
        for x, y in loader:
            ...
            bar.update(len(x), loss=loss.item())

    epoch 1  ━━━━━━━━━━━━━━━━━╸             63%  12,345 images/s  0:02 left  loss 0.2134

Where the output is not a terminal, one line is written at the end.
"""
import shutil
import sys
import time

__all__ = ["Progress", "track"]


def _clock(seconds):
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _number(value):
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    value = float(value)
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.3g}"


class Progress:
    """A progress bar; `total` is what `update` counts up to, or None if that is not known."""

    def __init__(self, total=None, label="", unit="it", file=None, interval=0.1):
        self.total, self.label, self.unit = total, label, unit
        self.file = sys.stdout if file is None else file
        self.interval = interval
        self.done = 0
        self.values = {}
        self.start = time.perf_counter()
        self._shown = 0.0
        self._terminal = hasattr(self.file, "isatty") and self.file.isatty()

    @property
    def elapsed(self):
        return time.perf_counter() - self.start

    @property
    def rate(self):
        """Units per second so far."""
        return self.done / max(self.elapsed, 1e-9)

    def update(self, count=1, **values):
        """Count on, and show values by their names."""
        self.done += count
        self.values.update(values)
        now = time.perf_counter()
        if self._terminal and now - self._shown >= self.interval:
            self._shown = now
            self._write("\r", self.text(), "\x1b[K")

    def text(self, finished=False):
        """The line as it looks now."""
        rate = self.rate
        parts = [f"{rate:,.0f} {self.unit}/s" if rate >= 10 else f"{rate:.2f} {self.unit}/s"]
        if finished or not self.total:
            parts.append(_clock(self.elapsed))
        elif self.done:
            parts.append(_clock(max(0, self.total - self.done) / rate) + " left")
        parts += [f"{name.replace('_', ' ')} {_number(value)}" for name, value in self.values.items()]
        numbers = "  ".join(parts)
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

    def _write(self, *text):
        self.file.write("".join(text))
        self.file.flush()

    def close(self):
        """Write the last state and end the line."""
        text = self.text(finished=True)
        self._write("\r", text, "\x1b[K\n") if self._terminal else self._write(text, "\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def track(iterable, label="", unit="it", **options):
    """Iterate with a progress bar."""
    total = len(iterable) if hasattr(iterable, "__len__") else None
    with Progress(total, label, unit, **options) as bar:
        for item in iterable:
            yield item
            bar.update()
