"""wisp.multiprocessing: shared memory, queues, pools, spawn."""

import doctest
import gc
import importlib
import os
import signal
import time

import numpy as np
import pytest

import wisp
from wisp import multiprocessing as mp
from wisp import nn
from wisp.multiprocessing import shared

METHODS = ["fork", "spawn", "forkserver"]


def descriptors():
    return {
        (number, os.readlink(f"/proc/self/fd/{number}"))
        for number in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{number}") and "memfd:wisp" in os.readlink(f"/proc/self/fd/{number}")
    }


def mappings():
    with open("/proc/self/maps") as file:
        return sum("memfd:wisp" in line for line in file)


@pytest.fixture(autouse=True)
def nothing_left():
    gc.collect()
    before = descriptors(), mappings()
    yield
    gc.collect()
    assert (descriptors(), mappings()) == before, "shared memory leaked"


def test_share_memory():
    x = wisp.arange(6.0).reshape(2, 3)
    view, base = x[1], x.data_ptr()
    assert not x.is_shared()
    assert x.share_memory_() is x and x.is_shared() and view.is_shared()
    assert x.data_ptr() != base and view.tolist() == [3, 4, 5]
    view.fill_(9)
    assert x.tolist() == [[0, 1, 2], [9, 9, 9]]
    x.share_memory_()  # again: nothing happens
    assert x.untyped_storage().is_shared() and x.storage().is_shared()
    assert not x.clone().is_shared()
    array = np.ones(3)
    y = wisp.from_numpy(array).share_memory_()
    y.add_(1)
    assert array.tolist() == [1, 1, 1] and y.tolist() == [2, 2, 2]
    assert wisp.empty(0).share_memory_().numel() == 0
    big = wisp.randn(1000, 1000)
    copy = big.clone()
    assert (big.share_memory_() == copy).all()
    seen = big.clone()
    array = seen.numpy()
    seen.share_memory_()
    assert (array == big.numpy()).all()  # what NumPy has seen is left as it was
    p = nn.Parameter(wisp.ones(2))
    (p.share_memory_() * 2).sum().backward()
    assert p.grad.tolist() == [2, 2] and p.is_shared()


def test_arrays_outlive_the_move_to_shared_memory():
    x = wisp.from_numpy(np.ones(1 << 20, dtype=np.uint8))  # nobody else holds the array
    seen = x.numpy()
    x.share_memory_()
    filled = [np.zeros(1 << 20, dtype=np.uint8) for _ in range(4)]
    assert seen.sum() == 1 << 20 and x.sum() == 1 << 20 and len(filled) == 4
    del x
    assert seen.sum() == 1 << 20


def answer(inbox, outbox):
    for _ in range(2):
        x = inbox.get()
        x.add_(1)
        outbox.put({"sum": x.sum(), "same": x, "array": np.arange(3)})
    assert inbox.get() is None


@pytest.mark.parametrize("method", METHODS)
def test_queue(method):
    context = mp.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(inbox, outbox))
    process.start()
    for dtype in (wisp.float32, wisp.bfloat16):
        x = wisp.ones(4, 5, dtype=dtype)
        inbox.put(x)
        result = outbox.get()
        assert x.is_shared() and (x == 2).all() and result["sum"].item() == 40  # the child wrote to our memory
        assert result["same"].data_ptr() == x.data_ptr()  # it came home
        assert result["array"].tolist() == [0, 1, 2]
    inbox.put(None)
    process.join()
    assert process.exitcode == 0


def send_and_leave(queue):
    queue.put([wisp.full((1000,), float(i)) for i in range(300)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_sender_may_end_first(method):
    context = mp.get_context(method)
    queue = context.Queue()
    process = context.Process(target=send_and_leave, args=(queue,))
    process.start()
    values = queue.get()
    process.join()
    assert [v[0].item() for v in values] == list(range(300))


def test_what_shares_memory_goes_on_sharing_it():
    receive, send = mp.Pipe(duplex=False)
    x = wisp.zeros(4)
    send.send((x, x[1:3], x, nn.Parameter(wisp.ones(2)), wisp.ones(2, requires_grad=True), wisp.empty(0, 3)))
    a, b, c, p, r, e = receive.recv()
    b.fill_(5)
    assert a.tolist() == [0, 5, 5, 0] and c.tolist() == a.tolist() and x.tolist() == a.tolist()
    assert type(p) is nn.Parameter and r.requires_grad and e.shape == (0, 3)
    storage = wisp.arange(3).untyped_storage()
    send.send(storage)
    assert receive.recv().tolist() == storage.tolist()
    with pytest.raises(RuntimeError, match="non-leaf"):
        send.send(r * 2)
    send.send(wisp.ones(3).t())  # the connection still works
    assert receive.recv().tolist() == [1, 1, 1]


def hogwild(model, steps):
    optimizer = wisp.optim.SGD(model.parameters(), lr=0.05)
    generator = wisp.Generator().manual_seed(os.getpid())
    for _ in range(steps):
        x = wisp.randn(16, 2, generator=generator)
        optimizer.zero_grad()
        ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_hogwild(method):
    model = nn.Linear(2, 1)
    model.share_memory()
    context = mp.get_context(method)
    processes = [context.Process(target=hogwild, args=(model, 150)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert (model.weight - 1).abs().max() < 0.05 and all(p.is_shared() for p in model.parameters())


def double(x):
    return x * 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pool(method):
    with mp.get_context(method).Pool(2) as pool:
        results = pool.map(double, [wisp.ones(3) * i for i in range(5)])
    assert [r.tolist() for r in results] == [[2.0 * i] * 3 for i in range(5)]


def test_simple_and_joinable_queue():
    simple = mp.SimpleQueue()
    simple.put(wisp.ones(2))
    assert simple.get().tolist() == [1, 1] and simple.empty()
    queue = mp.JoinableQueue()
    queue.put(wisp.ones(2))
    assert queue.get().tolist() == [1, 1]
    queue.task_done()
    queue.join()


def work(i, kind):
    if i == 1:
        if kind == "raise":
            raise KeyError("process 1 has a problem")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "exit":
            os._exit(3)
    if kind != "fine":
        time.sleep(600)


def test_spawn():
    assert mp.spawn(work, args=("fine",), nprocs=2) is None
    context = mp.spawn(work, args=("fine",), nprocs=2, join=False)
    while not context.join():
        pass
    assert all(p.exitcode == 0 for p in context.processes)
    assert "WISP_SECRET" not in os.environ  # what ranks know each other by has ended with them


def test_spawn_failures():
    with pytest.raises(mp.ProcessRaisedException, match="process 1 has a problem") as caught:
        mp.start_processes(work, args=("raise",), nprocs=2, start_method="fork")
    assert "Process 1 terminated" in str(caught.value) and "in work" in str(caught.value)
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="signal SIGKILL"):
        mp.start_processes(work, args=("kill",), nprocs=2, start_method="fork")
    with pytest.raises(mp.ProcessExitedException, match="exit code 3") as caught:
        mp.start_processes(work, args=("exit",), nprocs=2, start_method="fork")
    assert caught.value.exit_code == 3
    assert not mp.active_children()


def exit_in_turn(rank, seconds):
    if rank == 1:
        time.sleep(seconds)
    os._exit(3 + rank)


@pytest.mark.parametrize("grace, seconds, code, lines", [(None, 600, -signal.SIGTERM, 1), (600, 0.1, 4, 0)])
def test_processes_get_a_grace_period_to_end_by_themselves(caplog, grace, seconds, code, lines):
    context = mp.start_processes(exit_in_turn, args=(seconds,), nprocs=2, start_method="fork", join=False)
    with pytest.raises(mp.ProcessExitedException, match="exit code 3"):
        while not context.join(grace_period=grace):
            pass
    assert context.processes[1].exitcode == code
    assert len(caplog.records) == lines and all(
        f"Terminating process {context.processes[1].pid} via signal SIGTERM" in r.message for r in caplog.records
    )


def test_no_room(monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="no room for 12 bytes of shared memory"):
        wisp.ones(3).share_memory_()


def test_names():
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    with pytest.raises(ValueError, match="strategy"):
        mp.set_sharing_strategy("pigeons")
    with pytest.raises(ValueError, match="cannot find context"):
        mp.get_context("pigeons")
    for name in (
        "Process",
        "Queue",
        "Pool",
        "Manager",
        "Lock",
        "Event",
        "Barrier",
        "Value",
        "Array",
        "cpu_count",
        "current_process",
        "set_start_method",
        "get_start_method",
        "freeze_support",
        "TimeoutError",
    ):
        assert hasattr(mp, name), name
    assert shared.new_file  # the module is importable by name


@pytest.mark.parametrize("name", ["", ".queues", ".spawn", ".shared"])
def test_examples(name):
    module = importlib.import_module("wisp.multiprocessing" + name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_storages_keep_their_memory_on_the_way():
    x = wisp.arange(4.0)
    queue = wisp.multiprocessing.Queue()
    queue.put([x.storage(), x, x[2:]])
    storage, whole, part = queue.get(timeout=60)
    assert storage.dtype == wisp.float32 and storage.tolist() == [0, 1, 2, 3]
    storage[3] = 7.0
    assert whole[3] == 7 and part[1] == 7
    assert storage._cdata == whole.storage()._cdata == part.storage()._cdata


def test_names_of_threads():
    before = wisp.multiprocessing._get_thread_name()
    wisp.multiprocessing._set_thread_name("a name")
    assert wisp.multiprocessing._get_thread_name() == "a name"
    wisp.multiprocessing._set_thread_name(before)
