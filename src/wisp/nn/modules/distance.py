"""Distances between batches of vectors."""

from wisp.nn import functional as F
from wisp.nn.modules.module import Module

__all__ = ["PairwiseDistance", "CosineSimilarity"]


class PairwiseDistance(Module):
    """The p-norm of `x1 - x2 + eps`, row by row.

    >>> import wisp
    >>> wisp.nn.PairwiseDistance(eps=0.0)(wisp.zeros(2, 4), wisp.ones(2, 4))
    tensor([2., 2.])
    """

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between `x1` and `x2`, along one dimension.

    >>> import wisp
    >>> wisp.nn.CosineSimilarity()(wisp.ones(1, 4), wisp.ones(1, 4))
    tensor([1.])
    """

    __constants__ = ["dim", "eps"]

    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
