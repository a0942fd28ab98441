"""Embeddings: tables of vectors looked up by index."""

import wisp
from wisp.nn import functional as F
from wisp.nn import init
from wisp.nn.modules.module import Module
from wisp.nn.modules.utils import _unusual
from wisp.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


def _table(num_embeddings, embedding_dim, given, requires_grad, device, dtype):
    if given is None:
        return Parameter(wisp.empty((num_embeddings, embedding_dim), device=device, dtype=dtype), requires_grad)
    if tuple(given.shape) != (num_embeddings, embedding_dim):
        raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
    return Parameter(given, requires_grad)


def _positive_index(padding_idx, num_embeddings):
    if padding_idx is None:
        return None
    if not -num_embeddings <= padding_idx < num_embeddings:
        raise AssertionError("padding_idx must be within num_embeddings")
    return padding_idx % num_embeddings


class Embedding(Module):
    """Replaces each index by a row of `weight`. The row `padding_idx` starts at zero and is not trained.

    >>> import wisp
    >>> embedding = wisp.nn.Embedding(10, 3, padding_idx=0)
    >>> tuple(embedding(wisp.tensor([[1, 2], [4, 0]])).shape)
    (2, 2, 3)
    """

    __constants__ = ["num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"]

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
        _weight=None,
        _freeze=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _positive_index(padding_idx, num_embeddings)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.weight = _table(num_embeddings, embedding_dim, _weight, not _freeze, device, dtype)
        if _weight is None:
            self.reset_parameters()
        self.sparse = sparse

    def reset_parameters(self):
        """Draw new vectors from the normal distribution."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self):
        if self.padding_idx is not None:
            with wisp.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input):
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)

    def extra_repr(self):
        return f"{self.num_embeddings}, {self.embedding_dim}" + _unusual(
            self, padding_idx=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, sparse=False
        )

    @classmethod
    def from_pretrained(
        cls, embeddings, freeze=True, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
    ):
        """An embedding with the given table.

        >>> import wisp
        >>> wisp.nn.Embedding.from_pretrained(wisp.eye(3))(wisp.tensor([1]))
        tensor([[0., 1., 0.]])
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        settings = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        return cls(*embeddings.shape, *settings, _weight=embeddings, _freeze=freeze)


class EmbeddingBag(Module):
    """Sums, means or maxima of embeddings, bag by bag, without making the single vectors.

    >>> import wisp
    >>> bags = wisp.nn.EmbeddingBag(10, 3, mode="sum")
    >>> tuple(bags(wisp.tensor([1, 2, 4, 5, 4]), wisp.tensor([0, 3])).shape)
    (2, 3)
    """

    __constants__ = """
        num_embeddings embedding_dim max_norm norm_type scale_grad_by_freq mode sparse include_last_offset padding_idx""".split()

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        mode="mean",
        sparse=False,
        _weight=None,
        include_last_offset=False,
        padding_idx=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.max_norm = num_embeddings, embedding_dim, max_norm
        self.norm_type, self.scale_grad_by_freq = norm_type, scale_grad_by_freq
        self.padding_idx = _positive_index(padding_idx, num_embeddings)
        self.weight = _table(num_embeddings, embedding_dim, _weight, True, device, dtype)
        if _weight is None:
            self.reset_parameters()
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset

    reset_parameters = Embedding.reset_parameters
    _fill_padding_idx_with_zero = Embedding._fill_padding_idx_with_zero

    def forward(self, input, offsets=None, per_sample_weights=None):
        settings = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse
        return F.embedding_bag(input, self.weight, offsets, *settings, per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self):
        return (
            f"{self.num_embeddings}, {self.embedding_dim}"
            + _unusual(self, max_norm=None, norm_type=2, scale_grad_by_freq=False)
            + f", mode={self.mode!r}"
            + _unusual(self, padding_idx=None)
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings,
        freeze=True,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        mode="mean",
        sparse=False,
        include_last_offset=False,
        padding_idx=None,
    ):
        """An embedding bag with the given table."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        settings = max_norm, norm_type, scale_grad_by_freq, mode, sparse
        bag = cls(*embeddings.shape, *settings, embeddings, include_last_offset, padding_idx)
        bag.weight.requires_grad = not freeze
        return bag
