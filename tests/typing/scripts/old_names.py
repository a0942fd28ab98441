"""Names and habits of older programs: typed constructors, lists as datasets, callable objects, second names."""

from __future__ import annotations

from collections.abc import Callable

import wisp as torch
from wisp import nn, optim
from wisp.distributions import AffineTransform, ExpTransform
from wisp.optim.lr_scheduler import _LRScheduler  # pyright: ignore[reportPrivateUsage]
from wisp.profiler import ProfilerActivity, profile
from wisp.utils.data import DataLoader, Subset, random_split
from wisp.vision import transforms

place = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


class Halving(_LRScheduler):
    def get_lr(self) -> list[float]:
        return [lr * 0.5**self.last_epoch for lr in self.base_lrs]


class Summary(nn.Module):
    """An encoder that is used without its decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = nn.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.pair.encoder(x).mean(1))


def total(values: torch.Tensor | list[float]) -> float:
    if torch.is_tensor(values):
        return values.sum().item()
    return sum(values)


words = torch.LongTensor([[1, 2, 3]]).to(place)
scales = torch.FloatTensor(2, 2).fill_(0.5)
assert isinstance(words, torch.LongTensor) and words.sum().item() == 6 and scales.mean() == 0.5
assert total(scales) == 2 and total([1.0, 2.0]) == 3

look = transforms.Compose([transforms.CenterCrop(4), transforms.Normalize([0.5], [0.5])])
assert look(torch.ones(1, 6, 6)).shape == (1, 4, 4)
assert AffineTransform(1.0, 2.0)(ExpTransform()(torch.zeros(1))).item() == 3

samples = [(float(i), i % 2) for i in range(8)]
for numbers, labels in DataLoader(samples, batch_size=4):
    assert numbers.shape == labels.shape
for rows in DataLoader(torch.ones(4, 2), batch_size=2):
    assert rows.shape == (2, 2)
first, second = random_split(samples, [6, 2])
assert len(first) == 6 and len(Subset(samples, [0])) == 1 and len(second) == 2

bytes_of = {torch.float32: 4, torch.int64: 8}
where = {torch.device("cpu"): "here"}
assert bytes_of[words.dtype] == 8 and where[scales.device] and torch.__version__


class Frozen(nn.Module):
    """Takes part in what modules do to their tensors."""

    def __init__(self, size: int, device: str | None = None) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(size, device=device), requires_grad=False)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Frozen:
        return super()._apply(fn, recurse)


assert Frozen(3).double().table.dtype is torch.float64
model = Summary()
optimizer = optim.SGD(model.parameters(), lr=1.0)
schedule = Halving(optimizer)
with profile(activities=[ProfilerActivity.CPU]) as run:
    model(torch.ones(1, 3, 8)).sum().backward()
    optimizer.step()
    schedule.step()
assert schedule.get_last_lr() == [0.5]
assert max(event.count for event in run.key_averages()) > 0
