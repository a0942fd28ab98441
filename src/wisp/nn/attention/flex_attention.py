"""Attention whose scores a function changes: biases, masks and windows written in Python.

The functions get whole tensors of indices that broadcast against the scores, so they must be written with operators,
as PyTorch's must.
"""

import inspect
import math
from typing import NamedTuple

import wisp
from wisp.nn.attention._block_mask import _DEFAULT_SPARSE_BLOCK_SIZE, BlockMask, noop_mask, of_mask  # noqa: F401

__all__ = """
    AuxOutput AuxRequest BlockMask and_masks create_block_mask create_mask flex_attention noop_mask or_masks""".split()


class AuxRequest(NamedTuple):
    """What `flex_attention(..., return_aux=...)` should return beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for: the logarithm of the sum of exponentials, and the largest score of each query."""

    lse: object = None
    max_scores: object = None


def _indices(batch, heads, queries, keys, device):
    shape = lambda count, dim: wisp.arange(count, device=device).reshape([count if d == dim else 1 for d in range(4)])
    return shape(batch, 0), shape(heads, 1), shape(queries, 2), shape(keys, 3)


def and_masks(*mask_mods):
    """What all of the functions let through."""

    def combined(b, h, q, kv):
        result = mask_mods[0](b, h, q, kv)
        for mask in mask_mods[1:]:
            result = result & mask(b, h, q, kv)
        return result

    return combined


def or_masks(*mask_mods):
    """What any of the functions lets through."""

    def combined(b, h, q, kv):
        result = mask_mods[0](b, h, q, kv)
        for mask in mask_mods[1:]:
            result = result | mask(b, h, q, kv)
        return result

    return combined


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device="cpu"):
    """The boolean mask [B, H, Q, KV] that a function of (batch, head, query, key) describes, or one that changes scores.

    >>> from wisp.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, kv: q >= kv, 1, 1, 2, 2).int().tolist()
    [[[[1, 0], [1, 1]]]]
    """
    size = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    places = _indices(*size, device)
    needed = [one for one in inspect.signature(mod_fn).parameters.values() if one.default is one.empty]
    if len(needed) == 5:
        return ~mod_fn(wisp.zeros(size, device=device), *places).isneginf().expand(size)
    return mod_fn(*places).expand(size)


def create_block_mask(
    mask_mod, B, H, Q_LEN, KV_LEN, device="cpu", BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False, separate_full_blocks=True
):
    """A mask for `flex_attention`, from a function of (batch, head, query, key).

    >>> from wisp.nn.attention.flex_attention import create_block_mask
    >>> create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 512, 512).sparsity()
    37.5
    """
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return of_mask(create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device), mask_mod, size, separate_full_blocks)


def flex_attention(
    query,
    key,
    value,
    score_mod=None,
    block_mask=None,
    scale=None,
    enable_gqa=False,
    return_lse=False,
    kernel_options=None,
    *,
    return_aux=None,
):
    """Attention with scores changed by `score_mod(score, batch, head, query, key)` and hidden by `block_mask`.

    >>> import wisp
    >>> from wisp.nn.attention.flex_attention import flex_attention
    >>> x = wisp.ones(1, 1, 3, 2)
    >>> flex_attention(x, x, x, lambda score, b, h, q, kv: score + (q - kv)).shape
    torch.Size([1, 1, 3, 2])
    """
    if query.shape[1] != key.shape[1]:
        if not enable_gqa:
            raise ValueError(
                f"Expect query and key/value to have the same number of heads but got Hq={query.shape[1]} and "
                f"Hkv={key.shape[1]}. Try setting enable_gqa=True for GQA."
            )
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    batch, heads, queries = query.shape[:3]
    if block_mask is not None:
        block_mask.check((queries, key.shape[2]))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    places = _indices(batch, heads, queries, key.shape[2], query.device)
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.seen(places), -math.inf)
    weights = scores.softmax(-1)
    if block_mask is not None:  # a query that sees nothing gives zeros
        weights = weights.nan_to_num(0.0)
    result = weights @ value
    if return_aux is not None:
        return result, AuxOutput(scores.logsumexp(-1) if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)
    return (result, scores.logsumexp(-1)) if return_lse else result
