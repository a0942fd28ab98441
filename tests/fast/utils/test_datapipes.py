"""DataPipes: every step, lengths, workers and errors."""

import doctest
import pickle

import pytest

import wisp
from wisp.utils.data import (
    DataChunk,
    DataLoader,
    IterDataPipe,
    MapDataPipe,
    functional_datapipe,
    guaranteed_datapipes_determinism,
    non_deterministic,
)
from wisp.utils.data.datapipes import _decorator, datapipe
from wisp.utils.data.datapipes.iter import FileLister, FileOpener, IterableWrapper, Sampler, StreamReader
from wisp.utils.data.datapipes.map import SequenceWrapper


def add_one(x):
    return x + 1


def count(n=6):
    return IterableWrapper(range(n))


def test_examples():
    for module in (datapipe, _decorator):
        result = doctest.testmod(module)
        assert result.failed == 0 and result.attempted > 0


def test_steps_of_streams():
    assert list(count().map(add_one).filter(lambda x: x % 2 == 0)) == [2, 4, 6]
    batches = list(count().batch(4))
    assert batches == [[0, 1, 2, 3], [4, 5]] and isinstance(batches[0], DataChunk) and len(count().batch(4, drop_last=True)) == 1
    assert list(count().batch(2).batch(2).unbatch(-1)) == list(range(6)) and list(count().batch(2).unbatch()) == list(range(6))
    assert (
        list(count(2).concat(count(3))) == [0, 1, 0, 1, 2]
        and list(count(2).zip(count(3))) == [(0, 0), (1, 1)]
        and list(count(2).mux(count(3))) == [0, 0, 1, 1]
    )
    assert list(count().groupby(lambda x: x % 2)) == [[0, 2, 4], [1, 3, 5]] and list(
        count().groupby(lambda x: x % 3, group_size=2, keep_key=True)
    )[0] == (0, [0, 3])
    assert count().batch(3).collate().__iter__().__next__().tolist() == [0, 1, 2] and list(Sampler(count(3))) == [0, 1, 2]
    pairs = IterableWrapper([(1, 10), (2, 20)])
    assert list(pairs.map(add_one, input_col=1)) == [(1, 11), (2, 21)] and list(pairs.map(lambda a, b: a + b, input_col=[0, 1])) == [
        (11,),
        (22,),
    ]
    assert list(pairs.map(add_one, input_col=0, output_col=-1)) == [(1, 10, 2), (2, 20, 3)] and list(
        pairs.filter(lambda x: x > 1, input_col=0)
    ) == [(2, 20)]


def test_shuffling():
    wisp.manual_seed(0)
    pipe = count(50).shuffle()
    first, second = list(pipe), list(pipe)
    assert sorted(first) == sorted(second) == list(range(50)) and first != second and first != list(range(50))
    assert list(pipe.set_seed(3)) == list(pipe.set_seed(3)) and list(pipe.set_shuffle(False)) == list(range(50)) and len(pipe) == 50
    assert sorted(count(50).shuffle(buffer_size=3)) == list(range(50))


def test_branches():
    one, two = count(4).fork(2)
    assert list(one.zip(two.map(add_one))) == [(0, 1), (1, 2), (2, 3), (3, 4)] and list(one) == [0, 1, 2, 3]
    even, odd = count(6).demux(2, lambda x: x % 2)
    assert (list(even), list(odd)) == ([0, 2, 4], [1, 3, 5])
    one, two = count(10).fork(2, buffer_size=3)
    with pytest.raises(BufferError, match="buffer_size"):
        list(one)


def test_datasets_by_index():
    pipe = SequenceWrapper([1, 2, 3])
    assert (
        [pipe.map(add_one)[i] for i in range(3)] == [2, 3, 4]
        and pipe.batch(2)[1] == [3]
        and len(pipe.concat(pipe)) == 6
        and pipe.concat(pipe)[4] == 2
    )
    assert pipe.zip(pipe)[0] == (1, 1) and sorted(pipe.shuffle()) == [1, 2, 3] and isinstance(pipe, MapDataPipe)
    with pytest.raises(IndexError):
        pipe.batch(2)[2]


def test_files(tmp_path):
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "b.bin").write_bytes(b"12345")
    assert [p[-5:] for p in FileLister(str(tmp_path), "*.txt")] == ["a.txt"]
    assert [part for _, part in StreamReader(FileOpener(FileLister(str(tmp_path), "*.bin"), "b"), chunk=2)] == [b"12", b"34", b"5"]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader(workers):
    wisp.manual_seed(0)
    pipe = count(20).shuffle().sharding_filter().map(add_one)
    found = [x for batch in DataLoader(pipe, batch_size=4, num_workers=workers, shuffle=True) for x in batch.tolist()]
    assert sorted(found) == list(range(1, 21)) and found != list(range(1, 21))
    plain = DataLoader(count(20).shuffle().sharding_filter(), batch_size=None, shuffle=False, num_workers=workers)
    assert sorted(plain) == list(range(20))
    assert sorted(x for batch in DataLoader(count(6), batch_size=2, shuffle=True) for x in batch.tolist()) == list(range(6))


def test_pickles_and_errors():
    pipe = pickle.loads(pickle.dumps(count(3).map(add_one).batch(2)))
    assert list(pipe) == [[1, 2], [3]] and isinstance(pipe, IterDataPipe)
    with pytest.raises(AttributeError, match="no_such_step"):
        count().no_such_step()
    with pytest.raises(Exception, match="already taken"):
        functional_datapipe("map")(type("Other", (IterDataPipe,), {}))
    with pytest.raises(TypeError, match="IterDataPipe or MapDataPipe"):
        functional_datapipe("x")(int)
    with pytest.raises(ValueError, match="Boolean"):
        list(count().filter(add_one))

    @non_deterministic
    class Any(IterDataPipe):
        def __iter__(self):
            return iter([1])

    assert list(Any()) == [1]
    with guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-deterministic"):
        Any()


def test_a_stream_has_one_iterator():
    pipe = count(4)
    first = iter(pipe)
    assert next(first) == 0 and list(pipe) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="has been invalidated"):
        next(first)
    one, two = pipe.fork(2)
    assert list(one) == list(two) == [0, 1, 2, 3] and list(one) == [0, 1, 2, 3]
    with pytest.warns(UserWarning, match="not exhausted"):
        next(iter(one))


def test_steps_refuse_what_cannot_work():
    pipe = count(3)
    with pytest.raises(TypeError, match="IterDataPipe"):
        pipe.zip([1, 2])
    with pytest.raises(ValueError, match="2 non-default"):
        pipe.map(divmod_like, input_col=0)
    with pytest.raises(TypeError, match="valid length"):
        len(pipe.filter(bool).batch(2))
    with pytest.warns(UserWarning, match="Lambda function"):
        pipe.map(lambda x: x)


def divmod_like(a, b):
    return a // b, a % b


def test_shares_of_ranks_and_workers():
    from wisp.utils.data.datapipes.datapipe import SHARDING_PRIORITIES, apply_sharding, get_all_graph_pipes, traverse

    pipe = count(12).sharding_filter()
    pipe.apply_sharding(2, 1, SHARDING_PRIORITIES.DISTRIBUTED)
    pipe.apply_sharding(3, 0, SHARDING_PRIORITIES.MULTIPROCESSING)
    assert list(pipe) == [3, 9] and len(pipe) == 2
    assert len(get_all_graph_pipes(traverse(pipe.batch(2)))) == 3
    with pytest.raises(RuntimeError, match="twice"):
        apply_sharding(count(3).sharding_filter().sharding_filter(), 2, 0)
