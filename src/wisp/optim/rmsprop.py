"""RMSprop: gradients divided by the root of their mean square."""

from wisp.optim._functional import rmsprop  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_lr, _check_nonnegative, _new_step, _rule, _settings, _zeros


class RMSprop(Optimizer):
    """RMSprop: gradients divided by the root of their mean square (or variance, if `centered`)."""

    _step_is_tensor = True

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        _check_nonnegative(eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, _settings(locals()))

    def _init_state(self, state, p, group):
        state["step"] = _new_step(p, group)
        state["square_avg"] = _zeros(p)
        if group["momentum"] > 0:
            state["momentum_buffer"] = _zeros(p)
        if group["centered"]:
            state["grad_avg"] = _zeros(p)

    def _update(self, group):
        params, grads, states = self._gather(group)
        momentum, centered = group["momentum"], group["centered"]
        step, lr = _rule("rmsprop", group, params)
        squares, steps = [s["square_avg"] for s in states], [s["step"] for s in states]
        means = [s["grad_avg"] for s in states] if centered else []
        buffers = [s["momentum_buffer"] for s in states] if momentum > 0 else []
        alpha, eps, decay, up = group["alpha"], group["eps"], group["weight_decay"], group["maximize"]
        step(params, grads, squares, means, buffers, steps, lr, alpha, eps, decay, momentum, centered, up)
