"""Datasets, samplers and the loader."""
import collections
import os
import random

import numpy as np
import pytest

import wisp
from wisp.utils import data


class Squares(data.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return wisp.tensor([float(i), float(i * i)]), i


class Stream(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = data.get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        return iter(range(first, self.n, step))


def flat(loader):
    return [value for batch in loader for value in (batch[1] if isinstance(batch, list) else batch).tolist()]


def test_tensor_dataset_batches():
    x, y = wisp.arange(20).reshape(10, 2), wisp.arange(10)
    loader = data.DataLoader(data.TensorDataset(x, y), batch_size=4)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert type(batches[0]) is list and batches[2][0].tolist() == [[16, 17], [18, 19]]
    batches[0][0].zero_()
    assert x[0].tolist() == [0, 1]  # batches are copies
    assert len(data.DataLoader(data.TensorDataset(x, y), batch_size=4, drop_last=True)) == 2


@pytest.mark.parametrize("make", [Squares, lambda: data.TensorDataset(wisp.zeros(10), wisp.arange(10)),
                                  lambda: data.Subset(Squares(20), list(range(10))),
                                  lambda: data.Subset(data.TensorDataset(wisp.zeros(20), wisp.arange(20)), range(10))])
def test_shuffle_visits_all_once(make):
    loader = data.DataLoader(make(), batch_size=3, shuffle=True)
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == list(range(10))
    generator = wisp.Generator()
    orders = []
    for _ in range(2):
        generator.manual_seed(3)
        orders.append(flat(data.DataLoader(make(), batch_size=3, shuffle=True, generator=generator)))
    assert orders[0] == orders[1]


def test_collate():
    Point = collections.namedtuple("Point", "x y")
    assert data.default_collate([1, 2]).tolist() == [1, 2]
    assert data.default_collate([1.5, 2.0]).dtype == wisp.float64
    assert data.default_collate(["a", "b"]) == ["a", "b"]
    joined = data.default_collate([{"a": np.ones(2), "b": Point(1, 2.0)}] * 3)
    assert tuple(joined["a"].shape) == (3, 2) and joined["b"].x.tolist() == [1, 1, 1]
    assert data.default_collate([(1, wisp.ones(2)), (2, wisp.ones(2))])[1].shape == (2, 2)
    assert data.default_collate([np.float32(1), np.float32(2)]).dtype == wisp.float32
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([(1, 2), (1,)])
    with pytest.raises(TypeError):
        data.default_collate([object()])


def test_custom_collate_gets_samples():
    loader = data.DataLoader(data.TensorDataset(wisp.arange(4)), batch_size=2, collate_fn=list)
    assert all(isinstance(sample, tuple) for batch in loader for sample in batch)


def test_samplers():
    assert list(data.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(list(data.RandomSampler(range(5), num_samples=12))) == 12
    assert set(data.RandomSampler(range(5), replacement=True, num_samples=50)) <= set(range(5))
    assert set(data.WeightedRandomSampler([0, 1, 0], 9)) == {1}
    assert sorted(data.SubsetRandomSampler([3, 5])) == [3, 5]
    shares = [list(data.DistributedSampler(range(10), 3, rank)) for rank in range(3)]
    assert set(sum(shares, [])) == set(range(10)) and all(len(share) == 4 for share in shares)
    assert list(data.RandomSampler([])) == []


def test_datasets():
    both = Squares(3) + Squares(2)
    assert len(both) == 5 and both[-1][1] == 1 and both[3][1] == 0
    stacked = data.StackDataset(a=Squares(3), b=range(3))
    assert stacked[2]["b"] == 2
    parts = data.random_split(range(10), [0.5, 0.3, 0.2])
    assert [len(part) for part in parts] == [5, 3, 2] and sorted(i for part in parts for i in part) == list(range(10))
    assert list(data.ChainDataset([Stream(2), Stream(1)])) == [0, 1, 0]


def test_stream():
    assert [batch.tolist() for batch in data.DataLoader(Stream(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert list(data.DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_resume(workers):
    loader = data.DataLoader(Squares(20), batch_size=3, shuffle=True, num_workers=workers)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    rest = [batch[1].tolist() for batch in iterator]
    again = data.DataLoader(Squares(20), batch_size=3, shuffle=True, num_workers=workers)
    again.load_state_dict(state)
    assert [batch[1].tolist() for batch in again] == rest
    assert len(flat(again)) == 20


@pytest.mark.parametrize("options", [dict(), dict(persistent_workers=True), dict(prefetch_factor=1)])
def test_workers(options):
    loader = data.DataLoader(Squares(17), batch_size=3, num_workers=2, **options)
    for _ in range(2):
        assert flat(loader) == list(range(17))
    for _ in loader:  # leaving early is fine
        break
    assert flat(loader) == list(range(17))


def test_worker_stream():
    assert sorted(flat(data.DataLoader(Stream(11), batch_size=2, num_workers=3))) == list(range(11))


class Random(Squares):
    def __getitem__(self, i):
        return wisp.tensor([random.random(), np.random.rand(), wisp.rand(()).item()], dtype=wisp.float64), i


def test_random_numbers_do_not_depend_on_the_number_of_workers():
    results = []
    for workers in (1, 3):
        generator = wisp.Generator()
        generator.manual_seed(1)
        loader = data.DataLoader(Random(8), batch_size=2, num_workers=workers, generator=generator)
        results.append(wisp.cat([batch[0] for batch in loader]).tolist())
    assert results[0] == results[1]
    assert len({tuple(row) for row in results[0]}) == 8


class Broken(Squares):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError("no such sample")
        if i == 7:
            os._exit(3)
        return super().__getitem__(i)


def test_worker_errors():
    with pytest.raises(KeyError, match="no such sample"):
        flat(data.DataLoader(Broken(6), batch_size=2, num_workers=2))
    with pytest.raises(RuntimeError, match=r"exit code 3 while it loaded \[7\]"):
        flat(data.DataLoader(Broken(), batch_sampler=[[1], [2], [7]], num_workers=1))


def test_argument_errors():
    for options, text in [(dict(num_workers=-1), "non-negative"), (dict(shuffle=True, sampler=[1]), "mutually"),
                          (dict(prefetch_factor=2), "prefetch_factor"), (dict(batch_size=0), "batch_size"),
                          (dict(persistent_workers=True), "num_workers"), (dict(timeout=-1), "timeout")]:
        with pytest.raises(ValueError, match=text):
            data.DataLoader(Squares(), **options)
