"""Timing of statements: `Timer(...).timeit()`, `blocked_autorange()`."""

import enum as _enum
import statistics as _statistics
import textwrap as _textwrap
import timeit as _timeit

__all__ = ["Compare", "Language", "Measurement", "Timer", "timer"]
timer = _timeit.default_timer


class Language(_enum.Enum):
    """What a statement is written in: of a `Timer`, Python.

    >>> from wisp.utils.benchmark import Language, Timer
    >>> Timer("1 + 1", language=Language.PYTHON).timeit(2).number_per_run
    2
    """

    PYTHON = 0
    CPP = 1


class Measurement:
    """The times of a statement, in seconds per run."""

    def __init__(self, number_per_run, raw_times, label=None, sub_label=None, description=None, num_threads=1, stmt="", env=None):
        self.number_per_run, self.raw_times, self.num_threads, self.env = number_per_run, list(raw_times), num_threads, env
        self.label, self.sub_label, self.description, self.stmt = label, sub_label, description, stmt

    @property
    def times(self):
        return [value / self.number_per_run for value in self.raw_times]

    @property
    def median(self):
        return _statistics.median(self.times)

    @property
    def mean(self):
        return _statistics.fmean(self.times)

    @property
    def iqr(self):
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = _statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    @property
    def title(self):
        return ": ".join(filter(None, (self.label or self.stmt.strip(), self.sub_label)))

    def __repr__(self):
        unit, scale = next(((u, s) for u, s in (("s", 1), ("ms", 1e-3), ("us", 1e-6)) if self.median >= s), ("ns", 1e-9))
        name = "Median" if len(self.raw_times) > 1 else ""
        count = f"{len(self.raw_times)} measurement{'s' if len(self.raw_times) != 1 else ''}, {self.number_per_run} runs "
        detail = f"  IQR:    {self.iqr / scale:.2f} {unit}\n" if name else ""
        value = f"  {name + ': ' if name else ''}{self.median / scale:.2f} {unit}\n"
        return (
            f"<wisp.utils.benchmark.Measurement>\n{self.title}\n{value}{detail}  {count}per measurement, {self.num_threads} "
            f"thread{'s' if self.num_threads != 1 else ''}"
        )


class Timer:
    """Times a statement with a given number of threads.

    >>> from wisp.utils.benchmark import Timer
    >>> Timer("x + 1", globals={"x": 1}).timeit(10).number_per_run
    10
    """

    def __init__(
        self,
        stmt="pass",
        setup="pass",
        global_setup="",
        timer=timer,
        globals=None,
        label=None,
        sub_label=None,
        description=None,
        env=None,
        num_threads=1,
        language="python",
    ):
        import wisp

        if language not in (Language.PYTHON, "py", "python"):
            raise NotImplementedError(f"Timer: language={language!r}: statements are Python; programs in C++ are timed by their own")
        names = {"torch": wisp, "wisp": wisp, **(globals or {})}
        stmt, setup = (_textwrap.dedent(text).strip() if isinstance(text, str) else text for text in (stmt, setup))
        self._timer = _timeit.Timer(stmt, setup, timer, names)
        self._facts = {
            "label": label,
            "sub_label": sub_label,
            "description": description,
            "num_threads": num_threads,
            "stmt": stmt if isinstance(stmt, str) else "",
            "env": env,
        }

    def _threads(self):
        import contextlib

        import wisp

        @contextlib.contextmanager
        def block():
            before = wisp.get_num_threads()
            wisp.set_num_threads(self._facts["num_threads"])
            try:
                yield
            finally:
                wisp.set_num_threads(before)

        return block()

    def timeit(self, number=1000000):
        """Run the statement `number` times."""
        with self._threads():
            self._timer.timeit(max(number // 100, 2))
            return Measurement(number, [self._timer.timeit(number)], **self._facts)

    def repeat(self, repeat=-1, number=-1):
        """Run `repeat` measurements of `number` runs."""
        with self._threads():
            return Measurement(number, self._timer.repeat(repeat, number), **self._facts)

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        """Run blocks of a fitting size for at least `min_run_time` seconds."""
        with self._threads():
            number, spent = 1, 0.0
            while (spent := self._timer.timeit(number)) < min_run_time / 1000 and number < 10**7:
                number *= 10
            times, total = [], 0.0
            while total < min_run_time or not times:
                spent = self._timer.timeit(number)
                total += spent
                times.append(spent)
                if callback is not None:
                    callback(number, spent)
            return Measurement(number, times, **self._facts)

    def adaptive_autorange(self, threshold=0.1, *, min_run_time=0.01, max_run_time=10.0, callback=None):
        """As `blocked_autorange`."""
        return self.blocked_autorange(callback, min_run_time)


class Compare:
    """A table of measurements: descriptions are columns, sub-labels rows."""

    def __init__(self, results):
        self._results = list(results)

    def extend_results(self, results):
        """Add measurements."""
        self._results += results

    def trim_significant_figures(self):
        """Nothing to trim: two decimals are shown."""

    def colorize(self, rowwise=False):
        """The table stays plain."""

    def __str__(self):
        columns = list(dict.fromkeys(m.description for m in self._results))
        lines = []
        for label in dict.fromkeys(m.label for m in self._results):
            rows = [m for m in self._results if m.label == label]
            lines.append(f"[ {label or ''} ]  times in us")
            lines.append(" " * 30 + "".join(f"{str(column or ''):>18}" for column in columns))
            for key in dict.fromkeys((m.num_threads, m.sub_label) for m in rows):
                cells = {m.description: m for m in rows if (m.num_threads, m.sub_label) == key}
                shown = "".join(f"{cells[c].median * 1e6:18.2f}" if c in cells else " " * 18 for c in columns)
                lines.append(f"{key[0]} threads: {key[1] or '':<18.18} {shown}")
        return "\n".join(lines)

    def print(self):
        """Print the table."""
        print(str(self))
