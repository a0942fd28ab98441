"""The scaler under the name of its module."""

from wisp.amp.grad_scaler import OptState
from wisp.cuda.amp import GradScaler

__all__ = ["GradScaler", "OptState"]
