"""Datasets, samplers and the loader."""

import collections
import doctest
import importlib

import numpy as np
import pytest
from squares import Squares

import wisp
from wisp.utils import data


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


@pytest.mark.parametrize(
    "make",
    [
        Squares,
        lambda: data.TensorDataset(wisp.zeros(10), wisp.arange(10)),
        lambda: data.Subset(Squares(20), list(range(10))),
        lambda: data.Subset(data.TensorDataset(wisp.zeros(20), wisp.arange(20)), range(10)),
    ],
)
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


class Wrapped:
    """A batch sampler around another, as libraries put one there that hands out a process's part."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.mark.parametrize("own", [True, False], ids=["of the loader, too", "of the sampler"])
def test_the_order_of_a_generator_is_that_of_the_sampler_alone(own):
    def seeded():
        return wisp.Generator().manual_seed(5)

    def orders(wrap):
        generator = seeded()
        sampler = data.RandomSampler(range(10), generator=generator)
        batches = data.BatchSampler(sampler, 3, False)
        options = {"batch_sampler": Wrapped(batches)} if wrap else {"batch_size": 3, "sampler": sampler}
        loader = data.DataLoader(Squares(10), generator=generator if own else None, **options)
        return [flat(loader) for _ in range(3)]

    assert orders(True) == orders(False)
    if not own:
        alone = data.RandomSampler(range(10), generator=seeded())
        assert orders(False) == [list(alone) for _ in range(3)]


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
    for nothing in ({"data_source": []}, {"data_source": [1], "num_samples": 0}):
        with pytest.raises(ValueError, match="num_samples should be a positive integer"):
            data.RandomSampler(**nothing)
    assert set(data.RandomSampler(range(5), replacement=True, num_samples=50)) <= set(range(5))
    assert set(data.WeightedRandomSampler([0, 1, 0], 9)) == {1}
    assert sorted(data.SubsetRandomSampler([3, 5])) == [3, 5]
    shares = [list(data.DistributedSampler(range(10), 3, rank)) for rank in range(3)]
    assert set(sum(shares, [])) == set(range(10)) and all(len(share) == 4 for share in shares)


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


def test_argument_errors():
    for options, text in [
        (dict(num_workers=-1), "non-negative"),
        (dict(shuffle=True, sampler=[1]), "mutually"),
        (dict(prefetch_factor=2), "prefetch_factor"),
        (dict(batch_size=0), "batch_size"),
        (dict(persistent_workers=True), "num_workers"),
        (dict(timeout=-1), "timeout"),
    ]:
        with pytest.raises(ValueError, match=text):
            data.DataLoader(Squares(), **options)
    loader = data.DataLoader(Squares(), batch_size=2)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 3
    with pytest.raises(ValueError, match="valid start method"):
        data.DataLoader(Squares(), num_workers=1, multiprocessing_context="teleport")


def test_collate_registry():
    from wisp.utils.data._utils.collate import collate, default_collate_fn_map

    class Thing:
        pass

    with pytest.raises(TypeError):
        data.default_collate([Thing()])
    default_collate_fn_map[Thing] = lambda batch, *, collate_fn_map: len(batch)
    try:
        assert data.default_collate([{"a": Thing()}] * 3) == {"a": 3}
    finally:
        del default_collate_fn_map[Thing]
    assert collate([(1, 2), (3, 4)], collate_fn_map={int: lambda batch, **_: max(batch)}) == [3, 4]


def test_rows_of_tensors():
    dataset = data.TensorDataset(wisp.arange(10), wisp.arange(20).reshape(10, 2))
    assert [row[0].item() for row in dataset.__getitems__([3, -1])] == [3, 9]
    loader = data.DataLoader(dataset, batch_sampler=[[0, -1], [2, 3]])
    assert [batch[0].tolist() for batch in loader] == [[0, 9], [2, 3]]
    with pytest.raises(IndexError):
        list(data.DataLoader(dataset, batch_sampler=[[10]]))


class Stopping(Squares):
    def __getitem__(self, i):
        if i == 3:
            raise StopIteration
        return i


def test_going_on_after_an_error():
    iterator = iter(data.DataLoader(Stopping(8), batch_size=2))
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iterator)
    assert next(iterator).tolist() == [4, 5] and len(iterator) == 4


@pytest.mark.parametrize(
    "name", ["../collect_env", "dataloader", "_collate", "_worker_info", "_one_copy", "dataset", "sampler", "distributed"]
)
def test_examples(name):
    module = importlib.import_module("wisp.utils." + (name[3:] if name.startswith("../") else "data." + name))
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_public_names_have_examples():
    for name in data.__all__:
        assert ">>>" in (getattr(data, name).__doc__ or ""), name


def test_packed_numbers():
    from wisp.utils.data._one_copy import PackedList

    for values in ([3, 1, 2], [0.5, 1.5], [2**70, 1], [1, 2.0], ["a", ("b", 1), {"c": [1]}]):
        packed = PackedList(values)
        assert list(packed) == values and packed[-1] == values[-1] and [type(v) for v in packed] == [type(v) for v in values]
        with pytest.raises(IndexError):
            packed[len(values)]
    assert np.asarray(PackedList([1, 2])).tolist() == [1, 2]


def test_loaders_of_streams_have_samplers_to_look_at():
    loader = data.DataLoader(Stream(5), batch_size=2, drop_last=True)
    assert type(loader.sampler).__name__ == "_InfiniteConstantSampler" and loader.batch_sampler.drop_last
    assert all(len(batch) == 2 for batch in loader)
    assert data.DataLoader(Stream(5), batch_size=None).batch_sampler is None


def test_a_loader_that_makes_itself_sets_what_a_loader_has():
    """As loaders of libraries that do not call our `__init__`, and those that change a loader by the name of its flag."""

    class Own(data.DataLoader):
        def __init__(self, dataset):
            self.dataset, self._iterator = dataset, None

        def __iter__(self):
            self._iterator = iter(self.dataset)
            return self._iterator

    assert [x for x in Own([1, 2])] == [1, 2] and Own([1])._iterator is None
    loader = data.DataLoader(range(4), batch_size=2)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 1
    loader._DataLoader__initialized = False
    loader.batch_sampler = [[0], [1]]
    loader._DataLoader__initialized = True
    assert [batch.tolist() for batch in loader] == [[0], [1]]
