"""Made-up pictures (FakeData), and sets in formats of their own: SVHN, STL10, CelebA, CocoDetection, VOC."""

import os
import pathlib

import numpy

import wisp
from wisp.vision._pil import image_module
from wisp.vision.datasets.utils import check_integrity, download_and_extract_archive, download_url
from wisp.vision.datasets.vision import VisionDataset

__all__ = ["CelebA", "CocoCaptions", "CocoDetection", "FakeData", "STL10", "SVHN", "VOCDetection", "VOCSegmentation"]


class FakeData(VisionDataset):
    """Random pictures with random labels, the same at each call.

    >>> from wisp.vision.datasets import FakeData
    >>> len(FakeData(size=5))
    5
    """

    def __init__(self, size=1000, image_size=(3, 224, 224), num_classes=10, transform=None, target_transform=None, random_offset=0):
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = size, image_size, num_classes, random_offset

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(f"{type(self).__name__} index out of range")
        generator = wisp.Generator().manual_seed(index + self.random_offset)
        image = wisp.randn(*self.image_size, generator=generator)
        target = int(wisp.randint(0, self.num_classes, (1,), generator=generator))
        from wisp.vision.transforms.functional import to_pil_image

        return self._changed(to_pil_image(image.clamp(0, 1)), target)

    def __len__(self):
        return self.size


class SVHN(VisionDataset):
    """Street View House Numbers: `root/train_32x32.mat` and its sisters (reading them needs SciPy)."""

    split_list = {
        "train": ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        "test": ("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        "extra": ("http://ufldl.stanford.edu/housenumbers/extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7"),
    }

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        if split not in self.split_list:
            raise ValueError(f"Unknown value '{split}' for argument split. Valid values are {tuple(self.split_list)}.")
        url, md5 = self.split_list[split]
        path = os.path.join(self.root, os.path.basename(url))
        if download and not os.path.isfile(path):
            download_url(url, self.root, md5=md5)
        if not check_integrity(path):
            raise RuntimeError(f"Dataset not found or corrupted. You can use download=True to download it, or put {url} at {path}")
        from scipy.io import loadmat

        loaded = loadmat(path)
        self.split, self.data = split, numpy.ascontiguousarray(loaded["X"].transpose(3, 2, 0, 1))
        self.labels = loaded["y"].astype(numpy.int64).squeeze(1) % 10

    def __getitem__(self, index):
        return self._changed(image_module("SVHN").fromarray(self.data[index].transpose(1, 2, 0)), int(self.labels[index]))

    def __len__(self):
        return len(self.data)

    def extra_repr(self):
        return f"Split: {self.split}"


class STL10(VisionDataset):
    """96 x 96 pictures in ten classes, with many unlabeled ones: `root/stl10_binary/*.bin`."""

    base_folder, tgz_md5 = "stl10_binary", "91f7769df0f17e558f3565bffb0c7dfb"
    url = "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz"
    splits = ("train", "train+unlabeled", "unlabeled", "test")

    def __init__(self, root, split="train", folds=None, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        if split not in self.splits:
            raise ValueError(f"Unknown value '{split}' for argument split. Valid values are {self.splits}.")
        self.split, self.folds = split, folds
        folder = os.path.join(self.root, self.base_folder)
        if download and not os.path.isdir(folder):
            download_and_extract_archive(self.url, self.root, md5=self.tgz_md5)
        data, labels = [], []
        for part in split.split("+"):
            path = os.path.join(folder, f"{part}_X.bin")
            if not os.path.isfile(path):
                raise RuntimeError(
                    f"Dataset not found or corrupted. You can use download=True to download it, or put {self.url}, unpacked, at {folder}"
                )
            images = numpy.fromfile(path, numpy.uint8).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)
            data.append(images)
            names = os.path.join(folder, f"{part}_y.bin")
            labels.append(
                numpy.fromfile(names, numpy.uint8).astype(numpy.int64) - 1
                if os.path.isfile(names)
                else numpy.full(len(images), -1, numpy.int64)
            )
        self.data, self.labels = numpy.concatenate(data), numpy.concatenate(labels)
        if folds is not None:
            with open(os.path.join(folder, "fold_indices.txt")) as file:
                chosen = numpy.array(file.read().splitlines()[folds].split(), numpy.int64)
            self.data, self.labels = self.data[chosen], self.labels[chosen]
        names = os.path.join(folder, "class_names.txt")
        self.classes = pathlib.Path(names).read_text().split() if os.path.isfile(names) else []

    def __getitem__(self, index):
        image = image_module("STL10").fromarray(numpy.ascontiguousarray(self.data[index].transpose(1, 2, 0)))
        return self._changed(image, int(self.labels[index]))

    def __len__(self):
        return len(self.data)


class CelebA(VisionDataset):
    """Faces with 40 attributes: `root/celeba/img_align_celeba/*.jpg` and the list_*.txt files beside the folder."""

    base_folder = "celeba"

    def __init__(self, root, split="train", target_type="attr", transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        folder = os.path.join(self.root, self.base_folder)
        if not os.path.isdir(os.path.join(folder, "img_align_celeba")):
            raise RuntimeError(
                f"Dataset not found or corrupted. Get it from mmlab.ie.cuhk.edu.hk/projects/CelebA.html and put "
                f"img_align_celeba (unpacked) and the list_*.txt files into {folder}"
            )
        self.split, self.target_type = split, [target_type] if isinstance(target_type, str) else list(target_type)
        number = {"train": 0, "valid": 1, "test": 2, "all": None}[split]
        listed = pathlib.Path(folder, "list_eval_partition.txt").read_text().splitlines()
        parts = dict(line.split() for line in listed if line.strip())
        self.filename = [name for name, part in parts.items() if number is None or int(part) == number]
        self._tables = {}
        for kind, file, header in (
            ("attr", "list_attr_celeba.txt", 1),
            ("identity", "identity_CelebA.txt", None),
            ("bbox", "list_bbox_celeba.txt", 1),
            ("landmarks", "list_landmarks_align_celeba.txt", 1),
        ):
            if kind in self.target_type:
                lines = pathlib.Path(folder, file).read_text().splitlines()
                names = [] if header is None else lines[header].split()
                rows = {
                    line.split()[0]: [int(v) for v in line.split()[1:]] for line in lines[0 if header is None else header + 1 :] if line
                }
                table = wisp.tensor([rows[name] for name in self.filename])
                self._tables[kind] = (table + 1) // 2 if kind == "attr" else table
                if kind == "attr":
                    self.attr_names, self.attr = names, self._tables[kind]

    def __getitem__(self, index):
        path = os.path.join(self.root, self.base_folder, "img_align_celeba", self.filename[index])
        target = [self._tables[kind][index, 0] if kind == "identity" else self._tables[kind][index] for kind in self.target_type]
        target = tuple(target) if len(target) > 1 else target[0] if target else None
        return self._changed(image_module("CelebA").open(path), target)

    def __len__(self):
        return len(self.filename)


class CocoDetection(VisionDataset):
    """Pictures with annotations in COCO's JSON format; a target is the list of the picture's annotations."""

    def __init__(self, root, annFile, transform=None, target_transform=None, transforms=None):
        import json

        super().__init__(root, transforms, transform, target_transform)
        with open(annFile) as file:
            content = json.load(file)
        self._files = {entry["id"]: entry["file_name"] for entry in content["images"]}
        self._annotations = {}
        for entry in content.get("annotations", []):
            self._annotations.setdefault(entry["image_id"], []).append(entry)
        self.ids = sorted(self._files)

    def _target(self, number):
        return self._annotations.get(number, [])

    def __getitem__(self, index):
        number = self.ids[index]
        image = image_module("CocoDetection").open(os.path.join(self.root, self._files[number])).convert("RGB")
        return self._changed(image, self._target(number))

    def __len__(self):
        return len(self.ids)


class CocoCaptions(CocoDetection):
    """Pictures with captions in COCO's JSON format; a target is the list of the picture's captions."""

    def _target(self, number):
        return [entry["caption"] for entry in super()._target(number)]


class _VOC(VisionDataset):
    _SETS, _FOLDER, _ENDING = "Segmentation", "SegmentationClass", ".png"

    def __init__(self, root, year="2012", image_set="train", download=False, transform=None, target_transform=None, transforms=None):
        super().__init__(root, transforms, transform, target_transform)
        folder = os.path.join(self.root, "VOCdevkit", f"VOC{year}")
        names = os.path.join(folder, "ImageSets", self._SETS, f"{image_set}.txt")
        if not os.path.isfile(names):
            raise RuntimeError(
                f"Dataset not found or corrupted. Get it from host.robots.ox.ac.uk/pascal/VOC/voc{year} and unpack it "
                f"so that {names} is there"
            )
        stems = pathlib.Path(names).read_text().split()
        self.images = [os.path.join(folder, "JPEGImages", stem + ".jpg") for stem in stems]
        self.targets = [os.path.join(folder, self._FOLDER, stem + self._ENDING) for stem in stems]
        self.masks = self.annotations = self.targets

    def __len__(self):
        return len(self.images)


class VOCSegmentation(_VOC):
    """Pascal VOC: pictures with a mask of classes."""

    def __getitem__(self, index):
        Image = image_module("VOCSegmentation")
        return self._changed(Image.open(self.images[index]).convert("RGB"), Image.open(self.targets[index]))


class VOCDetection(_VOC):
    """Pascal VOC: pictures with boxes, as the dictionary of their XML file."""

    _SETS, _FOLDER, _ENDING = "Main", "Annotations", ".xml"

    def __getitem__(self, index):
        from xml.etree import ElementTree

        target = self.parse_voc_xml(ElementTree.parse(self.targets[index]).getroot())
        return self._changed(image_module("VOCDetection").open(self.images[index]).convert("RGB"), target)

    @staticmethod
    def parse_voc_xml(node):
        """The XML element as nested dictionaries; `object` is always a list."""
        children = list(node)
        if not children:
            return {node.tag: (node.text or "").strip()}
        collected = {}
        for child in children:
            for key, value in VOCDetection.parse_voc_xml(child).items():
                collected.setdefault(key, []).append(value)
        if node.tag == "annotation":
            collected["object"] = [collected.get("object", [])]
        return {node.tag: {key: value[0] if len(value) == 1 else value for key, value in collected.items()}}
