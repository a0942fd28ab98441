"""Datasets, samplers and the loader that makes batches of them."""

from wisp import _reference
from wisp.utils.data._collate import default_collate, default_convert
from wisp.utils.data._worker_info import get_worker_info
from wisp.utils.data.dataloader import DataLoader, _DatasetKind  # noqa: F401
from wisp.utils.data.dataset import ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset, random_split
from wisp.utils.data.distributed import DistributedSampler
from wisp.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]

_DATAPIPES = {
    **dict.fromkeys("DFIterDataPipe DataChunk IterDataPipe MapDataPipe".split(), "datapipe"),
    **dict.fromkeys("argument_validation functional_datapipe guaranteed_datapipes_determinism".split(), "_decorator"),
    **dict.fromkeys("non_deterministic runtime_validation runtime_validation_disabled".split(), "_decorator"),
}
__all__ += list(_DATAPIPES)


def __getattr__(name):
    import importlib

    if name in _DATAPIPES:
        return getattr(importlib.import_module(f"wisp.utils.data.datapipes.{_DATAPIPES[name]}"), name)
    if name == "datapipes":
        return importlib.import_module("wisp.utils.data.datapipes")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
