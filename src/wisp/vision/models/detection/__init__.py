"""Models that find things in images: Faster, Mask and Keypoint R-CNN, RetinaNet, with torchvision's names and state_dict keys."""

from wisp.vision.models.detection import faster_rcnn, keypoint_rcnn, mask_rcnn, retinanet

__all__ = []
for _module in (faster_rcnn, mask_rcnn, keypoint_rcnn, retinanet):
    for _name in _module.__all__:
        globals()[_name] = getattr(_module, _name)
        __all__.append(_name)
