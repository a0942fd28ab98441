"""Adafactor: adaptive rates with second moments kept as rows and columns."""

import wisp
from wisp.optim.optimizer import Optimizer, _number, _scalar, _settings, _zeros


class Adafactor(Optimizer):
    """Adafactor: like RMSprop, but for a matrix only the means of squares along rows and columns are kept."""

    _step_is_tensor = True
    _needs_whole = True

    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None, maximize=False):
        if isinstance(lr, wisp.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not 0.0 <= eps[0]:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not 0.0 <= eps[1]:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, _settings(locals()))

    def _init_state(self, state, p, group):
        state["step"] = _scalar(0.0)
        if p.grad.is_sparse:
            raise RuntimeError("Adafactor does not support sparse gradients")
        if p.dim() > 1:
            state["row_var"] = p.grad.new_zeros((*p.shape[:-1], 1))
            state["col_var"] = p.grad.new_zeros((*p.shape[:-2], 1, p.shape[-1]))
        else:
            state["variance"] = _zeros(p)

    @wisp.no_grad()
    def _update(self, group):
        params, grads, states = self._gather(group)
        lr, (eps1, eps2) = _number(group["lr"]), group["eps"]
        for p, g, state in zip(params, grads, states):
            if p.is_complex():
                raise RuntimeError("Adafactor does not support complex parameters")
            g = -g if group["maximize"] else g
            least = wisp.finfo(p.dtype).eps if eps1 is None else eps1
            state["step"] += 1
            t = state["step"].item()
            weight = t ** group["beta2_decay"]
            size = p.norm().item() / max(1, p.numel()) ** 0.5
            rate = max(eps2, size) * min(lr, 1 / t**0.5)
            if group["weight_decay"] != 0:
                p.mul_(1 - lr * group["weight_decay"])
            if g.dim() > 1:
                rows, columns = state["row_var"], state["col_var"]
                rows.lerp_(g.square().mean(-1, keepdim=True), weight)
                columns.lerp_(g.square().mean(-2, keepdim=True), weight)
                variance = (rows @ columns) / rows.mean(-2, keepdim=True).clamp(min=least)
            else:
                state["variance"].lerp_(g * g, weight)
                variance = state["variance"]
            update = variance.clamp(min=least * least).rsqrt() * g
            clip = max(1.0, update.norm().item() / (max(1, update.numel()) ** 0.5 * group["d"]))
            p.sub_(update * (rate / clip))
