"""All layers, a file per family."""

from wisp.nn.modules.activation import *  # noqa: F403
from wisp.nn.modules.adaptive import *  # noqa: F403
from wisp.nn.modules.batchnorm import *  # noqa: F403
from wisp.nn.modules.channelshuffle import *  # noqa: F403
from wisp.nn.modules.container import *  # noqa: F403
from wisp.nn.modules.conv import *  # noqa: F403
from wisp.nn.modules.distance import *  # noqa: F403
from wisp.nn.modules.dropout import *  # noqa: F403
from wisp.nn.modules.flatten import *  # noqa: F403
from wisp.nn.modules.fold import *  # noqa: F403
from wisp.nn.modules.instancenorm import *  # noqa: F403
from wisp.nn.modules.linear import *  # noqa: F403
from wisp.nn.modules.loss import *  # noqa: F403
from wisp.nn.modules.module import Module  # noqa: F401
from wisp.nn.modules.normalization import *  # noqa: F403
from wisp.nn.modules.padding import *  # noqa: F403
from wisp.nn.modules.pixelshuffle import *  # noqa: F403
from wisp.nn.modules.pooling import *  # noqa: F403
from wisp.nn.modules.rnn import *  # noqa: F403
from wisp.nn.modules.sparse import *  # noqa: F403
from wisp.nn.modules.transformer import *  # noqa: F403
from wisp.nn.modules.upsampling import *  # noqa: F403

__all__ = sorted(name for name, value in list(globals().items()) if isinstance(value, type) and not name.startswith("_"))
