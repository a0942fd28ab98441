"""Looking up rows of a table, and reducing bags of them."""
import warnings

import wisp

__all__ = ["embedding", "embedding_bag"]

_MODES = {"sum": 0, "mean": 1, "max": 2}


def _renormalize(weight, indices, max_norm, norm_type):
    """Scales the rows that are about to be used down to `max_norm`, in place."""
    with wisp.no_grad():
        rows = indices.reshape(-1).unique()
        picked = weight[rows]
        norms = picked.norm(norm_type, 1, keepdim=True)
        weight[rows] = wisp.where(norms > max_norm, picked * (max_norm / (norms + 1e-7)), picked)


def _padding(padding_idx, rows):
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of `weight` by the indices in `input`.

    The row `padding_idx` gets no gradient. `sparse` is accepted; gradients are always dense.

    >>> import wisp
    >>> wisp.nn.functional.embedding(wisp.tensor([1, 0]), wisp.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    padding = -1 if padding_idx is None else _padding(padding_idx, weight.shape[0])
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    return wisp.embedding(weight, input, padding, scale_grad_by_freq)


def _bags(input, offsets, include_last_offset):
    """Flat indices, and where each bag begins and the last one ends."""
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
                             "fixed "
                             f"length sequences. However, found offsets of type {type(offsets)}")
        bags, length = input.shape
        return input.reshape(-1), wisp.arange(bags + 1) * length
    if input.dim() != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    offsets = offsets.to(wisp.int64)
    if offsets.numel() and int(offsets[0]) != 0:
        raise RuntimeError(f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
                           f"position "
                           f"0. However, got {int(offsets[0])}")
    if offsets.numel() and int(offsets[-1]) > input.numel():
        raise RuntimeError(f"offsets[-1] can not be greater than input's length({input.numel()}), but got offsets[-1] "
                           f"of "
                           f"{int(offsets[-1])}")
    if not include_last_offset:
        offsets = wisp.cat([offsets, wisp.tensor([input.numel()])])
    return input, offsets


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
                  sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """The sum, mean or maximum of bags of rows of `weight`, without making the rows first."""
    if weight.dtype == wisp.int64 and input.is_floating_point():
        warnings.warn("Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, "
                      "...)` "
                      "is deprecated, and should now be `embedding_bag(input, weight, ...)`.", stacklevel=2)
        weight, input = input, weight
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(f"embedding_bag: If per_sample_weights ({tuple(per_sample_weights.shape)}) is not None, then "
                         f"it "
                         f"must have the same shape as the input ({tuple(input.shape)})")
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                                  "supported for "
                                  f"mode='sum' (got mode='{mode}'). Please open a feature request on GitHub.")
    padding = _padding(padding_idx, weight.shape[0])
    indices, ends = _bags(input, offsets, include_last_offset)
    if max_norm is not None:
        _renormalize(weight, indices, max_norm, norm_type)
    samples = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    return wisp._core._embedding_bag(weight, indices, ends, samples, padding, _MODES[mode], scale_grad_by_freq)[0]
