"""Small data sets that come with the package (see README.md here for where they are from)."""

import os

import numpy

import wisp

__all__ = ["digits"]


def digits():
    """Handwritten digits -> (train_x, train_y, test_x, test_y).

    Images are float tensors of shape (n, 1, 8, 8) with values from 0 to 1, labels are int64. There are 1438 images to
    train with; every fifth of the 1797 is kept for testing.
    """
    with numpy.load(os.path.join(os.path.dirname(__file__), "digits.npz")) as file:
        images = file["images"].astype(numpy.float32)[:, None] / 16
        labels = file["labels"].astype(numpy.int64)
    test = numpy.arange(len(labels)) % 5 == 4
    return tuple(wisp.from_numpy(numpy.ascontiguousarray(part)) for part in (images[~test], labels[~test], images[test], labels[test]))
