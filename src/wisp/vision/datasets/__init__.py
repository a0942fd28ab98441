"""Image datasets, read from local files; a failed download says where to put them."""

from wisp import _reference
from wisp.vision.datasets import cifar, folders, listed, mnist, others, utils, vision
from wisp.vision.datasets._digits import digits
from wisp.vision.datasets.cifar import *  # noqa: F403
from wisp.vision.datasets.folder import DatasetFolder, ImageFolder
from wisp.vision.datasets.folders import *  # noqa: F403
from wisp.vision.datasets.listed import *  # noqa: F403
from wisp.vision.datasets.mnist import *  # noqa: F403
from wisp.vision.datasets.others import *  # noqa: F403
from wisp.vision.datasets.vision import *  # noqa: F403

__all__ = ["DatasetFolder", "ImageFolder", "digits", "utils"]
__all__ += cifar.__all__
__all__ += folders.__all__
__all__ += listed.__all__
__all__ += mnist.__all__
__all__ += others.__all__
__all__ += vision.__all__

_reference.attach(__name__, globals())
