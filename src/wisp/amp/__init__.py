"""Mixed precision: `autocast` chooses the dtype operator by operator, `GradScaler` keeps small gradients alive."""

from wisp import _reference
from wisp.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from wisp.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_reference.attach(__name__, globals())
