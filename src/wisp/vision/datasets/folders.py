"""Sets that are pictures in folders: ImageNet, EuroSAT, Caltech101, Food101, Omniglot, Oxford pets."""

import json
import os
import pathlib

from wisp.vision._pil import image_module
from wisp.vision.datasets.folder import ImageFolder, make_dataset
from wisp.vision.datasets.utils import download_and_extract_archive
from wisp.vision.datasets.vision import VisionDataset

__all__ = ["Caltech101", "EuroSAT", "Food101", "ImageNet", "Omniglot", "OxfordIIITPet"]


def _missing(name, folder, source):
    return RuntimeError(
        f"Dataset not found or corrupted. {name} is not downloaded: get it from {source} and unpack it so that {folder} is there"
    )


class ImageNet(ImageFolder):
    """ImageNet 2012: `root/train` and `root/val` with a folder per class (n01440764, ...)."""

    def __init__(self, root, split="train", transform=None, target_transform=None, **options):
        if split not in ("train", "val"):
            raise ValueError(f"Unknown value '{split}' for argument split. Valid values are ('train', 'val').")
        folder = os.path.join(os.path.expanduser(root), split)
        if not os.path.isdir(folder):
            raise _missing("ImageNet", folder, "image-net.org")
        super().__init__(folder, transform, target_transform, **options)
        self.split, self.wnids, self.wnid_to_idx = split, self.classes, self.class_to_idx


class EuroSAT(ImageFolder):
    """27,000 satellite pictures in ten classes: `root/eurosat/2750/<class>/*.jpg`."""

    def __init__(self, root, transform=None, target_transform=None, download=False, **options):
        folder = os.path.join(os.path.expanduser(root), "eurosat", "2750")
        if not os.path.isdir(folder):
            raise _missing("EuroSAT", folder, "github.com/phelber/EuroSAT")
        super().__init__(folder, transform, target_transform, **options)


class Caltech101(VisionDataset):
    """Pictures of 101 kinds of things: `root/caltech101/101_ObjectCategories/<class>/*.jpg`."""

    def __init__(self, root, target_type="category", transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        folder = os.path.join(self.root, "caltech101", "101_ObjectCategories")
        if not os.path.isdir(folder):
            raise _missing("Caltech101", folder, "data.caltech.edu/records/mzrjq-6wc02")
        self.categories = sorted(name for name in os.listdir(folder) if name != "BACKGROUND_Google" and not name.startswith("."))
        self.samples = make_dataset(folder, {name: index for index, name in enumerate(self.categories)}, (".jpg",))
        self.y = [label for _, label in self.samples]

    def __getitem__(self, index):
        path, label = self.samples[index]
        return self._changed(image_module("Caltech101").open(path), label)

    def __len__(self):
        return len(self.samples)


class Omniglot(VisionDataset):
    """Characters of fifty alphabets, twenty drawings of each: `root/omniglot-py/images_background/<alphabet>/<character>/*.png`."""

    def __init__(self, root, background=True, transform=None, target_transform=None, download=False, loader=None):
        super().__init__(os.path.join(root, "omniglot-py"), transform=transform, target_transform=target_transform)
        self.background, self.loader = background, loader
        name = "images_background" if background else "images_evaluation"
        self.target_folder = folder = os.path.join(self.root, name)
        source = f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{name}.zip"
        if download and not os.path.isdir(folder):
            md5 = "68d2efa1b9178cc56df9314c21c6e718" if background else "6b91aef0f799c5bb55b94e3f2daec811"
            download_and_extract_archive(source, self.root, filename=f"{name}.zip", md5=md5)
        if not os.path.isdir(folder):
            raise _missing("Omniglot", folder, source)
        self._alphabets = _folders(folder)
        self._characters = [os.path.join(alphabet, c) for alphabet in self._alphabets for c in _folders(os.path.join(folder, alphabet))]
        self._flat_character_images = [
            (image, label)
            for label, character in enumerate(self._characters)
            for image in sorted(os.listdir(os.path.join(folder, character)))
            if image.endswith(".png")
        ]

    def __getitem__(self, index):
        name, label = self._flat_character_images[index]
        path = os.path.join(self.target_folder, self._characters[label], name)
        image = image_module("Omniglot").open(path).convert("L") if self.loader is None else self.loader(path)
        return self._changed(image, label)

    def __len__(self):
        return len(self._flat_character_images)


def _folders(folder):
    return sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))


class Food101(VisionDataset):
    """101,000 pictures of dishes: `root/food-101/images` and `root/food-101/meta`."""

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        folder = os.path.join(self.root, "food-101")
        names = os.path.join(folder, "meta", f"{split}.json")
        if not os.path.isfile(names):
            raise _missing("Food101", names, "data.vision.ee.ethz.ch/cvl/food-101.tar.gz")
        with open(names) as file:
            content = json.load(file)
        self.classes = sorted(content)
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}
        self.samples = [
            (os.path.join(folder, "images", f"{path}.jpg"), self.class_to_idx[name]) for name, paths in content.items() for path in paths
        ]

    def __getitem__(self, index):
        path, label = self.samples[index]
        return self._changed(image_module("Food101").open(path).convert("RGB"), label)

    def __len__(self):
        return len(self.samples)


class OxfordIIITPet(VisionDataset):
    """37 breeds of cats and dogs: `root/oxford-iiit-pet/images` and `annotations`."""

    def __init__(
        self, root, split="trainval", target_types="category", transforms=None, transform=None, target_transform=None, download=False
    ):
        super().__init__(root, transforms, transform, target_transform)
        folder = os.path.join(self.root, "oxford-iiit-pet")
        names = os.path.join(folder, "annotations", f"{split}.txt")
        if not os.path.isfile(names):
            raise _missing("OxfordIIITPet", names, "www.robots.ox.ac.uk/~vgg/data/pets")
        rows = [line.split() for line in pathlib.Path(names).read_text().splitlines() if line.strip()]
        self.target_types = [target_types] if isinstance(target_types, str) else list(target_types)
        breed = lambda name: " ".join(part.title() for part in name.split("_")[:-1])
        self.classes = [name for _, name in sorted({(int(row[1]), breed(row[0])) for row in rows})]
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}
        self._rows = [
            (
                os.path.join(folder, "images", row[0] + ".jpg"),
                int(row[1]) - 1,
                int(row[2]) - 1,
                os.path.join(folder, "annotations", "trimaps", row[0] + ".png"),
            )
            for row in rows
        ]

    def __getitem__(self, index):
        Image = image_module("OxfordIIITPet")
        path, label, binary, trimap = self._rows[index]
        target = [
            {"category": label, "binary-category": binary}.get(kind, None) if kind != "segmentation" else Image.open(trimap)
            for kind in self.target_types
        ]
        return self._changed(Image.open(path).convert("RGB"), tuple(target) if len(target) > 1 else target[0] if target else None)

    def __len__(self):
        return len(self._rows)
