"""Dropout of whole channels, and dropout that keeps mean and variance."""

import math
import warnings

import wisp

__all__ = ["alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_ALPHA = 1.7580993408473766  # minus the limit of selu


def _check(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _channel_mask(input, p):
    """(batch, channels, 1, …): 0 or 1 / (1 - p)."""
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    shape = (*input.shape[:2], *[1] * (input.dim() - 2))
    return wisp.dropout(wisp.ones(shape, dtype=input.dtype, device=input.device), p, True)


def _feature_dropout(input, p, training, inplace, batched=True):
    if not batched and not inplace:
        return _feature_dropout(input.unsqueeze(0), p, training, False).squeeze(0)
    if not training or p == 0:
        return input
    mask = _channel_mask(input, p) if batched else _channel_mask(input.unsqueeze(0), p).squeeze(0)
    return input.mul_(mask) if inplace else input * mask


def _warn_of_dims(name, input, dims):
    if input.dim() not in (dims + 1, dims + 2):
        warnings.warn(
            f"{name}: Received a {input.dim()}-D input to {name}, which is deprecated and will result in an error in a future "
            f"release. To retain the behavior and silence this warning, please use dropout instead. Note that {name} exists to "
            f"provide channel-wise dropout on inputs with {dims} spatial dimensions, a channel dimension, and an optional batch "
            f"dimension (i.e. {dims + 1}D or {dims + 2}D inputs).",
            stacklevel=3,
        )


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels of (N, C, L) or (C, L)."""
    _check(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d exists to "
            "provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch "
            "dimension (i.e. 2D or 3D inputs)."
        )
    return _feature_dropout(input, p, training, inplace, batched=input.dim() == 3)


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels of (N, C, H, W)."""
    _check(p)
    _warn_of_dims("dropout2d", input, 2)
    if input.dim() == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input "
            "is interpreted as shape (N, C, L), where C is the channel dim. This behavior will change in a future release to "
            "interpret the input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout "
            "behavior, please switch to using dropout1d instead.",
            stacklevel=2,
        )
    return _feature_dropout(input, p, training, inplace)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _check(p)
    _warn_of_dims("dropout3d", input, 3)
    return _feature_dropout(input, p, training, inplace, batched=input.dim() != 4)


def _alpha(input, kept, p, inplace):
    """kept: 1 where an element stays, 0 where it becomes the limit of selu."""
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    scale = 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p))
    shift = (kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p
    if inplace:
        return input.mul_(kept * scale).add_(shift)
    return input * (kept * scale) + shift


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout for networks with selu: the mean and the variance of the input are kept."""
    _check(p)
    if not training or p == 0:
        return input
    kept = (wisp.dropout(wisp.ones(input.shape, dtype=input.dtype, device=input.device), p, True) != 0).to(input.dtype)
    return _alpha(input, kept, p, inplace)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels."""
    _check(p)
    if not training or p == 0:
        return input
    return _alpha(input, (_channel_mask(input, p) != 0).to(input.dtype), p, inplace)
