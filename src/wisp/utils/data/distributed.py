"""The sampler that divides a dataset among the processes of a distributed run."""

import math

import wisp
from wisp.utils.data.sampler import Sampler


class DistributedSampler(Sampler):
    """The share of one rank: every rank visits other samples. Call `set_epoch` for another order in each epoch.

    >>> from wisp.utils.data import DistributedSampler
    >>> list(DistributedSampler(range(6), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 5]
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            if not wisp.distributed.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = wisp.distributed.get_world_size() if num_replicas is None else num_replicas
            rank = wisp.distributed.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch = 0
        self.drop_last, self.shuffle, self.seed = drop_last, shuffle, seed
        if drop_last and len(dataset) % num_replicas != 0:
            self.num_samples = math.ceil((len(dataset) - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(len(dataset) / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        if self.shuffle:
            generator = wisp.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = wisp.randperm(len(self.dataset), generator=generator).tolist()
        else:
            indices = list(range(len(self.dataset)))
        missing = self.total_size - len(indices)
        if missing > 0:  # all ranks get equally many: some samples are visited twice
            indices += (indices * math.ceil(missing / len(indices)))[:missing]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """The order of each epoch follows from `seed + epoch`."""
        self.epoch = epoch
