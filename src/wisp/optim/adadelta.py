"""Adadelta: steps in the units of the parameters, without a global rate."""

from wisp.optim._functional import adadelta  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_lr, _check_nonnegative, _new_step, _rule, _settings, _zeros


class Adadelta(Optimizer):
    """Adadelta: the ratio of the mean squares of past steps and of gradients sets the length of a step."""

    _step_is_tensor = True

    def __init__(
        self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False, differentiable=False
    ):
        _check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        _check_nonnegative(eps=eps, weight_decay=weight_decay)
        super().__init__(params, _settings(locals()))

    def _init_state(self, state, p, group):
        state["step"] = _new_step(p, group)
        state["square_avg"] = _zeros(p)
        state["acc_delta"] = _zeros(p)

    def _update(self, group):
        params, grads, states = self._gather(group)
        step, lr = _rule("adadelta", group, params)
        squares, deltas, steps = [s["square_avg"] for s in states], [s["acc_delta"] for s in states], [s["step"] for s in states]
        step(params, grads, squares, deltas, steps, lr, group["rho"], group["eps"], group["weight_decay"], group["maximize"])
