"""Adagrad: rates that shrink with the sum of squared gradients."""

import wisp
from wisp import _core
from wisp._tensor import has_shells
from wisp.optim import _formulas
from wisp.optim._functional import adagrad  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_fused, _check_lr, _check_nonnegative, _number, _scalar, _settings


class Adagrad(Optimizer):
    """Adagrad: each element's step is divided by the root of the sum of its squared gradients."""

    _step_is_tensor = True

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        _check_lr(lr)
        _check_nonnegative(lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, eps=eps)
        _check_fused(fused, foreach, differentiable)
        super().__init__(params, _settings(locals()))
        for group in self.param_groups:  # here the state exists from the beginning
            for p in group["params"]:
                self._begin(p, group)

    def _init_state(self, state, p, group):
        start = self.defaults["initial_accumulator_value"]
        state["step"] = _scalar(0.0)
        state["sum"] = wisp.full_like(p.detach(), complex(start, start) if p.is_complex() else start)

    def share_memory(self):
        """Move the state into memory that processes share."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _update(self, group):
        params, grads, states = self._gather(group)
        if any(g.is_sparse for g in grads):
            _sparse_step(group, [entry for entry in zip(params, grads, states) if entry[1].is_sparse])
            params, grads, states = ([x[i] for x in zip(params, grads, states) if not x[1].is_sparse] for i in range(3))
        step = _formulas.adagrad_step if group["differentiable"] else _core._adagrad_step
        if has_shells(params):
            step = wisp.no_grad()(_formulas.adagrad_step)
        sums, steps = [s["sum"] for s in states], [s["step"] for s in states]
        lr, lr_decay, weight_decay = _number(group["lr"]), group["lr_decay"], group["weight_decay"]
        step(params, grads, sums, steps, lr, lr_decay, weight_decay, group["eps"], group["maximize"])


@wisp.no_grad()
def _sparse_step(group, entries):
    """The step of parameters with sparse gradients: only the rows that have one change."""
    if group["weight_decay"] != 0:
        raise RuntimeError("weight_decay option is not compatible with sparse gradients")
    for p, g, state in entries:
        state["step"] += 1
        rate = _number(group["lr"]) / (1 + (state["step"].item() - 1) * group["lr_decay"])
        g = (-g if group["maximize"] else g).coalesce()  # the update is not linear, so each place must occur once
        values = g._values()
        state["sum"].add_(g._with(values * values))
        root = state["sum"].sparse_mask(g)._values().sqrt().add_(group["eps"])
        p.add_(g._with(values / root), alpha=-rate)
