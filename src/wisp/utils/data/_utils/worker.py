"""What a worker knows about itself, under PyTorch's path."""

from wisp.utils.data._worker_info import WorkerInfo, get_worker_info

__all__ = ["WorkerInfo", "get_worker_info"]
