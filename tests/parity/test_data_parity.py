"""Data loading against PyTorch's: collating, samplers, splitting, batches and the errors of wrong arguments."""

import collections
import importlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import wisp  # noqa: E402

Point = collections.namedtuple("Point", "x y")


class UserList(collections.UserList):
    pass


SAMPLES = [
    lambda t: [1, 2],
    lambda t: [1.5, 2],
    lambda t: [True, False],
    lambda t: ["a", "b"],
    lambda t: [b"a", b"b"],
    lambda t: [t.ones(2), t.zeros(2)],
    lambda t: [(1, t.ones(1)), (2, t.zeros(1))],
    lambda t: [[1, 2], [3, 4]],
    lambda t: [{"a": 1, "b": [1.0, "x"]}, {"a": 2, "b": [2.0, "y"]}],
    lambda t: [Point(1, 2.0), Point(3, 4.0)],
    lambda t: [np.ones(3, np.float32), np.zeros(3, np.float32)],
    lambda t: [np.float32(1), np.float32(2)],
    lambda t: [np.int8(1), np.int8(2)],
    lambda t: [np.array(1), np.array(2)],
    lambda t: [(), ()],
    lambda t: [{}, {}],
    lambda t: [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    lambda t: [UserList([1]), UserList([2])],
    lambda t: [range(3), range(3)],
    lambda t: [t.tensor(1), t.tensor(2)],
    # errors
    lambda t: [(1, 2), (1,)],
    lambda t: [Ellipsis, Ellipsis],
    lambda t: [None, None],
    lambda t: [t.ones(2), t.ones(3)],
    lambda t: [np.array(["a"]), np.array(["b"])],
    lambda t: [{"a": 1}, {"b": 1}],
    lambda t: [{1}, {2}],
    lambda t: [],
]


def plain(value):
    """A value in which tensors are (dtype, list)."""
    if isinstance(value, (wisp.Tensor, torch.Tensor)):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, collections.UserList)):
        return type(value).__name__, [plain(entry) for entry in value]
    return value


def outcome(call):
    try:
        return plain(call())
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("number", range(len(SAMPLES)))
@pytest.mark.parametrize("name", ["default_collate", "default_convert"])
def test_collate(name, number):
    ours, theirs = (
        outcome(lambda t=t: getattr(importlib.import_module(t.__name__ + ".utils.data"), name)(SAMPLES[number](t))) for t in (wisp, torch)
    )
    assert ours == theirs


CALLS = {
    "batches": lambda d, t: [
        list(d.BatchSampler(range(n), size, drop)) for n in (0, 1, 7, 8) for size in (1, 3, 8) for drop in (True, False)
    ],
    "lengths": lambda d, t: [
        len(d.DataLoader(range(n), size, drop_last=drop)) for n in (0, 1, 7) for size in (1, 3) for drop in (True, False)
    ],
    "distributed": lambda d, t: [
        list(d.DistributedSampler(range(n), ranks, rank, shuffle=False, drop_last=drop))
        for n in (1, 2, 7, 12)
        for ranks in (1, 3, 5)
        for rank in range(ranks)
        for drop in (True, False)
    ],
    "splits": lambda d, t: [
        [len(part) for part in d.random_split(range(n), fractions)]
        for n in (10, 7, 3)
        for fractions in ([0.5, 0.5], [0.7, 0.2, 0.1], [1.0], [0.34, 0.33, 0.33])
    ],
    "concat": lambda d, t: [d.ConcatDataset([range(3), range(10, 12)])[i] for i in (0, 2, 3, 4, -1, -5)],
    "stack": lambda d, t: [d.StackDataset(range(3), "abc")[1], d.StackDataset(a=range(3), b="abc").__getitems__([0, 2])],
    "subset": lambda d, t: [d.Subset(range(10), [3, 4])[1], d.Subset(range(10), [3, 4]).__getitems__([0, 1])],
    "loader": lambda d, t: list(d.DataLoader(range(7), 3)),
    "unbatched": lambda d, t: list(d.DataLoader(range(3), None)),
    "rows": lambda d, t: list(d.DataLoader(d.TensorDataset(t.arange(5), t.ones(5, 2)), 2)),
    "arrays": lambda d, t: list(d.DataLoader(np.arange(6.0).reshape(3, 2), 2)),
    "dicts": lambda d, t: list(d.DataLoader([{"a": i, "b": "x"} for i in range(3)], 2)),
    "batch_sampler": lambda d, t: list(d.DataLoader(range(9), batch_sampler=[[1, 8], [0]])),
    "sampler": lambda d, t: list(d.DataLoader(range(9), 2, sampler=[4, 2, 1])),
    "workers": lambda d, t: list(d.DataLoader(range(9), 2, num_workers=2)),
}
ERRORS = {
    "num_workers": lambda d: d.DataLoader(range(3), num_workers=-1),
    "timeout": lambda d: d.DataLoader(range(3), timeout=-1),
    "prefetch": lambda d: d.DataLoader(range(3), prefetch_factor=2),
    "batch_size": lambda d: d.DataLoader(range(3), batch_size=0),
    "batch_size float": lambda d: d.DataLoader(range(3), batch_size=1.5),
    "both": lambda d: d.DataLoader([1], shuffle=True, sampler=[0]),
    "batch_sampler": lambda d: d.DataLoader([1], batch_sampler=[[0]], batch_size=2),
    "drop": lambda d: d.DataLoader([1], batch_size=None, drop_last=True),
    "persistent": lambda d: d.DataLoader([1], persistent_workers=True),
    "context": lambda d: d.DataLoader([1], multiprocessing_context="fork"),
    "context name": lambda d: d.DataLoader([1], num_workers=1, multiprocessing_context="warp"),
    "context type": lambda d: d.DataLoader([1], num_workers=1, multiprocessing_context=3),
    "set": lambda d: setattr(d.DataLoader([1]), "batch_size", 2),
    "sizes": lambda d: d.StackDataset(range(2), range(3)),
    "stack both": lambda d: d.StackDataset(range(2), a=range(2)),
    "stack none": lambda d: d.StackDataset(),
    "concat none": lambda d: d.ConcatDataset([]),
    "concat index": lambda d: d.ConcatDataset([range(3)])[-4],
    "split sum": lambda d: d.random_split(range(5), [2, 2]),
    "split fraction": lambda d: d.random_split(range(5), [1.5, -0.5]),
    "rank": lambda d: d.DistributedSampler(range(5), 2, 2),
    "replacement": lambda d: d.RandomSampler([1], replacement=3),
    "num_samples": lambda d: d.RandomSampler([1], num_samples=-1),
    "weights": lambda d: d.WeightedRandomSampler([[1.0]], 1),
    "weights n": lambda d: d.WeightedRandomSampler([1.0], 0),
    "drop_last": lambda d: d.BatchSampler([1], 1, 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    assert outcome(lambda: CALLS[name](wisp.utils.data, wisp)) == outcome(lambda: CALLS[name](torch.utils.data, torch))


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    ours, theirs = (outcome(lambda t=t: ERRORS[name](t.utils.data)) for t in (wisp, torch))
    assert isinstance(theirs, type) and ours is theirs, (ours, theirs)
