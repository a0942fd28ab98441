"""Looking up rows of a table, and reducing bags of them."""

import warnings

import wisp
from wisp._composites._samples import by_samples

__all__ = ["embedding", "embedding_bag"]

_MODES = {"sum": 0, "mean": 1, "max": 2}


def _renormalize(weight, indices, max_norm, norm_type):
    """Scales the rows that are about to be used down to `max_norm`, in place."""
    weight = weight.detach()  # neither gradients nor tangents follow
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

    The row `padding_idx` gets no gradient. With `sparse` the gradient of `weight` is a sparse tensor of the rows used.

    >>> import wisp
    >>> wisp.nn.functional.embedding(wisp.tensor([1, 0]), wisp.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    padding = -1 if padding_idx is None else _padding(padding_idx, weight.shape[0])
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    if sparse and weight.requires_grad and wisp.is_grad_enabled():
        if scale_grad_by_freq:
            raise RuntimeError("embedding: scale_grad_by_freq is not supported with sparse gradients")
        return _rows(weight, input, padding)
    return wisp.embedding(weight, input, padding, scale_grad_by_freq)


def _row_gradient(weight_shape, index, values, padding):
    """The sparse gradient of a table: `values` for the rows `index`."""
    from wisp.sparse import sparse_coo_tensor

    if padding >= 0:
        kept = (index != padding).nonzero().squeeze(1)
        index, values = index[kept], values.index_select(0, kept)
    return sparse_coo_tensor(index.reshape(1, -1), values, weight_shape)


def _rows(weight, index, padding):
    """wisp.embedding with a sparse gradient."""
    from wisp.autograd import Function

    class Embedding(Function):
        @staticmethod
        def forward(ctx, weight, index):
            ctx.shape, ctx.index = tuple(weight.shape), index.detach().clone()
            return wisp.embedding(weight, index)

        @staticmethod
        def backward(ctx, grad):
            return _row_gradient(ctx.shape, ctx.index.reshape(-1).long(), grad.reshape(ctx.index.numel(), ctx.shape[1]), padding), None

    return Embedding.apply(weight, index)


def _bags_of_rows(weight, index, ends, samples, padding, mode):
    """The sum or mean of bags, with a sparse gradient of the table."""
    from wisp.autograd import Function

    class EmbeddingBag(Function):
        @staticmethod
        def forward(ctx, weight, index, ends, samples):
            ctx.save_for_backward(weight, index, ends, samples)
            return wisp._core._embedding_bag(weight, index, ends, samples, padding, mode, False)[0]

        @staticmethod
        def backward(ctx, grad):
            weight, index, ends, samples = ctx.saved_tensors
            index, ends = index[int(ends[0]) : int(ends[-1])].long(), ends - ends[0]
            bag = wisp.arange(ends.numel() - 1, device=ends.device).repeat_interleave(ends.diff())
            each, counts = grad.index_select(0, bag), (index != padding).to(grad.dtype)
            scale = counts if samples is None else samples * counts
            if mode == _MODES["mean"]:
                scale = scale / grad.new_zeros(ends.numel() - 1).index_add(0, bag, counts).clamp(min=1)[bag]
            table = _row_gradient(tuple(weight.shape), index, each * scale.unsqueeze(1), padding)
            if samples is None or not ctx.needs_input_grad[3]:
                return table, None, None, None
            return table, None, None, (each * weight.index_select(0, index)).sum(1) * counts

    return EmbeddingBag.apply(weight, index, ends, samples)


def _bags(input, offsets, include_last_offset):
    """Flat indices, and where each bag begins and the last one ends."""
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, "
                f"found offsets of type {type(offsets)}"
            )
        bags, length = input.shape
        return input.reshape(-1), wisp.arange(bags + 1, device=input.device) * length
    if input.dim() != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    offsets = offsets.to(wisp.int64)
    if offsets.numel() and int(offsets[0]) != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got "
            f"{int(offsets[0])}"
        )
    if offsets.numel() and int(offsets[-1]) > input.numel():
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length({input.numel()}), but got offsets[-1] of {int(offsets[-1])}"
        )
    if not include_last_offset:
        offsets = wisp.cat([offsets, wisp.tensor([input.numel()], device=offsets.device)])
    return input, offsets


@by_samples
def embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """The sum, mean or maximum of bags of rows of `weight`, without making the rows first."""
    if weight.dtype == wisp.int64 and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is deprecated, and "
            "should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        weight, input = input, weight
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({tuple(per_sample_weights.shape)}) is not None, then it must have the same shape "
            f"as the input ({tuple(input.shape)})"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{mode}'). "
            "Please open a feature request on GitHub."
        )
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise RuntimeError(f"padding_idx must be within the number of embeddings, {weight.shape[0]}, but got {padding_idx}")
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype and weight.device.type == "cpu":
        raise RuntimeError(
            f"expected per_sample_weights to have the same type as weight, but got {per_sample_weights.dtype} and {weight.dtype}"
        )
    padding = _padding(padding_idx, weight.shape[0])
    indices, ends = _bags(input, offsets, include_last_offset)
    if max_norm is not None:
        _renormalize(weight, indices, max_norm, norm_type)
    samples = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    if sparse and weight.requires_grad and wisp.is_grad_enabled():
        if scale_grad_by_freq:
            raise RuntimeError("embedding_bag: scale_grad_by_freq is not supported with sparse gradients")
        return _bags_of_rows(weight, indices, ends, samples, padding, _MODES[mode])
    return wisp._core._embedding_bag(weight, indices, ends, samples, padding, _MODES[mode], scale_grad_by_freq)[0]
