"""Sets whose files are named by lists: Cityscapes, Flowers102, DTD, GTSRB, StanfordCars, Places365, LSUN and others."""

import bz2
import collections
import csv
import json
import os
import pathlib

import numpy

import wisp
from wisp.vision._pil import image_module
from wisp.vision.datasets.folder import ImageFolder, default_loader, make_dataset
from wisp.vision.datasets.utils import check_integrity, download_and_extract_archive, download_url, verify_str_arg
from wisp.vision.datasets.vision import VisionDataset

__all__ = """
    Caltech256 Cityscapes Country211 DTD FER2013 FGVCAircraft Flowers102 GTSRB LSUN LSUNClass MovingMNIST Places365 RenderedSST2
    SBDataset SEMEION SUN397 StanfordCars USPS""".split()

_OXFORD, _OPENAI = "https://www.robots.ox.ac.uk/~vgg/data/", "https://openaipublic.azureedge.net/clip/data/"


class _Listed(VisionDataset):
    """Files with their labels; `_fetch` is called where a download is asked for and `_needed` is not there."""

    _source = None  # the address and checksum of an archive, and where it is unpacked

    def __init__(self, root, needed, transform=None, target_transform=None, download=False, loader=default_loader):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader, self._image_files, self._labels = loader, [], []
        needed = pathlib.Path(self.root, needed)
        if download and not needed.exists():
            self._fetch(needed)
        if not needed.exists():
            raise RuntimeError(f"Dataset not found or corrupted. You can use download=True to download it, or put it at {needed}")

    def _fetch(self, needed):
        if self._source is None:
            raise RuntimeError(f"{type(self).__name__} can no longer be downloaded; put it at {needed}")
        url, md5, folder = self._source
        download_and_extract_archive(url, os.path.join(self.root, folder), md5=md5)

    def _name_classes(self, names):
        self.classes = list(names)
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}

    def __getitem__(self, index):
        return self._changed(self.loader(self._image_files[index]), self._labels[index])

    def __len__(self):
        return len(self._image_files)


class Flowers102(_Listed):
    """Flowers of 102 kinds: `root/flowers-102/jpg`, `imagelabels.mat` and `setid.mat` (reading them needs SciPy)."""

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False, loader=default_loader):
        self._split = verify_str_arg(split, "split", ("train", "val", "test"))
        super().__init__(root, "flowers-102/setid.mat", transform, target_transform, download, loader)
        from scipy.io import loadmat

        folder = pathlib.Path(self.root, "flowers-102")
        chosen = loadmat(folder / "setid.mat", squeeze_me=True)[{"train": "trnid", "val": "valid", "test": "tstid"}[split]]
        labels = loadmat(folder / "imagelabels.mat", squeeze_me=True)["labels"]
        for number in numpy.atleast_1d(chosen).tolist():
            self._image_files.append(folder / "jpg" / f"image_{number:05d}.jpg")
            self._labels.append(int(labels[number - 1]) - 1)

    def extra_repr(self):
        return f"split={self._split}"

    def _fetch(self, needed):
        folder, address = str(needed.parent), _OXFORD + "flowers/102/"
        download_and_extract_archive(address + "102flowers.tgz", folder, md5="52808999861908f626f3c1f4e79d11fa")
        download_url(address + "imagelabels.mat", folder, md5="e0620be6f572b9609742df49c70aed4d")
        download_url(address + "setid.mat", folder, md5="a5357ecc9cb78c4bef273ce3793fc85c")


class DTD(_Listed):
    """Textures: `root/dtd/dtd/images/<class>` and the lists in `root/dtd/dtd/labels`."""

    _source = (_OXFORD + "dtd/download/dtd-r1.0.1.tar.gz", "fff73e5086ae6bdbea199a49dfb8a4c1", "dtd")

    def __init__(self, root, split="train", partition=1, transform=None, target_transform=None, download=False, loader=default_loader):
        self._split = verify_str_arg(split, "split", ("train", "val", "test"))
        if not isinstance(partition, int) or not 1 <= partition <= 10:
            raise ValueError(f"Parameter 'partition' should be an integer with `1 <= partition <= 10`, but got {partition} instead")
        self._partition = partition
        super().__init__(root, "dtd/dtd", transform, target_transform, download, loader)
        folder = pathlib.Path(self.root, "dtd", "dtd")
        lines = (folder / "labels" / f"{split}{partition}.txt").read_text().split()
        self._name_classes(sorted({line.split("/")[0] for line in lines}))
        self._image_files = [folder.joinpath("images", *line.split("/")) for line in lines]
        self._labels = [self.class_to_idx[line.split("/")[0]] for line in lines]

    def extra_repr(self):
        return f"split={self._split}, partition={self._partition}"


class GTSRB(_Listed):
    """Traffic signs of 43 kinds: `root/gtsrb/GTSRB/Training/<class>/*.ppm`, `Final_Test/Images` and `root/gtsrb/GT-final_test.csv`."""

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False):
        self._split = verify_str_arg(split, "split", ("train", "test"))
        place = os.path.join("gtsrb", "GTSRB", "Training" if split == "train" else os.path.join("Final_Test", "Images"))
        super().__init__(root, place, transform, target_transform, download)
        folder = os.path.join(self.root, place)
        if split == "train":
            self._samples = make_dataset(folder, extensions=(".ppm",))
        else:
            with open(os.path.join(self.root, "gtsrb", "GT-final_test.csv"), newline="") as file:
                rows = csv.DictReader(file, delimiter=";", skipinitialspace=True)
                self._samples = [(os.path.join(folder, row["Filename"]), int(row["ClassId"])) for row in rows]
        self._image_files, self._labels = [path for path, _ in self._samples], [label for _, label in self._samples]

    def _fetch(self, needed):
        folder, address = os.path.join(self.root, "gtsrb"), "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/GTSRB"
        names = ["-Training_fixed.zip"] if self._split == "train" else ["_Final_Test_Images.zip", "_Final_Test_GT.zip"]
        for name in names:
            download_and_extract_archive(address + name, folder)


class StanfordCars(_Listed):
    """Cars of 196 kinds: `root/stanford_cars/cars_train`, `cars_test` and `devkit` (reading the lists needs SciPy)."""

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False, loader=default_loader):
        self._split = verify_str_arg(split, "split", ("train", "test"))
        names = "devkit/cars_train_annos.mat" if split == "train" else "cars_test_annos_withlabels.mat"
        super().__init__(root, os.path.join("stanford_cars", names), transform, target_transform, download, loader)
        from scipy.io import loadmat

        folder = pathlib.Path(self.root, "stanford_cars")
        for entry in numpy.atleast_1d(loadmat(folder / names, squeeze_me=True)["annotations"]):
            self._image_files.append(str(folder / f"cars_{split}" / str(entry["fname"])))
            self._labels.append(int(entry["class"]) - 1)
        self._samples = list(zip(self._image_files, self._labels))
        self._name_classes(numpy.atleast_1d(loadmat(folder / "devkit" / "cars_meta.mat", squeeze_me=True)["class_names"]).tolist())


class FGVCAircraft(_Listed):
    """Aircraft by variant, family or manufacturer: `root/fgvc-aircraft-2013b/data`."""

    _source = (_OXFORD + "fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz", None, "")
    _LISTS = {"variant": "variants.txt", "family": "families.txt", "manufacturer": "manufacturers.txt"}

    def __init__(
        self,
        root,
        split="trainval",
        annotation_level="variant",
        transform=None,
        target_transform=None,
        download=False,
        loader=default_loader,
    ):
        self._split = verify_str_arg(split, "split", ("train", "val", "trainval", "test"))
        self._annotation_level = verify_str_arg(annotation_level, "annotation_level", tuple(self._LISTS))
        super().__init__(root, "fgvc-aircraft-2013b", transform, target_transform, download, loader)
        folder = pathlib.Path(self.root, "fgvc-aircraft-2013b", "data")
        self._name_classes((folder / self._LISTS[annotation_level]).read_text().splitlines())
        for line in (folder / f"images_{annotation_level}_{split}.txt").read_text().splitlines():
            name, label = line.strip().split(" ", 1)
            self._image_files.append(str(folder / "images" / f"{name}.jpg"))
            self._labels.append(self.class_to_idx[label])


class SUN397(_Listed):
    """Scenes of 397 kinds: `root/SUN397/ClassName.txt` and `root/SUN397/<letter>/<class>/sun_*.jpg`."""

    _source = ("http://vision.princeton.edu/projects/2010/SUN/SUN397.tar.gz", "8ca2778205c41d23104230ba66911c7a", "")

    def __init__(self, root, transform=None, target_transform=None, download=False, loader=default_loader):
        super().__init__(root, "SUN397", transform, target_transform, download, loader)
        folder = pathlib.Path(self.root, "SUN397")
        self._name_classes(line[3:].strip() for line in (folder / "ClassName.txt").read_text().splitlines())
        self._image_files = sorted(folder.rglob("sun_*.jpg"))
        self._labels = [self.class_to_idx["/".join(path.relative_to(folder).parts[1:-1])] for path in self._image_files]


class RenderedSST2(_Listed):
    """Sentences as pictures, negative or positive: `root/rendered-sst2/<train, valid, test>/<class>/*.png`."""

    _source = (_OPENAI + "rendered-sst2.tgz", "2384d08e9dcfa4bd55b324e610496ee5", "")

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False, loader=default_loader):
        self._split = verify_str_arg(split, "split", ("train", "val", "test"))
        super().__init__(root, "rendered-sst2", transform, target_transform, download, loader)
        self._name_classes(["negative", "positive"])
        folder = os.path.join(self.root, "rendered-sst2", "valid" if split == "val" else split)
        self._samples = make_dataset(folder, self.class_to_idx, (".png",))
        self._image_files, self._labels = [path for path, _ in self._samples], [label for _, label in self._samples]

    def extra_repr(self):
        return f"split={self._split}"


class Caltech256(_Listed):
    """Pictures of 257 kinds of things: `root/caltech256/256_ObjectCategories/<class>/*.jpg`."""

    _source = ("https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar", "67b4f42ca05d46448c6bb8ecd2220f6d", "")

    def __init__(self, root, transform=None, target_transform=None, download=False):
        super().__init__(os.path.join(root, "caltech256"), "256_ObjectCategories", transform, target_transform, download)
        folder = os.path.join(self.root, "256_ObjectCategories")
        self.categories = sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))
        found = make_dataset(folder, {name: index for index, name in enumerate(self.categories)}, (".jpg",))
        self._image_files, self.y = [path for path, _ in found], [label for _, label in found]
        self._labels = self.y


class Places365(_Listed):
    """Scenes of 365 kinds: `root/categories_places365.txt`, the list of a split, and a folder such as `root/data_256_standard`."""

    _ADDRESS = "http://data.csail.mit.edu/places/places365/"

    def __init__(
        self, root, split="train-standard", small=False, download=False, transform=None, target_transform=None, loader=default_loader
    ):
        self.split = verify_str_arg(split, "split", ("train-standard", "train-challenge", "val", "test"))
        self.small, self.variant = small, "challenge" if "challenge" in split else "standard"
        super().__init__(root, "categories_places365.txt", transform, target_transform, download, loader)
        size = "256" if small else "large"
        name = f"data_{size}_{self.variant}" if split.startswith("train") else f"{split}_{size}"
        self.images_dir = os.path.join(self.root, name)
        with open(os.path.join(self.root, "categories_places365.txt")) as file:
            self.class_to_idx = {line.split()[0]: int(line.split()[1]) for line in file}
        self.classes, self.imgs = sorted(self.class_to_idx), []
        with open(os.path.join(self.root, f"places365_{split.replace('-', '_')}.txt")) as file:
            for line in file:
                image, *label = line.split()  # the test split has no labels
                self.imgs.append((os.path.join(self.images_dir, *image.strip("/").split("/")), int(label[0]) if label else None))
        self._image_files, self._labels = [path for path, _ in self.imgs], [label for _, label in self.imgs]
        self.targets = self._labels

    def _fetch(self, needed):
        download_and_extract_archive(f"{self._ADDRESS}filelist_places365-{self.variant}.tar", self.root)

    def extra_repr(self):
        return f"Split: {self.split}\nSmall: {self.small}"


class Country211(ImageFolder):
    """Pictures by the country where they were taken: `root/country211/<train, valid, test>/<country>/*.jpg`."""

    def __init__(self, root, split="train", transform=None, target_transform=None, download=False, loader=default_loader):
        self._split = verify_str_arg(split, "split", ("train", "valid", "test"))
        root = os.path.expanduser(root)
        folder = os.path.join(root, "country211")
        if download and not os.path.isdir(folder):
            download_and_extract_archive(_OPENAI + "country211.tgz", root, md5="84988d7644798601126c29e9877aab6a")
        if not os.path.isdir(folder):
            raise RuntimeError(f"Dataset not found. You can use download=True to download it, or put it at {folder}")
        super().__init__(os.path.join(folder, split), transform, target_transform, loader)
        self.root = str(root)


_City = collections.namedtuple("CityscapesClass", "name id train_id category category_id has_instances ignore_in_eval color")
_CITIES = """
unlabeled 255 void 0 0 0 0; ego_vehicle 255 void 0 0 0 0; rectification_border 255 void 0 0 0 0; out_of_roi 255 void 0 0 0 0
static 255 void 0 0 0 0; dynamic 255 void 0 111 74 0; ground 255 void 0 81 0 81; road 0 flat 1 128 64 128; sidewalk 1 flat 1 244 35 232
parking 255 flat 1 250 170 160; rail_track 255 flat 1 230 150 140; building 2 construction 2 70 70 70; wall 3 construction 2 102 102 156
fence 4 construction 2 190 153 153; guard_rail 255 construction 2 180 165 180; bridge 255 construction 2 150 100 100
tunnel 255 construction 2 150 120 90; pole 5 object 3 153 153 153; polegroup 255 object 3 153 153 153; traffic_light 6 object 3 250 170 30
traffic_sign 7 object 3 220 220 0; vegetation 8 nature 4 107 142 35; terrain 9 nature 4 152 251 152; sky 10 sky 5 70 130 180
person 11 human 6 220 20 60; rider 12 human 6 255 0 0; car 13 vehicle 7 0 0 142; truck 14 vehicle 7 0 0 70; bus 15 vehicle 7 0 60 100
caravan 255 vehicle 7 0 0 90; trailer 255 vehicle 7 0 0 110; train 16 vehicle 7 0 80 100; motorcycle 17 vehicle 7 0 0 230
bicycle 18 vehicle 7 119 11 32"""


def _city_classes():
    """Every class with its number, and the number among those that count (255 for the others)."""
    for number, line in enumerate(_CITIES.strip().replace("\n", ";").split(";")):
        name, train, group, group_number, *color = line.split()
        things, ignored = int(group_number) >= 6, train == "255"
        yield _City(name.replace("_", " "), number, int(train), group, int(group_number), things, ignored, tuple(map(int, color)))
    yield _City("license plate", -1, -1, "vehicle", 7, False, True, (0, 0, 142))


class Cityscapes(VisionDataset):
    """Streets with masks or polygons: `root/leftImg8bit/<split>/<city>` and `root/gtFine/<split>/<city>` (or `gtCoarse`)."""

    CityscapesClass = _City
    classes = list(_city_classes())
    _ENDINGS = {"instance": "instanceIds.png", "semantic": "labelIds.png", "color": "color.png", "polygon": "polygons.json"}

    def __init__(self, root, split="train", mode="fine", target_type="instance", transform=None, target_transform=None, transforms=None):
        super().__init__(root, transforms, transform, target_transform)
        verify_str_arg(mode, "mode", ("fine", "coarse"))
        known = ("train", "test", "val") if mode == "fine" else ("train", "train_extra", "val")
        self.split, self.mode = verify_str_arg(split, "split", known), "gtFine" if mode == "fine" else "gtCoarse"
        self.target_type = target_type if isinstance(target_type, list) else [target_type]
        for kind in self.target_type:
            verify_str_arg(kind, "target_type", tuple(self._ENDINGS))
        self.images_dir = os.path.join(self.root, "leftImg8bit", split)
        self.targets_dir = os.path.join(self.root, self.mode, split)
        if not os.path.isdir(self.images_dir) or not os.path.isdir(self.targets_dir):
            raise RuntimeError(
                "Dataset not found or incomplete. Get it from cityscapes-dataset.com and unpack it so that "
                f"{self.images_dir} and {self.targets_dir} are there"
            )
        self.images, self.targets = [], []
        for city in sorted(os.listdir(self.images_dir)):
            for name in sorted(os.listdir(os.path.join(self.images_dir, city))):
                stem = os.path.join(self.targets_dir, city, f"{name.split('_leftImg8bit')[0]}_{self.mode}_")
                self.images.append(os.path.join(self.images_dir, city, name))
                self.targets.append([stem + self._ENDINGS[kind] for kind in self.target_type])

    def __getitem__(self, index):
        Image, targets = image_module("Cityscapes"), []
        for path in self.targets[index]:
            targets.append(json.loads(pathlib.Path(path).read_text()) if path.endswith(".json") else Image.open(path))
        return self._changed(Image.open(self.images[index]).convert("RGB"), tuple(targets) if len(targets) > 1 else targets[0])

    def __len__(self):
        return len(self.images)

    def extra_repr(self):
        return f"Split: {self.split}\nMode: {self.mode}\nType: {self.target_type}"


class SBDataset(VisionDataset):
    """Pascal VOC with semantic boundaries: `root/img`, `root/cls` and `root/<image_set>.txt` (reading them needs SciPy)."""

    num_classes = 20

    def __init__(self, root, image_set="train", mode="boundaries", download=False, transforms=None):
        super().__init__(root, transforms)
        self.image_set = verify_str_arg(image_set, "image_set", ("train", "val", "train_noval"))
        self.mode = verify_str_arg(mode, "mode", ("segmentation", "boundaries"))
        names = os.path.join(self.root, f"{image_set}.txt")
        if not os.path.isfile(names):
            raise RuntimeError(
                "Dataset not found or corrupted. Get benchmark.tgz from www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/"
                f"semantic_contours and unpack its folder `dataset` so that {names} is there"
            )
        stems = pathlib.Path(names).read_text().split()
        self.images = [os.path.join(self.root, "img", stem + ".jpg") for stem in stems]
        self.masks = [os.path.join(self.root, "cls", stem + ".mat") for stem in stems]

    def __getitem__(self, index):
        from scipy.io import loadmat

        Image, truth = image_module("SBDataset"), loadmat(self.masks[index])["GTcls"][0]
        if self.mode == "segmentation":
            target = Image.fromarray(truth["Segmentation"][0])
        else:
            target = numpy.stack([truth["Boundaries"][0][kind][0].toarray() for kind in range(self.num_classes)])
        return self._changed(Image.open(self.images[index]).convert("RGB"), target)

    def __len__(self):
        return len(self.images)

    def extra_repr(self):
        return f"Image set: {self.image_set}\nMode: {self.mode}"


class _Grey(VisionDataset):
    """Small grey pictures in memory (`data`), with their labels."""

    def __getitem__(self, index):
        return self._changed(image_module(type(self).__name__).fromarray(self.data[index]), int(self._numbers[index]))

    def __len__(self):
        return len(self.data)


class USPS(_Grey):
    """Digits from envelopes, 16 x 16: `root/usps.bz2` and `root/usps.t.bz2`."""

    split_list = {"train": ["usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197"], "test": ["usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118"]}

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        name, md5 = self.split_list["train" if train else "test"]
        path = os.path.join(self.root, name)
        if download and not os.path.exists(path):
            download_url(f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/{name}", self.root, md5=md5)
        with bz2.open(path, "rt") as file:  # a line is a label and `place:value` for each point
            rows = [line.split() for line in file]
        points = numpy.asarray([[entry.split(":")[-1] for entry in row[1:]] for row in rows], numpy.float32).reshape(-1, 16, 16)
        self.data = ((points + 1) / 2 * 255).astype(numpy.uint8)
        self.targets = self._numbers = [int(row[0]) - 1 for row in rows]


class SEMEION(_Grey):
    """1593 written digits, 16 x 16: `root/semeion.data`."""

    def __init__(self, root, transform=None, target_transform=None, download=True):
        super().__init__(root, transform=transform, target_transform=target_transform)
        path, md5 = os.path.join(self.root, "semeion.data"), "cb545d371d2ce14ec121470795a77432"
        if download and not os.path.exists(path):
            download_url("http://archive.ics.uci.edu/ml/machine-learning-databases/semeion/semeion.data", self.root, md5=md5)
        if not check_integrity(path):
            raise RuntimeError("Dataset not found or corrupted. You can use download=True to download it")
        table = numpy.loadtxt(path, ndmin=2)  # 256 points, then ten columns with a 1 in the digit's
        self.data = (table[:, :256] * 255).astype(numpy.uint8).reshape(-1, 16, 16)
        self.labels = self._numbers = table[:, 256:].argmax(1)


class FER2013(_Grey):
    """Faces, 48 x 48, with one of seven moods: `root/fer2013/fer2013.csv` (or `icml_face_data.csv`, or `train.csv` and `test.csv`)."""

    def __init__(self, root, split="train", transform=None, target_transform=None):
        self._split = verify_str_arg(split, "split", ("train", "test"))
        super().__init__(root, transform=transform, target_transform=target_transform)
        folder = os.path.join(self.root, "fer2013")
        names = [name for name in ("fer2013.csv", "icml_face_data.csv", f"{split}.csv") if os.path.isfile(os.path.join(folder, name))]
        if not names:
            raise RuntimeError(
                f"{split}.csv not found in {folder}. Get it from "
                "kaggle.com/c/challenges-in-representation-learning-facial-expression-recognition-challenge"
            )
        with open(os.path.join(folder, names[0]), newline="") as file:
            rows = [{key.strip(): value for key, value in row.items()} for row in csv.DictReader(file)]
        mine = ("Training",) if split == "train" else ("PublicTest", "PrivateTest")
        rows = [row for row in rows if row.get("Usage", mine[0]) in mine]
        self.data = numpy.asarray([row["pixels"].split() for row in rows], numpy.uint8).reshape(-1, 48, 48)
        self._numbers = [row.get("emotion") for row in rows]

    def __getitem__(self, index):
        label = self._numbers[index]
        return self._changed(image_module("FER2013").fromarray(self.data[index]), None if label is None else int(label))

    def extra_repr(self):
        return f"split={self._split}"


class MovingMNIST(VisionDataset):
    """10,000 films of two moving digits, 20 pictures of 64 x 64 each: `root/MovingMNIST/mnist_test_seq.npy`."""

    def __init__(self, root, split=None, split_ratio=10, download=False, transform=None):
        super().__init__(root, transform=transform)
        if split is not None:
            verify_str_arg(split, "split", ("train", "test"))
        if not isinstance(split_ratio, int):
            raise TypeError(f"`split_ratio` should be an integer, but got {type(split_ratio)}")
        if not 1 <= split_ratio <= 19:
            raise ValueError(f"`split_ratio` should be `1 <= split_ratio <= 19`, but got {split_ratio} instead.")
        self.split, self.split_ratio = split, split_ratio
        folder = os.path.join(self.root, "MovingMNIST")
        path, url = os.path.join(folder, "mnist_test_seq.npy"), "http://www.cs.toronto.edu/~nitish/unsupervised_video/mnist_test_seq.npy"
        if download and not os.path.exists(path):
            download_url(url, folder, md5="be083ec986bfe91a449d63653c411eb2")
        if not os.path.exists(path):
            raise RuntimeError("Dataset not found. You can use download=True to download it.")
        films = numpy.load(path)[{"train": slice(None, split_ratio), "test": slice(split_ratio, None), None: slice(None)}[split]]
        self.data = wisp.from_numpy(films).transpose(0, 1).unsqueeze(2).contiguous()

    def __getitem__(self, index):
        return self.data[index] if self.transform is None else self.transform(self.data[index])

    def __len__(self):
        return len(self.data)


class LSUNClass(VisionDataset):
    """One database of LSUN (needs the package lmdb)."""

    def __init__(self, root, transform=None, target_transform=None):
        super().__init__(root, transform=transform, target_transform=target_transform)
        import lmdb

        self.env = lmdb.open(self.root, max_readers=1, readonly=True, lock=False, readahead=False, meminit=False)
        with self.env.begin() as reading:
            self.keys = list(reading.cursor().iternext(keys=True, values=False))

    def __getitem__(self, index):
        import io

        with self.env.begin() as reading:
            image = image_module("LSUN").open(io.BytesIO(reading.get(self.keys[index]))).convert("RGB")
        return self._changed(image, None)

    def __len__(self):
        return len(self.keys)


_SCENES = "bedroom bridge church_outdoor classroom conference_room dining_room kitchen living_room restaurant tower".split()


class LSUN(VisionDataset):
    """Scenes of ten kinds: `root/<class>_<train, val>_lmdb`; classes is "train", "val", "test" or a list such as ["bedroom_train"]."""

    def __init__(self, root, classes="train", transform=None, target_transform=None):
        super().__init__(root, transform=transform, target_transform=target_transform)
        if isinstance(classes, str):
            verify_str_arg(classes, "classes", ("train", "val", "test"))
            classes = ["test"] if classes == "test" else [f"{scene}_{classes}" for scene in _SCENES]
        for name in classes:
            scene, _, part = verify_str_arg(name, "classes").rpartition("_")
            if name != "test" and (scene not in _SCENES or part not in ("train", "val", "test")):
                raise ValueError(f"Unknown value '{name}' for LSUN class. Valid values are {_SCENES}, with _train, _val or _test.")
        self.classes = list(classes)
        self.dbs = [LSUNClass(os.path.join(self.root, f"{name}_lmdb")) for name in self.classes]
        self.indices = numpy.cumsum([len(part) for part in self.dbs]).tolist()
        self.length = self.indices[-1]

    def __getitem__(self, index):
        kind = int(numpy.searchsorted(self.indices, index, "right"))
        image, _ = self.dbs[kind][index - (self.indices[kind - 1] if kind else 0)]
        return self._changed(image, kind)

    def __len__(self):
        return self.length

    def extra_repr(self):
        return f"Classes: {self.classes}"
