"""CIFAR-10 and CIFAR-100: small colour pictures, read from the pickled files of their Python version."""

import os
import pickle

import numpy

from wisp.vision._pil import image_module
from wisp.vision.datasets.utils import check_integrity, download_and_extract_archive
from wisp.vision.datasets.vision import VisionDataset

__all__ = ["CIFAR10", "CIFAR100"]


class _Plain(pickle.Unpickler):
    """Reads dictionaries, lists, bytes and NumPy arrays, and runs nothing else."""

    def find_class(self, module, name):
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in ("_reconstruct", "scalar"):
            from numpy._core import multiarray

            return getattr(multiarray, name)
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(numpy, name)
        if module == "_codecs" and name == "encode":
            import _codecs

            return _codecs.encode
        raise pickle.UnpicklingError(f"a CIFAR file holds no {module}.{name}")


class CIFAR10(VisionDataset):
    """60,000 pictures, 32 x 32, in ten classes: 50,000 for training, 10,000 for testing.

    The files of cifar-10-python.tar.gz lie in `root/cifar-10-batches-py`; `download=True` gets and unpacks them.
    An item is (image, label), the image a Pillow image of mode RGB.
    """

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename, tgz_md5 = "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"
    train_list = [
        ["data_batch_1", "c99cafc152244af753f735de768cd75f"],
        ["data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"],
        ["data_batch_3", "54ebc095f3ab1f0389bbae665268c751"],
        ["data_batch_4", "634d18415352ddfa80567beed471001a"],
        ["data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"],
    ]
    test_list = [["test_batch", "40351d587109b95175f43aff81a1287e"]]
    meta = {"filename": "batches.meta", "key": "label_names", "md5": "5ff9c542aee3614f3951f8cda6e48888"}
    _labels = "labels"

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        folder = os.path.join(self.root, self.base_folder)
        names = [name for name, _ in (self.train_list if train else self.test_list)]
        if not all(os.path.isfile(os.path.join(folder, name)) for name in [*names, self.meta["filename"]]):
            raise RuntimeError(
                f"Dataset not found or corrupted. You can use download=True to download it, or put the unpacked {self.filename} at {folder}"
            )
        data, self.targets = [], []
        for name in names:
            batch = self._read(os.path.join(folder, name))
            data.append(numpy.asarray(batch["data"], numpy.uint8).reshape(-1, 3, 32, 32))
            self.targets.extend(int(label) for label in batch[self._labels])
        self.data = numpy.ascontiguousarray(numpy.vstack(data).transpose(0, 2, 3, 1))
        self.classes = self._read(os.path.join(folder, self.meta["filename"]))[self.meta["key"]]
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}

    @staticmethod
    def _read(path):
        with open(path, "rb") as file:
            entry = _Plain(file, encoding="latin1").load()
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in entry.items()}

    def _check_integrity(self):
        folder = os.path.join(self.root, self.base_folder)
        return all(check_integrity(os.path.join(folder, name), md5) for name, md5 in self.train_list + self.test_list)

    def download(self):
        """Download and unpack, unless the files are there. Files that are there but are other ones than published are used as they are."""
        folder = os.path.join(self.root, self.base_folder)
        if all(os.path.isfile(os.path.join(folder, name)) for name, _ in self.train_list + self.test_list):
            print("Files already downloaded and verified" if self._check_integrity() else f"Files already there, in {folder}")
            return
        download_and_extract_archive(self.url, self.root, filename=self.filename, md5=self.tgz_md5)

    def __getitem__(self, index):
        return self._changed(image_module(type(self).__name__).fromarray(self.data[index]), self.targets[index])

    def __len__(self):
        return len(self.data)

    def extra_repr(self):
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """CIFAR-10's sister with a hundred classes; the files lie in `root/cifar-100-python`."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename, tgz_md5 = "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = [["train", "16019d7e3df5f24257cddd939b257f8d"]]
    test_list = [["test", "f0ef6b0ae62326f3e7ffdfab6717acfc"]]
    meta = {"filename": "meta", "key": "fine_label_names", "md5": "7973b15100ade9c7d40fb424638fde48"}
    _labels = "fine_labels"
