"""Rprop: resilient backpropagation, which looks at the signs of gradients only."""

import wisp
from wisp.optim._functional import rprop  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_lr, _new_step, _number, _rule, _settings, _zeros


class Rprop(Optimizer):
    """Rprop: each element has a step length that grows while its gradient keeps its sign and shrinks when it flips."""

    _step_is_tensor = True

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, _settings(locals()))

    def _init_state(self, state, p, group):
        lr = _number(group["lr"])
        state["step"] = _new_step(p, group)
        state["prev"] = _zeros(p)
        state["step_size"] = wisp.full_like(p, complex(lr, lr) if p.is_complex() else lr, requires_grad=False)

    def _update(self, group):
        params, grads, states = self._gather(group)
        step, _ = _rule("rprop", group, params)
        before, lengths, steps = [s["prev"] for s in states], [s["step_size"] for s in states], [s["step"] for s in states]
        (smallest, largest), (shrink, grow) = group["step_sizes"], group["etas"]
        step(params, grads, before, lengths, steps, smallest, largest, shrink, grow, group["maximize"])
