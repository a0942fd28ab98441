"""Muon: momentum whose update is brought near to an orthogonal matrix."""

import math

import wisp
from wisp.optim.optimizer import Optimizer, _number, _settings, _zeros


def _orthogonalize(gradient, coefficients, steps, eps):
    """A matrix with the singular vectors of `gradient` and singular values near 1, by Newton-Schulz iteration.

    It is enough to do this in bfloat16: the iteration is not meant to converge, only to even out the values.
    """
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if gradient.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = gradient.size(0) > gradient.size(1)
    x = gradient.to(wisp.bfloat16)
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = wisp.addmm(x, wisp.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(Optimizer):
    """Muon, for the matrices of a network: momentum, made nearly orthogonal, with decoupled weight decay."""

    _needs_whole = True

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.7750, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        if isinstance(lr, wisp.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 <= momentum:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, _settings(locals()))
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def _init_state(self, state, p, group):
        state["momentum_buffer"] = _zeros(p)

    @wisp.no_grad()
    def _update(self, group):
        lr, momentum = _number(group["lr"]), group["momentum"]
        for p, g, state in zip(*self._gather(group)):
            if p.is_complex():
                raise RuntimeError("Muon does not support complex parameters")
            if g.is_sparse:
                raise RuntimeError("Muon does not support sparse gradients")
            buffer = state["momentum_buffer"]
            buffer.lerp_(g, 1 - momentum)
            update = g.lerp(buffer, momentum) if group["nesterov"] else buffer
            update = _orthogonalize(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
            rows, columns = p.shape
            if group["adjust_lr_fn"] == "match_rms_adamw":
                ratio = 0.2 * math.sqrt(max(rows, columns))
            else:
                ratio = math.sqrt(max(1, rows / columns))
            p.mul_(1 - lr * group["weight_decay"])
            p.sub_(update.to(p.dtype) * (lr * ratio))
