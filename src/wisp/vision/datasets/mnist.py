"""Handwritten digits and what shares their format: MNIST, FashionMNIST, KMNIST, EMNIST, QMNIST."""

import gzip
import os

import numpy

import wisp
from wisp.vision._pil import image_module
from wisp.vision.datasets.utils import download_and_extract_archive, extract_archive
from wisp.vision.datasets.vision import VisionDataset

__all__ = ["EMNIST", "FashionMNIST", "KMNIST", "MNIST", "QMNIST"]

_TYPES = {8: numpy.uint8, 9: numpy.int8, 11: numpy.dtype(">i2"), 12: numpy.dtype(">i4"), 13: numpy.dtype(">f4"), 14: numpy.dtype(">f8")}


def read_idx(path):
    """The array of a file in the IDX format: a type, the sizes, the numbers."""
    with gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb") as file:
        data = file.read()
    if len(data) < 4 or data[0] or data[1] or data[2] not in _TYPES:
        raise RuntimeError(f"{path} is not an IDX file: it begins with {data[:4]!r}")
    dims = data[3]
    sizes = numpy.frombuffer(data, ">i4", dims, 4).astype(int).tolist()
    kind = numpy.dtype(_TYPES[data[2]])
    count = int(numpy.prod(sizes))
    if len(data) < 4 + 4 * dims + count * kind.itemsize:
        raise RuntimeError(f"{path} is truncated: it should hold {sizes} numbers")
    return numpy.frombuffer(data, kind, count, 4 + 4 * dims).reshape(sizes).astype(kind.newbyteorder("="))


def read_image_file(path):
    """The images of an IDX file as a tensor [N, height, width] of bytes."""
    return wisp.from_numpy(read_idx(path))


def read_label_file(path):
    """The labels of an IDX file as a tensor [N] of int64."""
    return wisp.from_numpy(read_idx(path)).long()


class MNIST(VisionDataset):
    """60,000 handwritten digits for training and 10,000 for testing, 28 x 28.

    The four files lie in `root/MNIST/raw` (or `root`), packed or not; `download=True` gets what is missing.
    An item is (image, label), the image a Pillow image of mode L.
    """

    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ]
    training_file, test_file = "training.pt", "test.pt"
    classes = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine"]

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        if not self._check_exists():
            raise RuntimeError(
                f"Dataset not found. You can use download=True to download it, or put "
                f"{', '.join(name for name, _ in self.resources)} into {self.raw_folder}"
            )
        self.data, self.targets = self._load_data()

    @property
    def raw_folder(self):
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def processed_folder(self):
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def class_to_idx(self):
        return {name: index for index, name in enumerate(self.classes)}

    train_data = property(lambda self: self.data)
    train_labels = property(lambda self: self.targets)
    test_data = property(lambda self: self.data)
    test_labels = property(lambda self: self.targets)

    def _find(self, name):
        """The file, packed or not, in `raw_folder` or in the root itself."""
        for folder in (self.raw_folder, self.root, os.path.join(self.root, type(self).__name__)):
            for candidate in (name, name + ".gz"):
                path = os.path.join(folder, candidate)
                if os.path.isfile(path):
                    return path
        return None

    def _check_exists(self):
        return all(self._find(os.path.splitext(name)[0]) for name, _ in self.resources)

    def _load_data(self):
        part = "train" if self.train else "t10k"
        images = read_image_file(self._find(f"{part}-images-idx3-ubyte"))
        labels = read_label_file(self._find(f"{part}-labels-idx1-ubyte"))
        if len(images) != len(labels):
            raise RuntimeError(f"{type(self).__name__}: {len(images)} images, but {len(labels)} labels in {self.raw_folder}")
        return images, labels

    def download(self):
        """Download what is missing."""
        if self._check_exists():
            return
        os.makedirs(self.raw_folder, exist_ok=True)
        for name, md5 in self.resources:
            errors = []
            for mirror in self.mirrors:
                try:
                    download_and_extract_archive(mirror + name, self.raw_folder, filename=name, md5=md5)
                    break
                except RuntimeError as error:
                    errors.append(str(error))
            else:
                raise RuntimeError(f"Error downloading {name}:\n" + "\n".join(errors))

    def __getitem__(self, index):
        image = image_module(type(self).__name__).fromarray(self.data[index].numpy())
        return self._changed(image, int(self.targets[index]))

    def __len__(self):
        return len(self.data)

    def extra_repr(self):
        return f"Split: {'Train' if self.train else 'Test'}"


class FashionMNIST(MNIST):
    """70,000 pictures of clothes in ten classes, in the format of MNIST."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """70,000 cursive Japanese characters in ten classes, in the format of MNIST."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class EMNIST(MNIST):
    """Handwritten letters and digits; `split` is byclass, bymerge, balanced, letters, digits or mnist."""

    url, md5 = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e"
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")

    def __init__(self, root, split, **kwargs):
        if split not in self.splits:
            raise ValueError(f"Unknown value '{split}' for argument split. Valid values are {self.splits}.")
        self.split = split
        digits = "0123456789"
        upper, lower = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
        merged = sorted(set(digits + upper + lower) - set("cijklmopsuvwxyz"))
        self.classes = {
            "byclass": sorted(digits + upper + lower),
            "bymerge": merged,
            "balanced": merged,
            "letters": ["N/A", *lower],
            "digits": list(digits),
            "mnist": list(digits),
        }[split]
        self.resources = [
            (f"emnist-{split}-{part}-{kind}-ubyte.gz", None) for part in ("train", "test") for kind in ("images-idx3", "labels-idx1")
        ]
        super().__init__(root, **kwargs)

    def _load_data(self):
        part = f"emnist-{self.split}-{'train' if self.train else 'test'}"
        return read_image_file(self._find(f"{part}-images-idx3-ubyte")), read_label_file(self._find(f"{part}-labels-idx1-ubyte"))

    def download(self):
        """Download what is missing."""
        if self._check_exists():
            return
        download_and_extract_archive(self.url, self.raw_folder, md5=self.md5)
        folder = os.path.join(self.raw_folder, "gzip")
        for name in os.listdir(folder):
            if name.endswith(".gz"):
                extract_archive(os.path.join(folder, name), self.raw_folder)


class QMNIST(MNIST):
    """MNIST with all 60,000 test digits and more about each; `compat=True` gives the label alone."""

    mirrors = ["https://raw.githubusercontent.com/facebookresearch/qmnist/master/"]
    _FILES = {
        "train": ("qmnist-train-images-idx3-ubyte", "qmnist-train-labels-idx2-int"),
        "test": ("qmnist-test-images-idx3-ubyte", "qmnist-test-labels-idx2-int"),
    }
    _SUMS = {
        "train": ("ed72d4157d28c017586c42bc6afe6370", "0058f8dd561b90ffdd0f734c6a30e5e4"),
        "test": ("1394631089c404de565df7b7aeaf9412", "5b5b05890a5e13444e108efe57b788aa"),
    }

    def __init__(self, root, what=None, compat=True, train=True, **kwargs):
        self.what, self.compat = what or ("train" if train else "test"), compat
        self._part = "train" if self.what == "train" else "test"
        self.resources = [(name + ".gz", md5) for name, md5 in zip(self._FILES[self._part], self._SUMS[self._part])]
        super().__init__(root, self._part == "train", **kwargs)

    def _load_data(self):
        images, labels = self._FILES[self._part]
        data, targets = read_image_file(self._find(images)), read_label_file(self._find(labels))
        cut = {"test10k": slice(0, 10000), "test50k": slice(10000, None)}.get(self.what, slice(None))
        return data[cut], targets[cut]

    def __getitem__(self, index):
        image = image_module("QMNIST").fromarray(self.data[index].numpy())
        target = self.targets[index]
        return self._changed(image, int(target[0]) if self.compat else target)
