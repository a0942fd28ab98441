"""`explain`: what a call in a compiled region was made into."""

import functools

from wisp import _core


class Program:
    """One fused program: its operators in order, its shape, the bytes that it moves, its steps as text, its time in `seconds` (on a CPU),
    and the line of the program that `asked` for its values (empty: the region ended, or enough was noted)."""

    def __init__(self, operators, shape, read, written, one_by_one, steps=(), asked="", seconds=0.0):
        self.operators, self.shape, self.read, self.written, self.one_by_one = operators, shape, read, written, one_by_one
        self.steps, self.asked, self.seconds = list(steps), asked, seconds

    @property
    def bytes(self):
        return self.read + self.written

    @property
    def reason(self):
        """Why it was run then, and nothing more was fused into it."""
        if self.asked:
            return f"Run because {self.asked} needed a value: by an operator that is not noted, or in Python."
        return "Run because the region ended, or as many operators as are kept were noted."

    def __str__(self):
        names = " · ".join(self.operators)
        return f"{self.shape}: {names}\n    {_size(self.read)} read, {_size(self.written)} written; one by one {_size(self.one_by_one)}"


class Explanation:
    """The programs of one call (`programs`), its result (`result`), and the counts before and after (`operators`, `bytes`,
    `bytes_one_by_one`, `never_made`). Printing it shows them all."""

    def __init__(self, result, programs, counts):
        self.result, self.programs = result, programs
        self.operators, self.never_made = counts["noted"], counts["never_made"]
        self.bytes, self.bytes_one_by_one = counts["bytes"], counts["bytes_one_by_one"]
        # what PyTorch's explanation counts: Python runs every time, and nothing breaks a graph
        self.graph_count, self.graph_break_count, self.break_reasons, self.op_count = len(programs), 0, [], self.operators

    def __str__(self):
        head = f"{self.operators} operators noted, {self.never_made} never made, {len(self.programs)} programs; "
        head += f"{_size(self.bytes)} moved instead of {_size(self.bytes_one_by_one)}"
        return "\n".join([head, *map(str, self.programs)])

    __repr__ = __str__

    def _repr_html_(self):
        from wisp import viz

        return viz.fusions(self)._repr_html_()


def _size(count):
    units = ["bytes", "KB", "MB", "GB"]
    while count >= 10000 and len(units) > 1:
        count = round(count / 1000)
        del units[0]
    return f"{count} {units[0]}"


def explain(f, *extra_args, **extra_kwargs):
    """`explain(f)(*args)` calls `f` in a compiled region and tells what was fused into what.

    >>> import wisp
    >>> print(wisp.compiler.explain(lambda x: (x * 2 + 1).exp())(wisp.zeros(200, 100)))
    3 operators noted, 0 never made, 1 programs; 160 KB moved instead of 480 KB
    [200, 100]: mul · add · exp
        80 KB read, 80 KB written; one by one 480 KB
    """

    @functools.wraps(f, assigned=(), updated=())
    def explained(*args, **kwargs):
        _core._run_noted()
        before = _core._noted_counts()
        result, programs = _core._call_watched(f, args, kwargs)
        after = _core._noted_counts()
        return Explanation(result, [Program(*p) for p in programs], {name: after[name] - before[name] for name in after})

    return explained(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else explained
