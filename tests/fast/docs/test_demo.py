"""The data that comes with the package, and the example that learns to read it."""

import os
import runpy

import wisp

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "digits.py")


def test_digits():
    train_x, train_y, test_x, test_y = wisp.vision.datasets.digits()
    assert tuple(train_x.shape) == (1438, 1, 8, 8) and len(test_x) == len(test_y) == 359
    assert train_x.dtype == wisp.float32 and train_y.dtype == wisp.int64
    assert train_x.min() == 0 and train_x.max() == 1 and sorted(set(train_y.tolist())) == list(range(10))


def test_example(capsys):
    accuracy = runpy.run_path(EXAMPLE)["main"](["--epochs", "6"])
    assert accuracy > 0.95
    assert "images/s" in capsys.readouterr().out
