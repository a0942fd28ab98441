"""Names for annotations: what a number, a size or a device may be."""

from collections.abc import Sequence
from typing import Any

import wisp
from wisp import SymBool, SymFloat, SymInt
from wisp.storage import TypedStorage, UntypedStorage

__all__ = ["Device", "FileLike", "IntLikeType", "Number", "Storage", "Tensor"]

Tensor = wisp.Tensor
Number = int | float | bool
Device = wisp.device | str | int | None
FileLike = Any
IntLikeType = int | SymInt
FloatLikeType = float | SymFloat
BoolLikeType = bool | SymBool
Storage = TypedStorage | UntypedStorage
_size = wisp.Size | list[int] | tuple[int, ...]
_int, _float, _bool = int, float, bool
_dtype, _device, _layout = wisp.dtype, wisp.device, wisp.layout
_TensorOrTensors = Tensor | Sequence[Tensor]
