"""RAdam: Adam that rectifies the variance of its adaptive rate."""

from wisp.optim._functional import radam  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_betas, _check_lr, _check_nonnegative, _new_step, _rule, _settings, _zeros


class RAdam(Optimizer):
    """RAdam: plain momentum while the mean square is unreliable, rectified Adam after that."""

    _step_is_tensor = True

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
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
        _check_nonnegative(weight_decay=weight_decay)
        super().__init__(params, _settings(locals()))

    def _init_state(self, state, p, group):
        state["step"] = _new_step(p, group)
        state["exp_avg"] = _zeros(p)
        state["exp_avg_sq"] = _zeros(p)

    def _update(self, group):
        params, grads, states = self._gather(group)
        step, lr = _rule("radam", group, params)
        means, squares, steps = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states], [s["step"] for s in states]
        (beta1, beta2), eps, decay, decoupled = group["betas"], group["eps"], group["weight_decay"], group["decoupled_weight_decay"]
        step(params, grads, means, squares, steps, lr, beta1, beta2, eps, decay, decoupled, group["maximize"])
