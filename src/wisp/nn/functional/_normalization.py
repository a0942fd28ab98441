"""Normalisations that are composed of others."""

import wisp
from wisp import _core
from wisp._composites.reduce import into

__all__ = ["instance_norm", "local_response_norm", "normalize"]

_ops = _core._operators["nn.functional"]


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05):
    """Normalises each channel of each sample of (N, C, …) by its own mean and variance."""
    if input.dim() < 2:
        raise RuntimeError(f"instance_norm: expected at least 2 dimensions, got {input.dim()}")
    if not use_input_stats:
        return _ops["batch_norm"](input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input[0, 0].numel() == 1 if input.numel() else False:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.size()}")
    batch, channels = input.shape[:2]
    if running_mean is None and running_var is None:
        return _ops["group_norm"](input, channels, weight, bias, eps)
    # Every channel of every sample as a channel of its own; the running statistics take the mean over the batch.
    means = None if running_mean is None else running_mean.repeat(batch)
    variances = None if running_var is None else running_var.repeat(batch)
    result = wisp.batch_norm(
        input.reshape(1, batch * channels, *input.shape[2:]),
        None if weight is None else weight.repeat(batch),
        None if bias is None else bias.repeat(batch),
        means,
        variances,
        True,
        momentum,
        eps,
        False,
    )
    with wisp.no_grad():
        for running, each in ((running_mean, means), (running_var, variances)):
            if running is not None:
                running.copy_(each.view(batch, channels).mean(0))
    return result.view(input.shape)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divides each element by a power of the mean square of its neighbours across `size` channels."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    if input.is_floating_point():  # the mean over channels is a pooling over planes of (channels, positions)
        planes = (input * input).flatten(2).unsqueeze(1)
        squares = wisp.nn.functional.avg_pool2d(planes, (size, 1), 1, (size // 2, 0))[:, 0, : input.shape[1]].reshape(input.shape)
        return input / (squares * alpha + k) ** beta
    before, after = size // 2, (size - 1) // 2
    pad = [wisp.zeros((input.shape[0], n, *input.shape[2:]), dtype=input.dtype, device=input.device) for n in (before, after)]
    sums = wisp.cat([pad[0], input * input, pad[1]], 1).unfold(1, size, 1).sum(-1)
    return input / (sums // size * alpha + k) ** beta


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """Divides by the p-norm along `dim`, or by `eps` where that is larger.

    >>> import wisp
    >>> wisp.nn.functional.normalize(wisp.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    result = input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    return into(out, result)
