"""The progress bars."""

import doctest
import io
import sys
import types

import pytest

import wisp
from wisp import progress
from wisp.progress import Progress, bar, trange


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_line_at_the_end():
    file = io.StringIO()
    with Progress(total=10, label="epoch 1", unit="images", file=file) as b:
        for _ in range(10):
            b.update(1, loss=0.5)
    assert file.getvalue().count("\n") == 1
    assert "epoch 1" in file.getvalue() and "100%" in file.getvalue() and "loss 0.5000" in file.getvalue()


def test_lines_on_the_way():
    file = io.StringIO()
    assert list(bar("abc", "letters", file=file, interval=0)) == ["a", "b", "c"]
    lines = file.getvalue().splitlines()
    assert len(lines) == 4 and "33%" in lines[0] and "left" in lines[0] and "100%" in lines[3]


def test_terminal():
    file = Terminal()
    assert list(bar([1, 2, 3], "count", file=file, interval=0)) == [1, 2, 3]
    assert file.getvalue().count("\r") == 4 and file.getvalue().endswith("\n")
    assert progress._open == []


def test_bar_within_a_bar():
    file = Terminal()
    outer = trange(2, label="epochs", file=file, interval=0)
    for _ in outer:
        for _ in bar(range(2), "steps", file=file, interval=0):
            pass
        outer.write("a line")
    assert file.getvalue().count("\n\rsteps") == 4 and file.getvalue().count("\x1b[1A") == 6 and "a line\n" in file.getvalue()
    assert progress._open == []


def test_ends_with_the_loop():
    file = Terminal()
    for x in bar([1, 2, 3], file=file, interval=0):
        if x == 2:
            break
    with pytest.raises(ZeroDivisionError):
        for x in bar([1, 2, 3], file=file):
            x / 0
    assert progress._open == [] and file.getvalue().count("\n") == 2


def test_counts_samples_and_reads_tensors():
    file = io.StringIO()
    loader = wisp.utils.data.DataLoader(wisp.utils.data.TensorDataset(wisp.arange(10)), batch_size=4)
    steps = bar(loader, "epoch", total=10, unit="samples", count=lambda batch: len(batch[0]), file=file)
    for (x,) in steps:
        loss = (x * wisp.ones(1, requires_grad=True)).sum()
        steps.set(loss=loss)
    assert steps.done == 10 and "samples/s" in file.getvalue() and "loss 17" in file.getvalue()
    assert not steps.values["loss"].requires_grad and len(bar(loader)) == 3


def test_unknown_total():
    file = io.StringIO()
    with Progress(label="reading", unit="lines", file=file) as b:
        b.update(1500)
    assert "1,500" in file.getvalue() and "%" not in file.getvalue()
    with pytest.raises(TypeError, match="has no total"):
        len(b)
    with pytest.raises(TypeError, match="without an iterable"):
        list(b)
    assert list(bar(iter("ab"), file=file)) == ["a", "b"]


def test_notebook(monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=lambda b: shown.append(b._repr_html_()))
    ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=lambda b, display_id: handle))
    for _ in bar([1, 2], "<epoch>", interval=0):
        pass
    assert len(shown) == 3 and "&lt;epoch&gt;" in shown[0] and "50%" in shown[0] and "100%" in shown[2]


def test_examples():
    assert doctest.testmod(progress, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
