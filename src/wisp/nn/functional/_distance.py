"""Distances and similarities between vectors."""

import wisp

__all__ = ["cosine_similarity", "pairwise_distance", "pdist"]


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along `dim`.

    >>> import wisp
    >>> wisp.nn.functional.cosine_similarity(wisp.tensor([1.0, 0.0]), wisp.tensor([1.0, 1.0]), dim=0)
    tensor(0.7071)
    """
    if eps < 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps} (cosine_similarity)")
    dtype = wisp.result_type(x1, x2)
    if not dtype.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {dtype}")
    x1, x2 = wisp.broadcast_tensors(x1.to(dtype), x2.to(dtype))
    norm1 = wisp.linalg.vector_norm(x1, 2, dim, keepdim=True).clamp_min(eps)
    norm2 = wisp.linalg.vector_norm(x2, 2, dim, keepdim=True).clamp_min(eps)
    return ((x1 / norm1) * (x2 / norm2)).sum(dim)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of the difference along the last dimension; `eps` keeps its gradient finite."""
    return wisp._core._whole("NormBackward1", lambda difference: difference.norm(p, -1, keepdim), x1 - x2 + eps)


def pdist(input, p=2.0):
    """The p-norm distance between every pair of rows: the upper triangle without the diagonal, row by row."""
    return wisp.pdist(input, p)
