"""Image datasets, read from local files; a failed download says where to put them."""

from wisp.vision.datasets import utils
from wisp.vision.datasets._digits import digits
from wisp.vision.datasets.cifar import CIFAR10, CIFAR100
from wisp.vision.datasets.folder import DatasetFolder, ImageFolder
from wisp.vision.datasets.folders import Caltech101, EuroSAT, Food101, ImageNet, OxfordIIITPet
from wisp.vision.datasets.mnist import EMNIST, KMNIST, MNIST, QMNIST, FashionMNIST
from wisp.vision.datasets.others import STL10, SVHN, CelebA, CocoCaptions, CocoDetection, FakeData, VOCDetection, VOCSegmentation
from wisp.vision.datasets.vision import StandardTransform, VisionDataset

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "Caltech101",
    "CelebA",
    "CocoCaptions",
    "CocoDetection",
    "DatasetFolder",
    "EMNIST",
    "EuroSAT",
    "FakeData",
    "FashionMNIST",
    "Food101",
    "ImageFolder",
    "ImageNet",
    "KMNIST",
    "MNIST",
    "OxfordIIITPet",
    "QMNIST",
    "STL10",
    "SVHN",
    "StandardTransform",
    "VOCDetection",
    "VOCSegmentation",
    "VisionDataset",
    "digits",
    "utils",
]
