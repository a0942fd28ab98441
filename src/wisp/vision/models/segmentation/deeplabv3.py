"""The longer name of the parts of `wisp.vision.models.segmentation`."""

from wisp.vision.models.segmentation import ASPP, DeepLabHead, DeepLabV3, deeplabv3_resnet50, deeplabv3_resnet101  # noqa: F401
