"""The classes of named results: `wisp.return_types.max`.

>>> isinstance(wisp.max(wisp.tensor([[1, 2]]), dim=1), wisp.return_types.max)
True
"""

from wisp._return_types import MADE


def __getattr__(name):
    if name in MADE:
        return MADE[name]
    raise AttributeError(f"module 'wisp.return_types' has no attribute {name!r}")


def __dir__():
    return sorted(MADE)
