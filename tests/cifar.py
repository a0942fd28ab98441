"""Files that look like CIFAR-10's, with random pictures."""

import os
import pickle

import numpy


def make_cifar(root, count=10):
    folder = os.path.join(root, "cifar-10-batches-py")
    os.makedirs(folder, exist_ok=True)
    for name in [f"data_batch_{index}" for index in range(1, 6)] + ["test_batch"]:
        batch = {b"data": numpy.random.randint(0, 255, (count, 3072), dtype=numpy.uint8), b"labels": [i % 10 for i in range(count)]}
        with open(os.path.join(folder, name), "wb") as file:
            pickle.dump(batch, file)
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    with open(os.path.join(folder, "batches.meta"), "wb") as file:
        pickle.dump({b"label_names": names}, file)
