"""AdamW: Adam with weight decay that does not pass through the moments."""

from wisp.optim._functional import adamw  # noqa: F401 (PyTorch has it here)
from wisp.optim.adam import Adam
from wisp.optim.optimizer import _settings


class AdamW(Adam):
    """Adam with decoupled weight decay: the parameters shrink by lr * weight_decay before each step."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        super().__init__(params, **_settings(locals()), decoupled_weight_decay=True)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
