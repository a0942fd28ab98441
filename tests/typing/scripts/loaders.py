"""Datasets, samplers and collate functions of one's own, packed sequences, and what a loader is asked."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import wisp as torch
from wisp import Tensor, nn
from wisp.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence
from wisp.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)


@dataclass
class Batch:
    tokens: Tensor
    lengths: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.lengths, self.labels.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        self.tokens = self.tokens.pin_memory()
        return self


class Sentences(Dataset[tuple[Tensor, int]]):
    def __init__(self, count: int, vocabulary: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(2, 9, (count,), generator=generator).tolist()
        self.rows = [torch.randint(1, vocabulary, (n,), generator=generator) for n in self.lengths]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row = self.rows[index]
        return row, int(row.sum().item()) % 2


class ByLength(Sampler[list[int]]):
    """Batches of sentences of about one length, in random order."""

    def __init__(self, lengths: Sequence[int], batch_size: int) -> None:
        self.order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        batches = [self.order[i : i + self.batch_size] for i in range(0, len(self.order), self.batch_size)]
        random.shuffle(batches)
        yield from batches

    def __len__(self) -> int:
        return (len(self.order) + self.batch_size - 1) // self.batch_size


class Stream(IterableDataset[Tensor]):
    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end

    def __iter__(self) -> Iterator[Tensor]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.end, step):
            yield torch.tensor([i], dtype=torch.float32)


def collate(samples: list[tuple[Tensor, int]]) -> Batch:
    rows = [row for row, _ in samples]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = pad_sequence(rows, batch_first=True, padding_value=0)
    return Batch(tokens, lengths, torch.tensor([label for _, label in samples], dtype=torch.long))


class Classifier(nn.Module):
    def __init__(self, vocabulary: int, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.norm = nn.LayerNorm(2 * width)
        self.output = nn.Linear(2 * width, 2)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        assert isinstance(packed, PackedSequence)
        states, (h, c) = self.lstm(packed)
        padded, sizes = pad_packed_sequence(states, batch_first=True)
        assert padded.size(0) == len(sizes) == h.size(1) == c.shape[1]
        mask = torch.arange(padded.size(1))[None, :, None] < lengths[:, None, None]
        return self.output(self.norm((padded * mask).sum(1) / lengths[:, None]))


def seed_worker(worker_id: int) -> None:
    random.seed(torch.initial_seed() % 2**32 + worker_id)


def main() -> None:
    torch.manual_seed(0)
    random.seed(0)
    data = Sentences(24, vocabulary=20)
    train, held_out = random_split(data, [18, 6], generator=torch.Generator().manual_seed(1))
    assert isinstance(train, Subset) and len(held_out) == 6
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(data, batch_sampler=ByLength(data.lengths, 4), collate_fn=collate)
    model = Classifier(20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01, betas=(0.9, 0.95))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    total, right = 0, 0
    for batch in loader:
        batch = batch.to(device)
        logits = model(batch.tokens, batch.lengths)
        loss = criterion(logits, batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += batch.labels.numel()
        right += int((logits.argmax(dim=1) == batch.labels).sum().item())
    assert total == len(data) and len(loader) == 6
    print(f"accuracy {right / total:.2f}")

    weights = [2.0 if label else 1.0 for _, label in (data[i] for i in range(len(data)))]
    balanced = WeightedRandomSampler(weights, num_samples=8, replacement=True)
    shuffled = RandomSampler(data, generator=torch.Generator().manual_seed(2))
    for sampler in (balanced, shuffled):
        indices = list(sampler)
        assert all(isinstance(i, int) for i in indices)
    grouped = BatchSampler(shuffled, batch_size=5, drop_last=True)
    assert [len(group) for group in grouped] == [5] * 4

    features, targets = torch.randn(10, 3), torch.arange(10)
    both = ConcatDataset([TensorDataset(features, targets), TensorDataset(features * 2, targets)])
    for x, y in DataLoader(both, batch_size=4, shuffle=True, drop_last=True, worker_init_fn=seed_worker):
        assert x.shape == (4, 3) and y.dtype == torch.int64
    seen = sorted(int(v) for batch in DataLoader(Stream(7), batch_size=2) for v in batch.flatten().tolist())
    assert seen == list(range(7))


if __name__ == "__main__":
    main()
