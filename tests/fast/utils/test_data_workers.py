"""What a DataLoader promises: the same batches for any number of workers, exact resuming, clear reports of what goes
wrong, nothing left behind."""

import functools
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from squares import Squares

import wisp
from wisp.utils import data
from wisp.utils.data import _one_copy, _workers

seeded = functools.partial(data.DataLoader, sample_seeds=True)  # numbers that do not depend on the workers, without them too


def traces():
    """Shared memory of this process and files of shared memory by name."""
    files = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
    with open("/proc/self/maps") as maps:
        return (
            sum("memfd:wisp" in file for file in files),
            sum("memfd:wisp" in line for line in maps),
            {name for name in os.listdir("/dev/shm") if "wisp" in name},
        )


@pytest.fixture(autouse=True)
def nothing_left():
    gc.collect()
    before = traces()
    yield
    gc.collect()
    assert not multiprocessing.active_children(), "a worker is left"
    assert traces() == before, "shared memory is left"


class Random(Squares):
    def __getitem__(self, i):
        numbers = [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), wisp.rand(()).item()]
        return wisp.tensor(numbers, dtype=wisp.float64), np.full(300, i)


class Many(Random):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Stream(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = data.get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        for i in range(first, self.n, step):
            yield i, np.random.randn(), random.gauss(0, 1), wisp.rand(())


def flat(loader):
    return [value for batch in loader for value in (batch[1] if isinstance(batch, list) else batch).tolist()]


def epoch(loader):
    return [[part.tolist() for part in batch] for batch in loader]


def mixing(batch):
    return [data.default_collate(batch)[0], wisp.rand(3)]


# ---------------------------------------------------------------- the same for any number of workers
@pytest.mark.parametrize(
    "make",
    [
        lambda n, g: seeded(Random(23), 3, shuffle=True, num_workers=n, generator=g),
        lambda n, g: seeded(Random(23), 3, drop_last=True, num_workers=n, generator=g),
        lambda n, g: seeded(Random(23), 3, shuffle=True, num_workers=n, generator=g, collate_fn=mixing),
        lambda n, g: seeded(Many(23), 3, shuffle=True, num_workers=n, generator=g),
        lambda n, g: seeded(data.Subset(Random(30), list(range(3, 26))), 4, shuffle=True, num_workers=n, generator=g),
        lambda n, g: seeded(data.ConcatDataset([Random(9), Random(5)]), 4, shuffle=True, num_workers=n, generator=g),
        lambda n, g: seeded(Random(23), 3, sampler=data.WeightedRandomSampler(range(23), 20), num_workers=n, generator=g),
        lambda n, g: seeded(Random(9), None, num_workers=n, generator=g),
        lambda n, g: seeded(data.TensorDataset(wisp.arange(50), wisp.randn(50, 40)), 7, shuffle=True, num_workers=n, generator=g),
    ],
    ids=["shuffle", "drop_last", "collate", "getitems", "subset", "concat", "weighted", "unbatched", "tensors"],
)
def test_workers_change_nothing(make):
    wisp.manual_seed(5)
    state = wisp.get_rng_state()
    results = []
    for workers in (0, 1, 4):
        wisp.set_rng_state(state)
        loader = make(workers, wisp.Generator().manual_seed(1))
        own = random.getstate()[1][:5], np.random.get_state()[2:]
        results.append([epoch(loader), epoch(loader)])
        assert own == (random.getstate()[1][:5], np.random.get_state()[2:])  # the caller's states are as they were
    assert results[0] == results[1] == results[2]
    assert results[0][0] != results[0][1] or isinstance(loader.dataset, data.TensorDataset)


def test_samples_differ():
    numbers = np.concatenate([batch[0].numpy() for batch in data.DataLoader(Random(200), 10)])
    assert all(len(set(column)) == 200 for column in numbers.T)


def test_stream_with_one_worker():
    def run(workers):
        loader = seeded(Stream(20), 3, num_workers=workers, generator=wisp.Generator().manual_seed(2))
        return [epoch(loader) for _ in range(2)]

    assert run(0) == run(1)
    assert run(3) == run(3)
    assert sorted(i for batch in run(3)[0] for i in batch[0]) == list(range(20))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("options", [dict(), dict(persistent_workers=True, prefetch_factor=1)])
def test_start_methods(method, options):
    loader = seeded(
        Random(11), 3, shuffle=True, num_workers=2, multiprocessing_context=method, generator=wisp.Generator().manual_seed(1), **options
    )
    here = seeded(Random(11), 3, shuffle=True, generator=wisp.Generator().manual_seed(1))
    assert epoch(loader) == epoch(here)
    if not options and method != "fork":
        return  # starting such workers takes long
    for _ in loader:  # leaving early is fine
        break
    for _ in here:
        break
    assert epoch(loader) == epoch(here)


def test_a_newer_iteration_takes_persistent_workers():
    loader = data.DataLoader(Squares(20), 2, num_workers=2, persistent_workers=True)
    first = iter(loader)
    next(first)
    assert flat(loader) == list(range(20))
    with pytest.raises(RuntimeError, match="newer iteration"):
        next(first)


def test_persistent_workers_end_by_the_iterator_that_is_kept():
    """Libraries end them by `loader._iterator`, as PyTorch has it; the next epoch has new ones."""
    loader = data.DataLoader(Squares(8), 2, num_workers=2, persistent_workers=True)
    assert loader._iterator is None
    for end in (lambda: loader._iterator._shutdown_workers(), lambda: setattr(loader, "_iterator", None)):
        assert flat(loader) == list(range(8))
        workers = loader._iterator._workers
        assert len(workers) == 2 and all(worker.is_alive() for worker in workers)
        end()
        assert loader._iterator is None and not any(worker.is_alive() for worker in workers)


class Six(data.IterableDataset):
    def __iter__(self):
        return iter(range(6))


def test_epochs_of_the_same_seed_are_two_epochs():
    """A stream begins anew, and what is left of an epoch that was not finished is not taken for the next one's."""
    loader = data.DataLoader(Six(), None, num_workers=1, persistent_workers=True)
    wisp.manual_seed(3)
    assert list(loader) == list(range(6))
    for early in (True, False):
        wisp.manual_seed(3)
        if early:
            next(iter(loader))
        else:
            assert list(loader) == list(range(6))


def test_persistent_workers_end_in_peace_with_their_loader(monkeypatch):
    monkeypatch.setattr(_workers, "GRACE_SECONDS", 60)
    loader = data.DataLoader(Squares(8), 2, num_workers=2, persistent_workers=True)
    flat(loader)
    workers = loader._iterator._workers
    del loader
    gc.collect()
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_two_iterations_at_once():
    loader = data.DataLoader(Squares(12), 2, num_workers=2)
    assert [a[1].tolist() == b[1].tolist() for a, b in zip(loader, loader)] == [True] * 6


# ---------------------------------------------------------------- what travels
class Things(Squares):
    def __getitem__(self, i):
        return {
            "image": wisp.full((3, 8, 8), float(i)).to(wisp.bfloat16),
            "name": f"n{i}",
            "array": np.full((600,), i),
            "empty": wisp.empty(0, 2),
            "flag": i % 2 == 0,
            "gradient": wisp.ones(2, requires_grad=True),
        }


def last_channels(batch):
    joined = {
        key: data.default_collate([sample[key].detach() if key == "gradient" else sample[key] for sample in batch]) for key in batch[0]
    }
    joined["image"] = joined["image"].to(memory_format=wisp.channels_last)
    joined["raw"] = np.arange(2000).reshape(2, 1000)
    joined["gradient"].requires_grad_()
    return joined


def test_everything_arrives():
    for batch in data.DataLoader(Things(6), 2, num_workers=2, collate_fn=last_channels):
        assert batch["image"].dtype == wisp.bfloat16 and batch["image"].is_contiguous(memory_format=wisp.channels_last)
        i = batch["image"][0, 0, 0, 0].item()
        assert batch["name"] == [f"n{int(i)}", f"n{int(i) + 1}"] and batch["array"][1, 599].item() == i + 1
        assert batch["empty"].shape == (2, 0, 2) and batch["raw"].sum() == 1999000 and batch["gradient"].requires_grad
        version = batch["array"]._version
        batch["image"].add_(1)
        batch["raw"][0, 0] = 5
        assert batch["array"]._version == version  # tensors of a batch have memory of their own


def test_batches_that_are_kept_stay_as_they_are():
    kept = list(data.DataLoader(data.TensorDataset(wisp.arange(4000).float()), 100, num_workers=2, prefetch_factor=4))
    assert wisp.cat([batch[0] for batch in kept]).tolist() == list(range(4000))
    del kept
    late = []
    for i, (batch,) in enumerate(data.DataLoader(data.TensorDataset(wisp.arange(20000.0)), 1000, num_workers=1)):
        late.append(batch[-1])
        if i % 3 == 0:
            late.clear()
        else:
            assert [x.item() for x in late] == [1000.0 * (i - k) + 999 for k in range(len(late) - 1, -1, -1)]


def test_memory_seen_by_a_forked_process_is_not_used_again():
    loader = iter(data.DataLoader(data.TensorDataset(wisp.arange(60000.0)), 1000, num_workers=1))
    for _ in range(5):
        (batch,) = next(loader)
    receive, send = multiprocessing.Pipe(duplex=False)
    go_on, may = multiprocessing.Pipe(duplex=False)

    def child(batch=batch):
        go_on.recv()
        send.send((batch[0].item(), batch[-1].item()))

    process = multiprocessing.get_context("fork").Process(target=child)
    del child
    process.start()
    del batch
    for _ in range(20):
        next(loader)
    may.send(0)
    assert receive.recv() == (4000, 4999)
    process.join()
    loader = None


# ---------------------------------------------------------------- one copy
class Listed(data.Dataset):
    def __init__(self, n):
        self.paths = [("folder/file%d.png" % i, i % 10) for i in range(n)]
        self.pixels = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
        self.other = [object()] * n

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.paths[i][0], self.paths[i][1], self.pixels[i], isinstance(self.paths, list), not self.pixels.flags.owndata


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_long_lists_are_packed(method, monkeypatch):
    monkeypatch.setattr(_one_copy, "LONG", 30000)
    dataset = Listed(40000) if method == "fork" else Listed(40000)
    if method != "fork":
        dataset.other = None
    loader = data.DataLoader(data.Subset(dataset, range(39990, 40000)), 5, num_workers=1, multiprocessing_context=method)
    for names, labels, pixels, is_list, borrowed in loader:
        assert names[0] == f"folder/file{int(pixels[0, 0]) // 4}.png" and labels.tolist() == list(range(labels[0], labels[0] + 5))
        assert not is_list.any() and (method == "fork" or borrowed.all())
    assert type(dataset.paths) is list


class Names(data.Dataset):
    def __init__(self, n):
        self.names = [("some/folder/file%d.png" % i, i % 10) for i in range(n)]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return len(self.names[i][0])


def private_memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private"))


def test_memory_does_not_grow_with_workers(monkeypatch):
    dataset, grown = Names(200_000), []
    for limit in (100_000, 10**9):
        monkeypatch.setattr(_one_copy, "LONG", limit)
        iterator = iter(data.DataLoader(dataset, 1000, shuffle=True, num_workers=1))
        next(iterator)
        pid = iterator._batches.workers.processes[0].pid
        before = private_memory(pid)
        for _ in range(150):
            next(iterator)
        grown.append(private_memory(pid) - before)
        del iterator
    assert grown[0] < grown[1] / 2, grown  # what else of a large parent a worker touches for the first time is in both


# ---------------------------------------------------------------- going on in mid-epoch
class Shuffling(data.Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        order = list(range(self.n))
        random.shuffle(order)
        return iter(order)

    def __len__(self):
        return self.n


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: seeded(Random(20), 3, shuffle=True, **o),
        lambda **o: seeded(Random(20), 3, shuffle=True, generator=wisp.Generator().manual_seed(4), **o),
        lambda **o: seeded(Random(20), 3, sampler=data.SubsetRandomSampler(range(20)), **o),
        lambda **o: seeded(Random(20), 3, sampler=data.SubsetRandomSampler(range(20), generator=wisp.Generator().manual_seed(7)), **o),
        lambda **o: seeded(Random(20), 3, sampler=Shuffling(20), **o),
        lambda **o: seeded(Random(20), batch_sampler=data.BatchSampler(Shuffling(20), 3, True), **o),
        lambda **o: seeded(Random(20), 3, sampler=data.DistributedSampler(range(20), 2, 1), **o),
        lambda **o: seeded(Stream(20), 3, **o),
        lambda **o: seeded(data.TensorDataset(wisp.arange(20), wisp.arange(20)), 3, shuffle=True, **o),
    ],
    ids=["shuffle", "generator", "subset", "subset generator", "custom", "batch sampler", "distributed", "stream", "tensors"],
)
def test_resume(make, workers):
    loader = make(num_workers=workers)
    assert loader.state_dict() == {"seed": None, "batches": 0}
    if hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(3)
    epoch(loader)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state, global_state = loader.state_dict(), wisp.get_rng_state()
    rest = epoch(iterator)
    second = epoch(loader)
    again = make(num_workers=2 - workers if not isinstance(loader.dataset, Stream) else workers)
    again.load_state_dict(state)
    assert again.state_dict() == state
    wisp.set_rng_state(global_state)
    assert epoch(again) == rest
    assert epoch(again) == second


def test_resume_out_of_order():
    loader = data.DataLoader(Squares(30), 2, num_workers=3, in_order=False)
    iterator = iter(loader)
    seen = [i for _ in range(6) for i in next(iterator)[1].tolist()]
    state = loader.state_dict()
    again = data.DataLoader(Squares(30), 2, num_workers=3, in_order=False)
    again.load_state_dict(state)
    assert sorted(seen + flat(again)) == list(range(30))


# ---------------------------------------------------------------- what goes wrong
class Broken(Squares):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError("no such sample")
        if i == 7:
            os._exit(3)
        if i == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        if i == 9:
            return lambda: None
        return super().__getitem__(i)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_exception_in_a_worker(method):
    loader = data.DataLoader(Broken(6), 2, num_workers=2, multiprocessing_context=method)
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(KeyError, match="no such sample") as caught:
        next(iterator)
    text = str(caught.value)
    assert type(caught.value) is KeyError and "in DataLoader worker process" in text and "in __getitem__" in text and "\\n" not in text
    assert not multiprocessing.active_children()


def test_going_on_after_an_exception():
    iterator = iter(data.DataLoader(Broken(7), 1, num_workers=2))
    seen = []
    for _ in range(7):
        try:
            seen += next(iterator)[1].tolist()
        except KeyError:
            seen.append("error")
    assert seen == [0, 1, 2, 3, 4, "error", 6]
    with pytest.raises(StopIteration):
        next(iterator)


def identity(value):
    return value


def test_dead_workers():
    with pytest.raises(
        RuntimeError,
        match=r"worker 0 \(pid \d+\) exited unexpectedly with exit code 3 while it loaded "
        r"index 7 of batch \[6, 7\]",
    ):
        flat(data.DataLoader(Broken(), batch_sampler=[[1], [2], [6, 7]], num_workers=1))
    with pytest.raises(RuntimeError, match=r"killed by signal SIGKILL while it loaded index 8 of batch \[8\].*\n.*memory"):
        flat(data.DataLoader(Broken(), batch_sampler=[[1], [2], [8]], num_workers=2, persistent_workers=True))
    with pytest.raises(Exception, match="(?s)lambda.*|Can't pickle"):
        list(data.DataLoader(Broken(), batch_sampler=[[9]], num_workers=1, collate_fn=identity))


def test_killed_from_outside():
    loader = data.DataLoader(Squares(1000), 1, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    os.kill(iterator._batches.workers.processes[1].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="killed by signal SIGKILL"):
        for _ in iterator:
            pass
    assert not multiprocessing.active_children()


def test_no_shared_memory(monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.warns(RuntimeWarning, match="No space left on device; batches will travel through pipes"):
        batches = epoch(seeded(Random(11), 3, num_workers=2, generator=wisp.Generator().manual_seed(1)))
    assert batches == epoch(seeded(Random(11), 3, generator=wisp.Generator().manual_seed(1)))


def test_shared_memory_runs_out(monkeypatch):
    real = os.posix_fallocate

    def nearly_full(descriptor, offset, size):
        if size > 1 << 20:
            raise OSError(28, "No space left on device")
        real(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", nearly_full)
    big = data.TensorDataset(wisp.arange(4_000_000).reshape(8, -1))
    with pytest.warns(RuntimeWarning, match="no room for .* bytes of shared memory"):
        batches = [batch[0] for batch in data.DataLoader(big, 2, num_workers=2)]
    assert (wisp.cat(batches) == big.tensors[0]).all()


FULL = """
import os
import wisp
from wisp.utils.data import DataLoader, TensorDataset
assert os.statvfs("/dev/shm").f_bavail == 0
for method in ("fork", "forkserver"):
    loader = DataLoader(TensorDataset(wisp.randn(400, 1000)), 100, num_workers=2, multiprocessing_context=method)
    assert sum(len(batch[0]) for batch in loader) == 400
"""


def test_dev_shm_is_full():
    mount = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("mounting a small /dev/shm is not allowed here")
    script = f"{mount} && (dd if=/dev/zero of=/dev/shm/fill bs=4k; exec '{sys.executable}' -c '{FULL}')"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == 0, done.stderr


class Slow(Squares):
    def __getitem__(self, i):
        if i == 2:
            time.sleep(self.n)
        return i


def test_a_stall_is_reported_with_the_stack(monkeypatch):
    monkeypatch.setattr(_workers, "STALL_SECONDS", 0.5)
    with pytest.warns(RuntimeWarning, match=r"(?s)has waited 0.5 s.*index 2 of batch \[2\].*in __getitem__"):
        assert flat(data.DataLoader(Slow(4), 1, num_workers=1)) == [0, 1, 2, 3]


def test_timeout():
    with pytest.raises(RuntimeError, match=r"(?s)timed out after 0.5 seconds.*in __getitem__"):
        flat(data.DataLoader(Slow(1000), 1, sampler=range(4), num_workers=1, timeout=0.5))


def bad_init(worker):
    raise ValueError(f"worker {worker} can't")


def good_init(worker):
    info = data.get_worker_info()
    info.dataset.n = (info.id, info.num_workers, info.seed == wisp.initial_seed())


class Told(Squares):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return self.n


def test_worker_init():
    with pytest.raises(ValueError, match="(?s)can't.*|worker . can't"):
        flat(data.DataLoader(Squares(), num_workers=2, worker_init_fn=bad_init))
    rows = [tuple(part.item() for part in batch) for batch in data.DataLoader(Told(), num_workers=2, worker_init_fn=good_init)]
    assert set(rows) == {(0, 2, True), (1, 2, True)}


PROGRAM = """
import os, signal, sys, time
import wisp
from wisp.utils import data

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background of a shell

class Slow(data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        if i == 0:
            print("worker", os.getpid(), flush=True)
        time.sleep(0 if i < 2 else 1000)
        return wisp.ones(1000)

for batch in data.DataLoader(Slow(), 2, num_workers=2, prefetch_factor=4):
    print("batch", flush=True)
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_main_process_ends(signum):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = [process.stdout.readline() for _ in range(2)]
    assert lines[1] == "batch\n"
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        children = [int(pid) for pid in file.read().split()]
    assert len(children) == 2
    process.send_signal(signum)
    _, errors = process.communicate()
    while any(alive(pid) for pid in children):  # hangs, and so fails, if one is left for good
        time.sleep(0.05)
    if signum == signal.SIGINT:
        assert "KeyboardInterrupt" in errors and "Exception ignored" not in errors


def test_without_workers_the_generators_are_the_programs_own():
    def batches(**options):
        random.seed(3), np.random.seed(3), wisp.manual_seed(3)
        return epoch(data.DataLoader(Random(6), 2, **options))

    def direct():
        random.seed(3), np.random.seed(3), wisp.manual_seed(3)
        wisp.utils.data.sampler.new_seed()  # what the loader draws first
        dataset = Random(6)
        return [data.default_collate([dataset[i] for i in pair]) for pair in ((0, 1), (2, 3), (4, 5))]

    assert batches() == [[part.tolist() for part in batch] for batch in direct()]
    assert batches(sample_seeds=True) == batches(num_workers=1) != batches()


def _seed_all(worker_id):
    random.seed(11), np.random.seed(11), wisp.manual_seed(11)


def test_what_worker_init_fn_seeds_counts():
    loaded = [epoch(data.DataLoader(Random(4), 4, num_workers=1, worker_init_fn=_seed_all)) for _ in range(2)]
    assert loaded[0] == loaded[1]
    _seed_all(0)
    assert loaded[0] == epoch_of([Random(4)[i] for i in range(4)])


def epoch_of(samples):
    return [[part.tolist() for part in data.default_collate(samples)]]


def test_a_sampler_of_many_draws_as_it_goes():
    sampler = data.RandomSampler(range(100), replacement=True, num_samples=int(1e10))
    loader = data.DataLoader(Squares(100), 4, sampler=sampler)
    assert len(next(iter(loader))[0]) == 4 and len(loader) == 2_500_000_000


class Numbered:
    worker = None

    def begin(self, worker):
        self.worker = worker

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.worker


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_method_of_the_dataset_begins_the_worker_that_has_it(start):
    numbered = Numbered()
    batches = list(data.DataLoader(numbered, num_workers=1, worker_init_fn=numbered.begin, multiprocessing_context=start))
    assert [b.item() for b in batches] == [0] * 4 and numbered.worker is None
