"""Datasets, samplers and the loader that makes batches of them."""
from wisp.utils.data._collate import default_collate, default_convert
from wisp.utils.data._worker_info import get_worker_info
from wisp.utils.data.dataloader import DataLoader
from wisp.utils.data.dataset import (
                                     ChainDataset,
                                     ConcatDataset,
                                     Dataset,
                                     IterableDataset,
                                     StackDataset,
                                     Subset,
                                     TensorDataset,
                                     random_split,
)
from wisp.utils.data.distributed import DistributedSampler
from wisp.utils.data.sampler import (
                                     BatchSampler,
                                     RandomSampler,
                                     Sampler,
                                     SequentialSampler,
                                     SubsetRandomSampler,
                                     WeightedRandomSampler,
)

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
           "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
           "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "default_collate", "default_convert",
           "get_worker_info", "random_split"]
