"""Custom datasets, samplers, collate functions and transforms."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Optional

import wisp as torch
from wisp.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, Subset, WeightedRandomSampler, get_worker_info

Sample = tuple[torch.Tensor, int]


class FaceLandmarksDataset(Dataset[Sample]):
    def __init__(self, count: int, transform: Optional[Callable[[torch.Tensor], torch.Tensor]] = None) -> None:
        self.images = torch.arange(count * 4.0).view(count, 2, 2)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, idx: int) -> Sample:
        image = self.images[idx]
        if self.transform:
            image = self.transform(image)
        return image, int(image.sum().item()) % 3


class Counting(IterableDataset[int]):
    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if info is None:
            return iter(range(self.start, self.end))
        per_worker = int(math.ceil((self.end - self.start) / float(info.num_workers)))
        first = self.start + info.id * per_worker
        return iter(range(first, min(first + per_worker, self.end)))


class EveryOther(Sampler[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        yield from range(0, self.length, 2)

    def __len__(self) -> int:
        return (self.length + 1) // 2


def collate(batch: list[Sample]) -> dict[str, torch.Tensor]:
    images, labels = zip(*batch)
    return {"images": torch.stack(images), "labels": torch.tensor(labels)}


def normalised(image: torch.Tensor) -> torch.Tensor:
    return (image - image.mean()) / (image.std() + 1e-6)


def seed_worker(worker_id: int) -> None:
    torch.manual_seed(torch.initial_seed() % 2**32 + worker_id)


def main() -> None:
    dataset = FaceLandmarksDataset(10, transform=normalised)
    image, label = dataset[3]
    print(len(dataset), image.shape, label + 1)
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=0, collate_fn=collate, drop_last=True)
    for i_batch, sample_batched in enumerate(loader):
        print(i_batch, sample_batched["images"].size(), sample_batched["labels"].size())
    print(len(loader), [x for x in DataLoader(Counting(3, 7), batch_size=None)])
    weights = [1.0] * len(dataset)
    sampler = WeightedRandomSampler(weights, num_samples=4, replacement=True)
    g = torch.Generator()
    g.manual_seed(0)
    more: DataLoader[Any] = DataLoader(dataset, batch_size=2, sampler=sampler, worker_init_fn=seed_worker, generator=g, pin_memory=False)
    images, labels = next(iter(more))
    print(images.shape, labels.tolist())
    batches = BatchSampler(EveryOther(10), batch_size=2, drop_last=False)
    for images, _ in DataLoader(dataset, batch_sampler=batches):
        assert images.ndim == 3
    subset = Subset(dataset, [1, 2])
    both = dataset + dataset
    print(len(subset), subset[0][1], len(both))


if __name__ == "__main__":
    main()
