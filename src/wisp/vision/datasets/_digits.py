"""The handwritten digits that come with the package: 1797 images, 8 x 8 pixels with values from 0 to 16, and what they show.

`digits.npz` is the test part of E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits. UCI Machine Learning Repository, 1998
(https://doi.org/10.24432/C50P49), licensed under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/), converted from the copy in
scikit-learn (`digits.csv.gz`); only the file format was changed.
"""

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
