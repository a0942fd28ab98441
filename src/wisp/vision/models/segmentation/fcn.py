"""The longer name of the parts of `wisp.vision.models.segmentation`."""

from wisp.vision.models.segmentation import FCN, FCNHead, fcn_resnet50, fcn_resnet101  # noqa: F401
