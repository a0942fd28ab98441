"""ASGD: stochastic gradient descent with averaged iterates."""

from wisp.optim._functional import asgd  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_lr, _check_nonnegative, _new_step, _number, _rule, _settings, _zeros


class ASGD(Optimizer):
    """Averaged SGD: decaying steps, and in `state[p]["ax"]` the mean of the parameters after step `t0`."""

    _step_is_tensor = True
    _numbers = ("step", "eta", "mu")

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        _check_lr(lr)
        _check_nonnegative(weight_decay=weight_decay)
        super().__init__(params, _settings(locals()))

    def _init_state(self, state, p, group):
        state["step"] = _new_step(p, group)
        state["eta"] = _new_step(p, group) + _number(group["lr"])
        state["mu"] = _new_step(p, group) + 1
        state["ax"] = _zeros(p)

    def _update(self, group):
        params, grads, states = self._gather(group)
        step, lr = _rule("asgd", group, params)
        means, mus = [s["ax"] for s in states], [s["mu"] for s in states]
        etas, steps = [s["eta"] for s in states], [s["step"] for s in states]
        lambd, alpha, t0, decay = group["lambd"], group["alpha"], group["t0"], group["weight_decay"]
        step(params, grads, means, mus, etas, steps, lr, lambd, alpha, t0, decay, group["maximize"])
