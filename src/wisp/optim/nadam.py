"""NAdam: Adam with Nesterov momentum."""

from wisp.optim.optimizer import Optimizer, _check_betas, _check_lr, _check_nonnegative, _new_step, _scalar, _settings, _zeros


class NAdam(Optimizer):
    """NAdam: Adam that looks ahead along its momentum, whose weight grows over time (`momentum_decay`)."""

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        _check_lr(lr)
        _check_nonnegative(eps=eps)
        _check_betas(betas)
        _check_nonnegative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, _settings(locals()))

    def __setstate__(self, state):
        super().__setstate__(state)
        for values in self.state.values():
            if isinstance(values.get("mu_product"), (int, float)):
                values["mu_product"] = _scalar(values["mu_product"])

    def _init_state(self, state, p, group):
        state["step"] = _new_step(p, group)
        state["mu_product"] = _new_step(p, group) + 1
        state["exp_avg"] = _zeros(p)
        state["exp_avg_sq"] = _zeros(p)

    def _update(self, group):
        decays = group["weight_decay"], group["momentum_decay"], group["decoupled_weight_decay"]
        settings = *group["betas"], group["eps"], *decays, group["maximize"]
        self._step_by("nadam", group, ("exp_avg", "exp_avg_sq", "mu_product"), settings)
