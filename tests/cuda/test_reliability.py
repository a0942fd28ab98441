"""What must hold on a long day: nothing leaks, threads and streams share a device, memory that ran out comes back, and a
mistake leaves the context alive."""

import os
import threading

import pytest
from test_operators import near

import wisp
import wisp.nn.functional as F
from wisp import nn


def test_nothing_leaks_over_10000_steps():
    wisp.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4)).cuda()
    optimizer = wisp.optim.AdamW(model.parameters())
    x, y = wisp.randn(8, 16, device="cuda"), wisp.randint(0, 4, (8,), device="cuda")

    def steps(n):
        for _ in range(n):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        wisp.cuda.synchronize()
        return wisp.cuda.memory_allocated(), wisp.cuda.memory_reserved(), len(os.listdir("/proc/self/fd"))

    before = steps(10)
    assert steps(10_000) == before


def test_threads_share_a_device():
    expected, errors = {}, []
    data = {i: wisp.randn(64, 64 + i) for i in range(4)}
    for i, x in data.items():
        expected[i] = (x.t() @ x).relu().sum(0)

    def work(i):
        try:
            x = data[i].cuda().requires_grad_()
            stream = wisp.cuda.Stream()
            stream.wait_stream(wisp.cuda.current_stream())
            with wisp.cuda.stream(stream):
                for _ in range(50):
                    y = (x.t() @ x).relu().sum(0)
                    y.sum().backward()
                near(y.detach(), expected[i], 1e-3)
        except BaseException as e:  # noqa: BLE001 - raised again in the test's own thread
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in data]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_streams_do_not_reuse_memory_in_use():
    a, b = wisp.cuda.Stream(), wisp.cuda.Stream()
    x = wisp.randn(1 << 20, device="cuda")
    total = x.sum()
    a.wait_stream(wisp.cuda.current_stream())
    with wisp.cuda.stream(a):
        y = x * 2
        for _ in range(20):
            y = y + 0
    b.wait_stream(a)
    with wisp.cuda.stream(b):
        y.record_stream(b)
        z = y.sum()
        del y
    with wisp.cuda.stream(a):
        wisp.zeros(1 << 20, device="cuda")  # would take y's memory
    wisp.cuda.synchronize()
    near(z, total.cpu() * 2, 1e-3)


def test_out_of_memory_frees_what_is_kept_then_explains():
    wisp.cuda.empty_cache()
    free, _ = wisp.cuda.mem_get_info()
    x = wisp.empty(int(free * 0.6), dtype=wisp.uint8, device="cuda")
    del x  # stays reserved
    y = wisp.empty(int(free * 0.8), dtype=wisp.uint8, device="cuda")  # only fits once that was given back
    with pytest.raises(wisp.cuda.OutOfMemoryError, match=r"Tried to allocate \d+ bytes on cuda:0.*Use smaller batches"):
        wisp.empty(int(free * 0.5), dtype=wisp.uint8, device="cuda")
    del y
    wisp.cuda.empty_cache()
    near(wisp.ones(3, device="cuda") + 1, wisp.full((3,), 2.0), 0)


def test_a_forked_worker_says_what_to_do():
    wisp.ones(1, device="cuda")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            wisp.ones(1, device="cuda")
            text = "no error"
        except RuntimeError as e:
            text = str(e)
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "forked subprocess" in os.read(read, 1000).decode()
    near(wisp.ones(3, device="cuda") + 1, wisp.full((3,), 2.0), 0)


def test_a_bad_index_leaves_the_context_alive():
    table, x = wisp.randn(10, 4, device="cuda"), wisp.randn(5, 7, device="cuda")
    for bad, text in ((lambda: F.embedding(wisp.tensor([3, 11], device="cuda"), table), "embedding: index 11"),
                      (lambda: F.cross_entropy(x, wisp.tensor([0, 1, 2, 3, 7], device="cuda")), "index 7"),
                      (lambda: x.index_select(1, wisp.tensor([9], device="cuda")), "9"), (lambda: x[wisp.tensor([6], device="cuda")], "6")):
        with pytest.raises(IndexError, match=text):
            bad()
            wisp.cuda.synchronize()
        near(table + 1, table.cpu() + 1, 1e-6)
