"""The progress bar."""
import io

from wisp.progress import Progress, track


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_line_at_the_end():
    file = io.StringIO()
    with Progress(10, "epoch 1", "images", file=file) as bar:
        for _ in range(10):
            bar.update(1, loss=0.5)
    assert file.getvalue().count("\n") == 1
    assert "epoch 1" in file.getvalue() and "100%" in file.getvalue() and "loss 0.5000" in file.getvalue()


def test_terminal():
    file = Terminal()
    assert list(track([1, 2, 3], "count", file=file, interval=0)) == [1, 2, 3]
    assert file.getvalue().count("\r") == 4 and file.getvalue().endswith("\n")


def test_unknown_total():
    file = io.StringIO()
    with Progress(None, "reading", "lines", file=file) as bar:
        bar.update(1500)
    assert "1,500" in file.getvalue() and "%" not in file.getvalue()
