"""Connectionist temporal classification: arguments and reductions of the loss."""

import itertools
import math

import wisp
from wisp import _core
from wisp._composites._autocast import in_float32
from wisp._composites._samples import by_samples

__all__ = ["ctc_loss"]


def _lengths(lengths, batch, name):
    if isinstance(lengths, wisp.Tensor) and (lengths.is_floating_point() or lengths.is_complex()):
        raise RuntimeError(f"{name} must be integral, got {lengths.dtype}")
    lengths = lengths.reshape(-1).tolist() if isinstance(lengths, wisp.Tensor) else [int(n) for n in lengths]
    if len(lengths) != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    return lengths


@by_samples
@in_float32
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The negative log probability of `targets` under all alignments with `log_probs` (T, N, C) or (T, C).

    `targets` is (N, S) padded, or all targets one after the other. With reduction="mean" each loss is divided by its
    target's length first.
    """
    if log_probs.dim() not in (2, 3):
        raise RuntimeError(f"Expected 3-dimensional tensor, but got {log_probs.dim()}-dimensional tensor for argument #1 'log_probs'")
    if log_probs.numel() == 0:
        raise RuntimeError(f"log_probs tensor must not be empty, got shape {list(log_probs.shape)}")
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.reshape(1, -1) if targets.dim() == 1 else targets
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    input_lengths = _lengths(input_lengths, batch, "input_lengths")
    target_lengths = _lengths(target_lengths, batch, "target_lengths")
    if batch and not 0 <= min(input_lengths) <= max(input_lengths) <= steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(input_lengths)}")
    longest = max(target_lengths, default=0)
    if batch and min(target_lengths) < 0:
        raise RuntimeError(f"Expected target_lengths to have value at least 0, but got value {min(target_lengths)}")
    if targets.dim() == 2 and (targets.shape[0] != batch or targets.shape[1] < longest):
        raise RuntimeError(
            f"Expected tensor to have size at least {longest} at dimension 1, but got size {list(targets.shape)} for argument #2 'targets'"
        )
    if targets.dim() == 2:
        starts = [i * targets.shape[1] for i in range(batch)]
    else:
        starts = [0, *itertools.accumulate(target_lengths)][:batch]
        if sum(target_lengths) > targets.numel():
            raise RuntimeError(f"Expected targets to have at least {sum(target_lengths)} elements, but got {targets.numel()}")
    where = log_probs.device
    lengths = wisp.tensor([input_lengths, target_lengths, starts], dtype=wisp.int64, device=where)
    losses = _core._ctc_losses(log_probs, targets.to(where, wisp.int64), lengths, longest, blank, zero_infinity)
    if zero_infinity:
        losses = wisp.where(losses == math.inf, 0.0, losses)
    if reduction == "mean":
        return (losses / lengths[1].clamp_min(1).to(losses.dtype)).mean()
    if reduction == "sum":
        return losses.sum()
    if reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if batched else losses.squeeze(0)
