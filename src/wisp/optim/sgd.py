"""Stochastic gradient descent, with momentum."""

import wisp
from wisp import _core
from wisp._tensor import has_shells
from wisp.optim import _formulas
from wisp.optim._functional import sgd  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_fused, _check_lr, _check_nonnegative, _number, _settings


class SGD(Optimizer):
    """Stochastic gradient descent: p -= lr * g, optionally with (Nesterov) momentum and weight decay."""

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        _check_lr(lr)
        _check_nonnegative(momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        _check_fused(fused, foreach, differentiable)
        super().__init__(params, _settings(locals()))

    def _update(self, group):
        params = [p for p in group["params"] if p.grad is not None]
        grads = [p.grad for p in params]
        momentum, states, buffers = group["momentum"], [], []
        if momentum != 0:
            states = [self.state[p] for p in params]
            buffers = [state.get("momentum_buffer") for state in states]
        new = [state for state, buffer in zip(states, buffers) if buffer is None]
        lr, dampening, decay = group["lr"], group["dampening"], group["weight_decay"]
        nesterov, up = group["nesterov"], group["maximize"]
        if group["differentiable"] or any(g.is_sparse for g in grads) or has_shells(params):
            step = _formulas.sgd_step if group["differentiable"] else wisp.no_grad()(_formulas.sgd_step)
            step(params, grads, buffers, lr, momentum, dampening, decay, nesterov, up)
        else:
            _core._sgd_step(params, grads, buffers, _number(lr), _number(momentum), _number(dampening), _number(decay), nesterov, up)
        if new:  # the step has made their buffers
            for state, buffer in zip(states, buffers):
                state["momentum_buffer"] = buffer
