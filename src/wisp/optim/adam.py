"""Adam and its decoupled-decay form AdamW."""

import wisp
from wisp import _core
from wisp._tensor import has_shells
from wisp.optim import _formulas
from wisp.optim._functional import adam  # noqa: F401 (PyTorch has it here)
from wisp.optim.optimizer import Optimizer, _check_betas, _check_fused, _check_lr, _check_nonnegative, _new_step, _number, _settings, _zeros


class Adam(Optimizer):
    """Adam: steps along the mean of the gradients, scaled by the root of their mean square."""

    _step_is_tensor = True

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
    ):
        settings = _settings(locals()) | {"betas": tuple(betas)}
        if isinstance(lr, wisp.Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        _check_lr(lr)
        _check_nonnegative(eps=eps)
        _check_betas(betas)
        _check_nonnegative(weight_decay=weight_decay)
        kinds = [isinstance(beta, wisp.Tensor) for beta in betas]
        if not (all(kinds) or all(isinstance(beta, float) for beta in betas)):
            raise ValueError("betas must be either both floats or both Tensors")
        for i in (0, 1):
            if kinds[i] and foreach and not capturable:
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
            if kinds[i] and betas[i].numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        _check_fused(fused, foreach, differentiable)
        super().__init__(params, settings)

    def _init_state(self, state, p, group):
        state["step"] = _new_step(p, group)
        state["exp_avg"] = _zeros(p)
        state["exp_avg_sq"] = _zeros(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = _zeros(p)

    def _update(self, group):
        params, grads, states = self._gather(group)
        beta1, beta2 = group["betas"]
        amsgrad, lr = group["amsgrad"], group["lr"]
        differentiable = group["differentiable"]
        if group["foreach"] and isinstance(lr, wisp.Tensor) and not group["capturable"]:
            raise RuntimeError("lr as a Tensor is not supported for capturable=False and foreach=True")
        step = _formulas.adam_step if differentiable else _core._adam_step
        if has_shells(params):
            step = wisp.no_grad()(_formulas.adam_step)
        # A learning rate on the GPU is read there, at every replay of a captured graph.
        follows = {"lr_tensor": lr} if group["capturable"] and isinstance(lr, wisp.Tensor) and lr.is_cuda and not differentiable else {}
        means, squares = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
        largest, steps = [s["max_exp_avg_sq"] for s in states] if amsgrad else [], [s["step"] for s in states]
        rate = lr if differentiable else 0.0 if follows else _number(lr)
        if not differentiable:
            beta1, beta2 = _number(beta1), _number(beta2)
        eps, decay, up, decoupled = group["eps"], group["weight_decay"], group["maximize"], group["decoupled_weight_decay"]
        step(params, grads, means, squares, largest, steps, rate, beta1, beta2, eps, decay, amsgrad, up, decoupled, **follows)
