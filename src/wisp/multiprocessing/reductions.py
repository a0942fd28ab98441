"""How tensors are pickled for other processes, under PyTorch's path."""

from multiprocessing.reduction import ForkingPickler

from wisp.multiprocessing.shared import rebuild_tensor, reduce_storage, reduce_tensor

__all__ = ["ForkingPickler", "rebuild_tensor", "reduce_storage", "reduce_tensor"]
