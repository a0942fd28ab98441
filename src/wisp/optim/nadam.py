"""NAdam: Adam with Nesterov momentum."""

from wisp.optim._functional import nadam  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_betas, _check_lr, _check_nonnegative, _new_step, _rule, _scalar, _settings, _zeros


class NAdam(Optimizer):
    """NAdam: Adam that looks ahead along its momentum, whose weight grows over time (`momentum_decay`)."""

    _step_is_tensor = True
    _numbers = ("step", "mu_product")

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
        params, grads, states = self._gather(group)
        step, lr = _rule("nadam", group, params)
        means, squares, steps = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states], [s["step"] for s in states]
        products, (beta1, beta2), eps = [s["mu_product"] for s in states], group["betas"], group["eps"]
        decay, momentum_decay, decoupled = group["weight_decay"], group["momentum_decay"], group["decoupled_weight_decay"]
        step(params, grads, means, squares, products, steps, lr, beta1, beta2, eps, decay, momentum_decay, decoupled, group["maximize"])
