"""PyTorch's paths to the parts of the loader: `_utils.collate`, `_utils.worker`."""

from wisp.utils.data._utils import collate, worker

__all__ = ["collate", "worker"]
