"""Connectionist temporal classification: the forward algorithm over all samples at once."""

import math

import wisp
from wisp import _core
from wisp._composites._autocast import in_float32

__all__ = ["ctc_loss"]

_IMPOSSIBLE = -1e30  # a finite stand-in for log 0, which keeps gradients free of NaN


def _padded(targets, lengths, longest):
    """Targets as (batch, longest), also where they come one after the other."""
    if targets.dim() == 2:
        return targets[:, :longest]
    rows, start = [], 0
    for n in lengths.tolist():
        row = targets[start : start + n]
        rows.append(wisp.cat([row, wisp.zeros(longest - n, dtype=targets.dtype, device=targets.device)]))
        start += n
    return wisp.stack(rows)


def _lengths(lengths, batch, name):
    lengths = wisp.tensor(lengths) if not isinstance(lengths, wisp.Tensor) else lengths
    lengths = lengths.reshape(-1).to(wisp.int64)
    if lengths.numel() != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    return lengths


def _shifted(alpha, by):
    """alpha one or two states later; what comes in is impossible."""
    blank = wisp.full((alpha.shape[0], by), _IMPOSSIBLE, dtype=alpha.dtype, device=alpha.device)
    return wisp.cat([blank, alpha[:, :-by]], 1) if alpha.shape[1] > by else blank[:, : alpha.shape[1]]


@in_float32
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The negative log probability of `targets` under all alignments with `log_probs` (T, N, C) or (T, C).

    `targets` is (N, S) padded, or all targets one after the other. With reduction="mean" each loss is divided by its
    target's length first.
    """
    if log_probs.dim() not in (2, 3):
        raise RuntimeError(f"Expected 3-dimensional tensor, but got {log_probs.dim()}-dimensional tensor for argument #1 'log_probs'")
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.reshape(1, -1) if targets.dim() == 1 else targets
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    input_lengths = _lengths(input_lengths, batch, "input_lengths")
    target_lengths = _lengths(target_lengths, batch, "target_lengths")
    if batch and (int(input_lengths.max()) > steps or int(input_lengths.min()) < 0):
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {int(input_lengths.max())}")
    longest = int(target_lengths.max()) if batch else 0
    if batch and int(target_lengths.min()) < 0:
        raise RuntimeError(f"Expected target_lengths to have value at least 0, but got value {int(target_lengths.min())}")
    if targets.dim() == 2 and targets.shape[1] < longest:
        raise RuntimeError(
            f"Expected tensor to have size at least {longest} at dimension 1, but got size {list(targets.shape)} for argument #2 'targets'"
        )
    where = log_probs.device
    labels = _padded(targets.to(wisp.int64), target_lengths, longest).to(where)
    input_lengths, target_lengths = input_lengths.to(where), target_lengths.to(where)

    # States: blank, label 1, blank, label 2, …, blank. A label may follow another one directly if they differ.
    states = wisp.full((batch, 2 * longest + 1), blank, dtype=wisp.int64, device=where)
    if longest:
        states[:, 1::2] = labels
    jump = wisp.zeros(states.shape, dtype=wisp.bool, device=where)
    if longest > 1:
        jump[:, 3::2] = labels[:, 1:] != labels[:, :-1]

    def likelihoods(log_probs):
        impossible = wisp.full((batch, states.shape[1]), _IMPOSSIBLE, dtype=log_probs.dtype, device=log_probs.device)
        first = log_probs[0].gather(1, states)
        number = wisp.arange(states.shape[1], device=where)
        begins = (number < 2) & (number <= 2 * target_lengths.unsqueeze(1))
        alpha = wisp.where(begins, first, impossible)
        for t in range(1, steps):
            ways = wisp.stack([alpha, _shifted(alpha, 1), wisp.where(jump, _shifted(alpha, 2), impossible)])
            moved = (ways.logsumexp(0) + log_probs[t].gather(1, states)).clamp_min(_IMPOSSIBLE)
            alpha = wisp.where((input_lengths > t).unsqueeze(1), moved, alpha)

        last = (2 * target_lengths).unsqueeze(1)
        at_blank = alpha.gather(1, last).squeeze(1)
        at_label = alpha.gather(1, (last - 1).clamp_min(0)).squeeze(1)
        total = wisp.where(target_lengths > 0, wisp.logaddexp(at_blank, at_label), at_blank)
        empty = input_lengths == 0  # no step at all: certain for an empty target, impossible for any other
        total = wisp.where(empty, wisp.where(target_lengths == 0, wisp.zeros_like(total), impossible[:, 0]), total)
        lost = total <= _IMPOSSIBLE / 2
        # As in PyTorch, the gradient is that of logits behind a log_softmax: e^log_probs is added to it. Worth zero here.
        used = (wisp.arange(steps, device=where).unsqueeze(1) < input_lengths).unsqueeze(2)
        probabilities = wisp.where(used, log_probs.exp(), wisp.zeros_like(log_probs))
        losses = -total + (probabilities - probabilities.detach()).sum((0, 2))
        return wisp.where(lost, wisp.full_like(total, math.inf), losses)

    losses = _core._whole("CtcLossBackward0", likelihoods, log_probs)
    if zero_infinity:
        losses = wisp.where(losses == math.inf, 0.0, losses)
    if reduction == "mean":
        return (losses / target_lengths.clamp_min(1).to(losses.dtype)).mean()
    if reduction == "sum":
        return losses.sum()
    if reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if batched else losses.squeeze(0)
