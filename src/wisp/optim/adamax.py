"""Adamax: Adam with the infinity norm."""

from wisp.optim.optimizer import Optimizer, _check_betas, _check_lr, _check_nonnegative, _new_step, _settings, _zeros


class Adamax(Optimizer):
    """Adamax: Adam with a decaying maximum of the gradients in place of their mean square."""

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
        settings = *group["betas"], group["eps"], group["weight_decay"], group["maximize"]
        self._step_by("adamax", group, ("exp_avg", "exp_inf"), settings)
