"""wisp.vision: datasets, transforms, models, helpers."""

import bz2
import doctest
import gzip
import importlib
import os
import pickle
import struct

import numpy
import pytest
from cifar import make_cifar

import wisp
from wisp.vision import datasets, io, models, ops, transforms, tv_tensors, utils
from wisp.vision.transforms import functional as F
from wisp.vision.transforms import v2

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def picture():
    return Image.fromarray(numpy.random.randint(0, 255, (32, 48, 3), dtype=numpy.uint8))


def write_idx(path, array):
    with gzip.open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + struct.pack(">" + "i" * array.ndim, *array.shape) + array.tobytes())


def make_mnist(folder, counts=(60, 20)):
    os.makedirs(folder, exist_ok=True)
    for part, count in zip(("train", "t10k"), counts):
        write_idx(f"{folder}/{part}-images-idx3-ubyte.gz", numpy.random.randint(0, 255, (count, 28, 28), dtype=numpy.uint8))
        write_idx(f"{folder}/{part}-labels-idx1-ubyte.gz", numpy.random.randint(0, 9, count, dtype=numpy.uint8))


def test_mnist(tmp_path):
    make_mnist(tmp_path / "MNIST" / "raw")
    data = datasets.MNIST(
        tmp_path,
        train=True,
        download=True,
        transform=transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]),
    )
    image, label = data[3]
    assert len(data) == 60 and image.shape == (1, 28, 28) and label == int(data.targets[3]) and data.data.dtype == wisp.uint8
    wisp.testing.assert_close(image[0], (data.data[3].float() / 255 - 0.1307) / 0.3081)
    assert len(datasets.MNIST(tmp_path, train=False)) == 20 and "Split: Train" in repr(data)
    data.data = data.data[1:2] * 0  # programs take a part this way
    assert len(data) == 1 and data[0][0].max() == data[0][0].min()
    with pytest.raises(RuntimeError, match="FashionMNIST/raw"):
        datasets.FashionMNIST(tmp_path)
    (tmp_path / "bad").write_bytes(b"nonsense")
    with pytest.raises(RuntimeError, match="not an IDX file"):
        datasets.mnist.read_idx(tmp_path / "bad")


def test_cifar(tmp_path):
    make_cifar(tmp_path)
    data = datasets.CIFAR10(tmp_path, train=True, download=True, transform=transforms.ToTensor())
    assert len(data) == 50 and data[0][0].shape == (3, 32, 32) and data.classes[3] == "cat" and data.data.shape == (50, 32, 32, 3)
    loader = wisp.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    assert [len(labels) for _, labels in loader] == [16, 16, 16, 2]
    with pytest.raises(RuntimeError, match="cifar-100-python"):
        datasets.CIFAR100(tmp_path)
    with open(tmp_path / "evil", "wb") as file:
        pickle.dump({"data": os.system}, file)
    with pytest.raises(pickle.UnpicklingError):
        datasets.CIFAR10._read(tmp_path / "evil")


def test_folders_and_fake_data(tmp_path, picture):
    for index in range(4):
        os.makedirs(tmp_path / f"class{index % 2}", exist_ok=True)
        picture.save(tmp_path / f"class{index % 2}" / f"{index}.png")
    data = datasets.ImageFolder(tmp_path, transforms.ToTensor())
    assert data.classes == ["class0", "class1"] and data.targets == [0, 0, 1, 1] and data[0][0].shape == (3, 32, 48)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty"):
        datasets.ImageFolder(tmp_path)
    fake = datasets.FakeData(3, (3, 8, 8), transform=transforms.ToTensor())
    assert wisp.equal(fake[1][0], fake[1][0])
    with pytest.raises(IndexError):
        fake[3]


def test_listed_datasets(tmp_path, picture):
    """Sets whose files are named by lists: tables of SciPy's, texts, folders within folders."""

    def put(name, text=None):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path) if text is None else path.write_text(text)

    put("dtd/dtd/labels/train1.txt", "dotted/dotted_2.jpg\nbanded/banded_1.jpg\n")
    put("dtd/dtd/images/dotted/dotted_2.jpg")
    textures = datasets.DTD(tmp_path)
    assert textures.classes == ["banded", "dotted"] and textures[0][1] == 1 and textures[0][0].size == picture.size
    with pytest.raises(ValueError, match="Unknown value 'all' for argument split. Valid values are {'train', 'val', 'test'}."):
        datasets.DTD(tmp_path, "all")
    with pytest.raises(RuntimeError, match="flowers-102"):
        datasets.Flowers102(tmp_path)

    put("gtsrb/GTSRB/Final_Test/Images/00000.ppm")
    put("gtsrb/GT-final_test.csv", "Filename;Width;ClassId\n00000.ppm;5;16\n")
    assert datasets.GTSRB(tmp_path, "test", target_transform=lambda label: label + 1)[0][1] == 17

    put("fgvc-aircraft-2013b/data/variants.txt", "707-320\n727 200\n")
    put("fgvc-aircraft-2013b/data/images_variant_trainval.txt", "0001 727 200\n")
    assert datasets.FGVCAircraft(tmp_path)._labels == [1]

    put("SUN397/ClassName.txt", "/a/abbey\n/b/bar/inside\n")
    put("SUN397/b/bar/inside/sun_2.jpg")
    assert datasets.SUN397(tmp_path)[0][1] == 1

    put("categories_places365.txt", "/a/airfield 0\n/b/bar 1\n")
    put("places365_test.txt", "one.jpg\n")
    put("places365_train_standard.txt", "/b/bar/2.jpg 1\n")
    assert datasets.Places365(tmp_path, "test").imgs == [(str(tmp_path / "test_large" / "one.jpg"), None)]
    assert datasets.Places365(tmp_path, small=True).imgs == [(str(tmp_path / "data_256_standard" / "b" / "bar" / "2.jpg"), 1)]

    put("leftImg8bit/train/aachen/aachen_0_0_leftImg8bit.png")
    put("gtFine/train/aachen/aachen_0_0_gtFine_labelIds.png")
    put("gtFine/train/aachen/aachen_0_0_gtFine_polygons.json", '{"objects": []}')
    streets = datasets.Cityscapes(tmp_path, target_type=["polygon", "semantic"])
    (polygons, mask) = streets[0][1]
    assert polygons == {"objects": []} and mask.size == picture.size and len(streets) == 1
    assert [kind.name for kind in streets.classes if kind.train_id == 13] == ["car"] and streets.classes[-1].id == -1

    put(
        "fer2013/fer2013.csv",
        "emotion,pixels,Usage\n" + "".join(f"{i},{' '.join(['7'] * 2304)},{u}\n" for i, u in ((3, "Training"), (5, "PublicTest"))),
    )
    assert [label for _, label in datasets.FER2013(tmp_path, "test")] == [5]

    with bz2.open(tmp_path / "usps.bz2", "wt") as file:
        file.write("7 " + " ".join(f"{place + 1}:{1 if place == 3 else -1}" for place in range(256)) + "\n")
    digits = datasets.USPS(tmp_path)
    assert digits[0][1] == 6 and digits.data[0, 0, 3] == 255 and digits.data.sum() == 255

    (tmp_path / "MovingMNIST").mkdir()
    numpy.save(tmp_path / "MovingMNIST" / "mnist_test_seq.npy", numpy.zeros((20, 3, 8, 8), numpy.uint8))
    films = datasets.MovingMNIST(tmp_path, "test", 12)
    assert len(films) == 3 and films[0].shape == (8, 1, 8, 8)
    with pytest.raises(ValueError, match="LSUN"):
        datasets.LSUN(tmp_path, ["garage_train"])
    assert datasets.utils.list_dir(tmp_path / "dtd") == ["dtd"] and datasets.utils.list_files(tmp_path, ".bz2", True) == [
        str(tmp_path / "usps.bz2")
    ]


@pytest.mark.parametrize(
    "path",
    """
    ops.focal_loss.sigmoid_focal_loss ops.giou_loss.generalized_box_iou_loss ops.drop_block.DropBlock2d datasets.voc.VOCSegmentation
    datasets.svhn.SVHN datasets.cityscapes.Cityscapes datasets.caltech.Caltech256 datasets.caltech.Caltech101 datasets.imagenet.ImageNet
    models.segmentation._utils._SimpleSegmentationModel models.detection.image_list.ImageList io.image.ImageReadMode""".split(),
)
def test_paths_of_torchvision(path):
    module, _, name = path.rpartition(".")
    assert hasattr(importlib.import_module(f"wisp.vision.{module}"), name)


def test_failed_download_says_where(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.KMNIST, "mirrors", ["file:///nowhere/"])
    with pytest.raises(RuntimeError, match="put it at .*KMNIST/raw/train-images"):
        datasets.KMNIST(tmp_path, download=True)
    monkeypatch.setattr("wisp.vision.models._api._ADDRESS", "file:///nowhere/")
    monkeypatch.setenv("WISP_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(models.SqueezeNet1_1_Weights.DEFAULT.value, "url", "file:///nowhere/squeezenet1_1-b8a52dc0.pth")
    with pytest.raises(RuntimeError, match="put it at .*checkpoints/squeezenet1_1-b8a52dc0.pth"):
        models.squeezenet1_1(weights="DEFAULT")
    made = models.squeezenet1_1()
    os.makedirs(tmp_path / "hub" / "checkpoints", exist_ok=True)
    wisp.save(made.state_dict(), tmp_path / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth")
    loaded = models.squeezenet1_1(weights=models.SqueezeNet1_1_Weights.IMAGENET1K_V1)
    assert wisp.equal(loaded.features[0].weight, made.features[0].weight)
    with pytest.raises(ValueError, match="no weights 'V9'"):
        models.resnet18(weights="V9")


ALL = [
    transforms.Resize(16),
    transforms.Resize((8, 9)),
    transforms.CenterCrop(60),
    transforms.CenterCrop(10),
    transforms.Pad(3, padding_mode="reflect"),
    transforms.Pad((1, 2), fill=7),
    transforms.Pad(2, padding_mode="symmetric"),
    transforms.RandomCrop(32, padding=4),
    transforms.RandomHorizontalFlip(1),
    transforms.RandomVerticalFlip(1),
    transforms.RandomResizedCrop(16),
    transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
    transforms.RandomRotation(30),
    transforms.RandomRotation(30, expand=True, fill=3),
    transforms.RandomAffine(10, (0.1, 0.1), (0.8, 1.2), 5),
    transforms.RandomPerspective(p=1),
    transforms.Grayscale(3),
    transforms.RandomGrayscale(1),
    transforms.GaussianBlur(5),
    transforms.RandomInvert(1),
    transforms.RandomPosterize(3, 1),
    transforms.RandomSolarize(0.5, 1),
    transforms.RandomAdjustSharpness(2, 1),
    transforms.RandomAutocontrast(1),
    transforms.RandomEqualize(1),
    transforms.ElasticTransform(sigma=2.0),
    transforms.AutoAugment(),
    transforms.RandAugment(),
    transforms.TrivialAugmentWide(),
    transforms.AugMix(),
]


@pytest.mark.parametrize("transform", ALL, ids=lambda transform: type(transform).__name__)
def test_transforms_take_pictures_and_tensors(transform, picture):
    for image in (picture, picture.convert("L"), F.pil_to_tensor(picture)):
        result = transform(image)
        assert isinstance(result, wisp.Tensor) == isinstance(image, wisp.Tensor)
        size = F.get_dimensions(result)[1:]
        if isinstance(image, wisp.Tensor):
            assert result.dtype == image.dtype
        if hasattr(transform, "size") and not isinstance(transform.size, int):
            assert tuple(size) == tuple(transform.size)


@pytest.mark.parametrize(
    "name, arguments, tolerance",
    [
        ("resize", ((16, 24),), 1),
        ("rotate", (30,), 0),
        ("affine", (20, [3, 4], 1.2, [5, 3]), 0),
        ("hflip", (), 0),
        ("vflip", (), 0),
        ("crop", (-3, 4, 20, 60), 0),
        ("center_crop", (40,), 0),
        ("pad", ([1, 2, 3, 4], 9), 0),
        ("pad", (4, 0, "symmetric"), 0),
        ("pad", (4, 0, "reflect"), 0),
        ("pad", (4, 0, "edge"), 0),
        ("adjust_brightness", (1.5,), 1),
        ("adjust_contrast", (1.5,), 1),
        ("adjust_saturation", (0.3,), 2),
        ("adjust_hue", (0.2,), 16),
        ("adjust_gamma", (0.7,), 1),
        ("adjust_sharpness", (2.0,), 1),
        ("equalize", (), 0),
        ("autocontrast", (), 1),
        ("invert", (), 0),
        ("posterize", (3,), 0),
        ("solarize", (100,), 0),
        ("rgb_to_grayscale", (), 1),
        ("gaussian_blur", (3,), 0),
    ],
)
def test_tensors_and_pictures_agree(name, arguments, tolerance, picture):
    function = getattr(F, name)
    one, other = function(F.pil_to_tensor(picture), *arguments), F.pil_to_tensor(function(picture, *arguments))
    assert one.shape == other.shape and (one.int() - other.int()).abs().max() <= tolerance


def test_conversions(picture):
    tensor = transforms.ToTensor()(picture)
    assert tensor.dtype == wisp.float32 and tensor.max() <= 1
    assert wisp.equal(F.pil_to_tensor(transforms.ToPILImage()(tensor)), F.pil_to_tensor(picture))
    wisp.testing.assert_close(transforms.ToTensor()(picture.convert("1")).unique(), wisp.tensor([0.0, 1.0]))
    assert transforms.ToTensor()(numpy.zeros((4, 5), numpy.float64)).dtype == wisp.float64
    with pytest.raises(TypeError):
        transforms.ToTensor()(tensor)
    with pytest.raises(TypeError):
        transforms.Normalize([0.5], [0.5])(F.pil_to_tensor(picture))
    with pytest.raises(ValueError):
        transforms.ColorJitter(hue=0.7)
    assert wisp.equal(
        F.convert_image_dtype(F.convert_image_dtype(F.pil_to_tensor(picture), wisp.float32), wisp.uint8), F.pil_to_tensor(picture)
    )


def test_samples_with_boxes_and_masks(picture):
    boxes = tv_tensors.BoundingBoxes([[4, 2, 10, 12]], format="XYXY", canvas_size=(32, 48))
    mask = tv_tensors.Mask(wisp.ones(1, 32, 48, dtype=wisp.uint8))
    change = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomHorizontalFlip(1),
            v2.Resize((16, 24)),
            v2.ColorJitter(0.5),
            v2.ToDtype(wisp.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    image, target = change(picture, {"boxes": boxes, "masks": mask, "labels": wisp.tensor([1])})
    assert image.shape == (3, 16, 24) and image.dtype == wisp.float32 and isinstance(image, tv_tensors.Image)
    assert target["boxes"].tolist() == [[19, 1, 22, 6]] and target["boxes"].canvas_size == (16, 24)
    assert target["masks"].shape == (1, 16, 24) and target["masks"].min() == 1 and target["labels"].tolist() == [1]
    assert v2.SanitizeBoundingBoxes(min_size=50)({"boxes": boxes, "labels": wisp.tensor([1])})["labels"].shape == (0,)
    images, labels = v2.CutMix(num_classes=3)(wisp.rand(4, 3, 8, 8), wisp.tensor([0, 1, 2, 0]))
    wisp.testing.assert_close(labels.sum(1), wisp.ones(4))


COUNTS = {
    "resnet18": 11689512,
    "resnet50": 25557032,
    "resnext50_32x4d": 25028904,
    "mobilenet_v2": 3504872,
    "mobilenet_v3_large": 5483032,
    "mobilenet_v3_small": 2542856,
    "densenet121": 7978856,
    "efficientnet_b0": 5288548,
    "squeezenet1_0": 1248424,
    "squeezenet1_1": 1235496,
    "shufflenet_v2_x1_0": 2278604,
    "mnasnet1_0": 4383312,
    "convnext_tiny": 28589128,
    "swin_t": 28288354,
    "swin_v2_t": 28351570,
    "regnet_y_400mf": 4344144,
    "regnet_x_800mf": 7259656,
    "lenet": 61706,
}


@pytest.mark.parametrize("name, count", [("r3d_18", 33371472), ("mc3_18", 11695440), ("r2plus1d_18", 31505325)])
def test_models_of_films(name, count):
    from wisp.vision.models.video.resnet import VideoResNet

    with wisp.device("meta"):
        assert sum(parameter.numel() for parameter in models.get_model(name).parameters()) == count
    made = getattr(models.video, name)(num_classes=5).eval()
    with wisp.no_grad():
        assert isinstance(made, VideoResNet) and made(wisp.zeros(1, 3, 4, 16, 16)).shape == (1, 5)
    assert "conv1.0.weight" in made.layer1[0].state_dict() or "conv1.0.0.weight" in made.layer1[0].state_dict()


def test_swin_v2_and_regnet_are_made_as_in_torchvision():
    """The scores of Swin v2 are cosines, whatever the length of queries; a stage of RegNet has blocks of one width."""
    made = models.SwinTransformer(
        [4, 4],
        8,
        [2],
        [2],
        [2, 2],
        block=models.swin_transformer.SwinTransformerBlockV2,
        downsample_layer=models.swin_transformer.PatchMergingV2,
        num_classes=3,
    ).eval()
    attention = made.features[1][0].attn
    x = wisp.randn(1, 4, 4, 8)
    with wisp.no_grad():
        attention.qkv.bias.zero_()
        before = attention(x)
        attention.qkv.weight[:16] *= 3.0
        wisp.testing.assert_close(attention(x), before)
    assert set(attention.state_dict()) >= {"logit_scale", "cpb_mlp.0.weight", "relative_coords_table"}
    assert models.regnet.BlockParams.from_init_params(16, 48, 27.89, 2.09, 8).widths == [48, 104, 208, 440]
    assert list(models.regnet_y_400mf().trunk_output.block1)[0].f.se is not None
    assert models.RegNet_Y_128GF_Weights.DEFAULT.url.endswith("regnet_y_128gf_swag-c8ce3e52.pth")


@pytest.mark.parametrize("name", COUNTS)
def test_models(name):
    made = models.get_model(name).eval()
    assert sum(parameter.numel() for parameter in made.parameters()) == COUNTS[name]
    with wisp.no_grad():
        assert made(wisp.zeros(1, 1 if name == "lenet" else 3, 32, 32)).shape[0] == 1


def test_models_train_and_name_their_keys():
    made = models.resnet18(num_classes=3)
    made(wisp.rand(2, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())
    keys = list(made.state_dict())
    assert keys[0] == "conv1.weight" and "layer2.0.downsample.1.running_mean" in keys and keys[-1] == "fc.bias"
    keys = list(models.densenet121().state_dict())
    assert "features.denseblock1.denselayer1.norm1.weight" in keys and "features.transition1.conv.weight" in keys
    assert "features.1.0.block.1.fc1.weight" in models.efficientnet_b0().state_dict()
    out = models.googlenet(num_classes=5, init_weights=False)(wisp.rand(2, 3, 64, 64))
    assert out.logits.shape == out.aux_logits1.shape == (2, 5)
    with pytest.raises(ValueError, match="closest: resnet18"):
        models.get_model("resnet19")
    assert "resnet50" in models.list_models(include="resnet*")


def test_grids_and_files(tmp_path, picture):
    assert utils.make_grid(wisp.rand(5, 1, 8, 8), nrow=3, normalize=True).shape == (3, 22, 32)
    assert utils.make_grid([wisp.rand(3, 4, 4)] * 2, padding=0).shape == (3, 4, 8)
    utils.save_image(wisp.ones(2, 3, 4, 4), tmp_path / "x.png", nrow=2)
    assert io.read_image(tmp_path / "x.png").shape == (3, 8, 14)
    tensor = F.pil_to_tensor(picture)
    io.write_png(tensor, tmp_path / "y.png")
    assert wisp.equal(io.read_image(str(tmp_path / "y.png")), tensor)
    assert io.read_image(tmp_path / "y.png", io.ImageReadMode.GRAY).shape == (1, 32, 48)
    drawn = utils.draw_bounding_boxes(wisp.zeros(3, 20, 20, dtype=wisp.uint8), wisp.tensor([[2, 3, 10, 12]]), ["a"], colors="red")
    assert drawn[0, 3, 2] == 255 and drawn[1].max() == 0


def test_boxes():
    boxes = wisp.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.8], [5.0, 5.0, 6.0, 7.0]])
    assert ops.nms(boxes, wisp.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]
    assert ops.batched_nms(boxes, wisp.tensor([0.5, 0.9, 0.1]), wisp.tensor([0, 1, 0]), 0.5).tolist() == [1, 0, 2]
    wisp.testing.assert_close(ops.box_iou(boxes, boxes).diagonal(), wisp.ones(3))
    wisp.testing.assert_close(ops.box_convert(ops.box_convert(boxes, "xyxy", "cxcywh"), "cxcywh", "xyxy"), boxes)
    assert ops.nms(wisp.zeros(0, 4), wisp.zeros(0), 0.5).tolist() == []
    wisp.testing.assert_close(ops.generalized_box_iou_loss(boxes, boxes), wisp.zeros(3))
    # of a picture whose numbers are its columns, a region's values are the middles of its bins
    ramp = wisp.arange(8.0).expand(1, 1, 8, 8)
    wisp.testing.assert_close(
        ops.roi_align(ramp, [wisp.tensor([[1.0, 1.0, 5.0, 5.0]])], 2, sampling_ratio=2, aligned=True)[0, 0, 0], wisp.tensor([1.5, 3.5])
    )


@pytest.mark.parametrize(
    "name",
    [
        "transforms._convert",
        "transforms._color",
        "transforms._geometry",
        "transforms.functional",
        "transforms.transforms",
        "transforms._random",
        "transforms.autoaugment",
        "transforms.v2",
        "transforms.v2._mix",
        "transforms.v2.functional",
        "tv_tensors",
        "utils",
        "ops.boxes",
        "ops.layers",
        "datasets.others",
        "datasets.utils",
        "models._api",
        "models.alexnet",
        "models.resnet",
        "models.vision_transformer",
        "models.unet",
        "models._utils",
        "models.feature_extraction",
        "ops.poolers",
        "ops.feature_pyramid_network",
        "models.detection._utils",
        "models.detection.anchor_utils",
        "models.detection.faster_rcnn",
        "models.detection.retinanet",
        "models.detection.backbone_utils",
    ],
)
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"wisp.vision.{name}"), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0 and result.attempted > 0


def test_segmentation_models():
    made = models.segmentation.deeplabv3_resnet50(num_classes=3, aux_loss=True).eval()
    with wisp.no_grad():
        result = made(wisp.rand(1, 3, 33, 40))
    assert result["out"].shape == result["aux"].shape == (1, 3, 33, 40)
    assert "classifier.0.convs.4.1.weight" in made.state_dict() and "backbone.layer4.2.bn3.bias" in made.state_dict()
    assert sum(p.numel() for p in models.segmentation.fcn_resnet50(aux_loss=True).parameters()) == 35322218


def test_deformable_convolution():
    x, weight, bias = (wisp.randn(*shape, dtype=wisp.float64) for shape in ((2, 4, 7, 6), (6, 2, 3, 3), (6,)))
    still = wisp.zeros(2, 36, 4, 3, dtype=wisp.float64)  # two groups of offsets, nine taps
    conv2d = wisp.nn.functional.conv2d
    wisp.testing.assert_close(ops.deform_conv2d(x, still, weight, bias, 2, 1), conv2d(x, weight, bias, 2, 1, groups=2))
    right = still.clone()
    right[:, 1::2] = 1.0  # every tap one pixel to the right: the convolution of the moved image
    moved = wisp.nn.functional.pad(x, (0, 1))[..., 1:]
    inside = (..., slice(1, None), slice(1, None))  # where the padding before the first column is not seen
    wisp.testing.assert_close(ops.deform_conv2d(x, right, weight, None, 2, 1)[inside], conv2d(moved, weight, None, 2, 1, groups=2)[inside])
    half = wisp.full((2, 18, 4, 3), 0.5, dtype=wisp.float64)
    wisp.testing.assert_close(ops.deform_conv2d(x, still, weight, None, 2, 1, mask=half), conv2d(x, weight, None, 2, 1, groups=2) / 2)
    offsets = wisp.randn(1, 8, 2, 2, dtype=wisp.float64, requires_grad=True)
    small = wisp.randn(1, 1, 3, 3, dtype=wisp.float64, requires_grad=True)
    kernel = wisp.randn(1, 1, 2, 2, dtype=wisp.float64, requires_grad=True)
    assert wisp.autograd.gradcheck(ops.deform_conv2d, (small, offsets, kernel))
    with pytest.raises(RuntimeError, match="expected offsets of shape"):
        ops.deform_conv2d(x, still[:, :35], weight)
    layer = ops.DeformConv2d(4, 6, 3, stride=2, padding=1, groups=2).double()
    assert layer(x, still).shape == (2, 6, 4, 3) and "kernel_size=(3, 3)" in repr(layer)


def test_a_feature_extractor_has_the_steps_of_the_model_and_no_more():
    from wisp.vision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    model = models.resnet18().eval()
    names = get_graph_node_names(model)[1]
    assert names[:3] == ["x", "conv1", "bn1"] and names[-4:] == ["layer4.1.relu_1", "avgpool", "flatten", "fc"]
    part = create_feature_extractor(model, {"layer3.1.conv2": "b", "layer1": "a", "layer1.1.relu_1": "c"})
    assert part.conv1.weight is model.conv1.weight and not any(key.startswith(("layer4", "fc")) for key in part.state_dict())
    x = wisp.rand(1, 3, 32, 32)
    found = part(x)
    assert list(found) == ["a", "c", "b"] and wisp.equal(found["a"], found["c"])
    assert wisp.equal(found["a"], model.layer1(model.maxpool(model.relu(model.bn1(model.conv1(x))))))
    mean = part.bn1.running_mean.clone()
    part.train()(x)  # layer4, whose statistics of one value are none, does not run
    assert not wisp.equal(part.bn1.running_mean, mean)
    assert list(create_feature_extractor(model, ["flatten"])(x)) == ["flatten"]
    with pytest.raises(ValueError, match="no node 'layer9'"):
        create_feature_extractor(model, ["layer9"])
