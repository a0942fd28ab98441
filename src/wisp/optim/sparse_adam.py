"""SparseAdam: Adam for sparse gradients, which touches only the rows that have one."""

import math

import wisp
from wisp.optim.optimizer import Optimizer, _check_betas, _number, _zeros


class SparseAdam(Optimizer):
    """Adam on sparse gradients (of an embedding, say): moments and parameters change only where a gradient is."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        if isinstance(lr, wisp.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        _check_betas(betas)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        places = [(p, [i, j]) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        sparse = [place for p, place in places if p.is_sparse]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        complex_ = [place for p, place in places if p.is_complex()]
        if complex_:
            raise ValueError(f"Complex params at indices {complex_}: SparseAdam does not support complex parameters")

    def _init_state(self, state, p, group):
        state["step"] = 0
        state["exp_avg"] = _zeros(p)
        state["exp_avg_sq"] = _zeros(p)

    @wisp.no_grad()
    def _update(self, group):
        params, grads, states = self._gather(group)
        lr, (beta1, beta2) = _number(group["lr"]), group["betas"]
        for p, g, state in zip(params, grads, states):
            if not g.is_sparse:
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            state["step"] += 1
            g = g.coalesce()  # the update is not linear, so each place must occur once
            if g._values().numel() == 0:
                continue
            where = tuple(g._indices())
            values = -g._values() if group.get("maximize", False) else g._values()
            m, v = state["exp_avg"], state["exp_avg_sq"]
            new_m = m[where] + (values - m[where]) * (1 - beta1)
            new_v = v[where] + (values * values - v[where]) * (1 - beta2)
            m[where], v[where] = new_m, new_v
            t = state["step"]
            rate = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            p[where] -= rate * new_m / (new_v.sqrt() + group["eps"])
