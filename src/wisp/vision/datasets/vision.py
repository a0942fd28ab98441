"""The base of the image datasets."""

import os

from wisp.utils.data import Dataset

__all__ = ["StandardTransform", "VisionDataset"]


class StandardTransform:
    """A transform of the image and one of the target, together."""

    def __init__(self, transform=None, target_transform=None):
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, image, target):
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __repr__(self):
        lines = ["StandardTransform"]
        for label, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                first, *rest = repr(transform).splitlines()
                lines += [label + first, *(" " * len(label) + line for line in rest)]
        return "\n".join(lines)


class VisionDataset(Dataset):
    """A dataset with a folder (`root`) and transforms."""

    _repr_indent = 4

    def __init__(self, root=None, transforms=None, transform=None, target_transform=None):
        self.root = os.path.expanduser(root) if isinstance(root, str) else os.fspath(root) if root is not None else None
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.transform, self.target_transform = transform, target_transform
        separate = transform is not None or target_transform is not None
        self.transforms = StandardTransform(transform, target_transform) if separate else transforms

    def _changed(self, image, target):
        """The sample after the transforms."""
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        if self.transforms is not None and not isinstance(self.transforms, StandardTransform):
            image, target = self.transforms(image, target)
        return image, target

    def __getitem__(self, index):
        raise NotImplementedError

    def __len__(self):
        raise NotImplementedError

    def extra_repr(self):
        """More lines for the text of the dataset."""
        return ""

    def __repr__(self):
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if self.transforms is not None:
            body += repr(self.transforms).splitlines()
        return "\n".join([f"Dataset {type(self).__name__}", *(" " * self._repr_indent + line for line in body)])
