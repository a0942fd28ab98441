"""Pictures in folders, one folder per class."""

import os

from wisp.vision._pil import image_module
from wisp.vision.datasets.vision import VisionDataset

__all__ = """
    DatasetFolder ImageFolder default_loader find_classes has_file_allowed_extension is_image_file make_dataset pil_loader""".split()
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename, extensions):
    """Whether the name ends with one of the extensions."""
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename):
    """Whether the name is one of a picture."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory):
    """The names of the folders in a folder, sorted, and their numbers."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: index for index, name in enumerate(classes)}


def make_dataset(directory, class_to_idx=None, extensions=None, is_valid_file=None, allow_empty=False):
    """All (path, class number) of a folder of folders."""
    directory = os.path.expanduser(directory)
    class_to_idx = find_classes(directory)[1] if class_to_idx is None else class_to_idx
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    valid = is_valid_file or (lambda name: has_file_allowed_extension(name, extensions))
    found, empty = [], set(class_to_idx)
    for name in sorted(class_to_idx):
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if valid(path):
                    found.append((path, class_to_idx[name]))
                    empty.discard(name)
    if empty and not allow_empty:
        known = f" Supported extensions are: {extensions if isinstance(extensions, str) else ', '.join(extensions)}" if extensions else ""
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(sorted(empty))}.{known}")
    return found


def pil_loader(path):
    """The picture of a file, in RGB."""
    with open(path, "rb") as file:
        return image_module("pil_loader").open(file).convert("RGB")


default_loader = pil_loader


class DatasetFolder(VisionDataset):
    """Files in folders, one folder per class, read by `loader`."""

    def __init__(self, root, loader, extensions=None, transform=None, target_transform=None, is_valid_file=None, allow_empty=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        classes, class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, class_to_idx, extensions, is_valid_file, allow_empty)
        self.loader, self.extensions, self.classes, self.class_to_idx = loader, extensions, classes, class_to_idx
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty=False):
        """All (path, class number)."""
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory):
        """The classes and their numbers."""
        return find_classes(directory)

    def __getitem__(self, index):
        path, target = self.samples[index]
        return self._changed(self.loader(path), target)

    def __len__(self):
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Pictures in folders, one folder per class: root/dog/1.png, root/cat/2.jpg."""

    def __init__(self, root, transform=None, target_transform=None, loader=default_loader, is_valid_file=None, allow_empty=False):
        super().__init__(
            root, loader, IMG_EXTENSIONS if is_valid_file is None else None, transform, target_transform, is_valid_file, allow_empty
        )
        self.imgs = self.samples
