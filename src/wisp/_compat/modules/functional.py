"""Functions of the package under the name `torch.functional` that older code imports."""

import wisp
from wisp import (  # noqa: F401
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_shapes,
    broadcast_tensors,
    cartesian_prod,
    cdist,
    chain_matmul,
    einsum,
    istft,
    meshgrid,
    norm,
    split,
    stft,
    tensordot,
    unique,
    unique_consecutive,
    unravel_index,
)
from wisp.nn import functional as F  # noqa: F401

__all__ = """
    atleast_1d atleast_2d atleast_3d broadcast_shapes broadcast_tensors cartesian_prod block_diag cdist chain_matmul einsum
    istft lu norm meshgrid pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive unravel_index""".split()


def __getattr__(name):
    if name.startswith("_") or not hasattr(wisp, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(wisp, name)
