"""Adamax: Adam with the infinity norm."""

from wisp.optim._functional import adamax  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_betas, _check_lr, _check_nonnegative, _new_step, _rule, _settings, _zeros


class Adamax(Optimizer):
    """Adamax: Adam with a decaying maximum of the gradients in place of their mean square."""

    _step_is_tensor = True

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        _check_lr(lr)
        _check_nonnegative(eps=eps)
        _check_betas(betas)
        _check_nonnegative(weight_decay=weight_decay)
        super().__init__(params, _settings(locals()))

    def _init_state(self, state, p, group):
        state["step"] = _new_step(p, group)
        state["exp_avg"] = _zeros(p)
        state["exp_inf"] = _zeros(p)

    def _update(self, group):
        params, grads, states = self._gather(group)
        step, lr = _rule("adamax", group, params)
        means, largest, steps = [s["exp_avg"] for s in states], [s["exp_inf"] for s in states], [s["step"] for s in states]
        (beta1, beta2), eps, decay = group["betas"], group["eps"], group["weight_decay"]
        step(params, grads, means, largest, steps, lr, beta1, beta2, eps, decay, group["maximize"])
