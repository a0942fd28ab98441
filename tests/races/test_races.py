"""Work in several threads at once, for the thread sanitizer (.ci/slow builds with it and runs this file): it reports what two threads do to
the same memory without order. Without the sanitizer these are ordinary tests of results."""

import pathlib
import subprocess
import sys

import pytest
from in_threads import in_threads

import wisp
from wisp import nn
from wisp.utils.data import DataLoader, TensorDataset


def network():
    wisp.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))


def test_forward_and_backward_of_own_models():
    models = [network() for _ in range(4)]
    x, y = wisp.randn(32, 1, 8, 8), wisp.arange(32) % 10

    def work(i):
        optimizer = wisp.optim.Adam(models[i].parameters())
        for _ in range(6):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(models[i](x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    assert len(set(in_threads(work))) == 1


def test_one_model_read_by_all():
    model = network().eval()
    x = wisp.randn(64, 1, 8, 8)
    with wisp.no_grad():
        expected = model(x)
        results = in_threads(lambda i: [model(x) for _ in range(8)][-1])
    assert all(wisp.equal(result, expected) for result in results)


def test_large_operators_share_the_pool():
    a = wisp.randn(300, 300)

    def work(i):
        b = a
        for _ in range(5):
            b = (a @ b).tanh().sort(dim=1).values.cumsum(1).softmax(0)
        return b.sum().item()

    assert len(set(in_threads(work))) == 1


def test_gradients_of_a_shared_leaf():
    leaf = wisp.ones(1000, requires_grad=True)
    in_threads(lambda i: [(leaf * 2).sum().backward() for _ in range(20)])
    assert (leaf.grad == 160).all()


def test_hooks():
    calls = []

    def work(i):
        x = wisp.ones(100, requires_grad=True)
        for _ in range(10):
            y = x * 3
            y.register_hook(lambda g: calls.append(i) or g * 2)
            y.sum().backward()
        return x.grad[0].item()

    assert set(in_threads(work)) == {60.0} and len(calls) == 40


def test_random_numbers():
    generators = [wisp.Generator().manual_seed(3) for _ in range(4)]
    results = in_threads(lambda i: [wisp.randn(5000, generator=generators[i]) for _ in range(4)][-1])
    assert all(wisp.equal(result, results[0]) for result in results)
    in_threads(lambda i: [wisp.rand(5000) for _ in range(4)])  # the generator of all


def test_loaders():
    data = TensorDataset(wisp.arange(400.0))

    def work(i):
        return sum(batch.sum().item() for (batch,) in DataLoader(data, batch_size=16, shuffle=True))

    assert set(in_threads(work)) == {79800.0}


def test_the_profiler_sees_all_threads():
    x = wisp.randn(200, 200)
    with wisp.profiler.profile() as profile:
        in_threads(lambda i: [(x @ x).relu().sum() for _ in range(5)])
    assert {event.key: event.count for event in profile.key_averages()}["matmul"] == 20


def test_compiled_regions():
    f = wisp.compile(lambda x: (x * 2 + 1).tanh().sum())
    x = wisp.randn(300, 1000)
    assert len({result.item() for result in in_threads(lambda i: [f(x) for _ in range(5)][-1])}) == 1


def test_memory_is_passed_between_threads():
    kept = [None] * 4

    def work(i):
        for round in range(30):
            kept[i] = wisp.full((1 << (8 + round % 8),), float(i))
            other = kept[(i + 1) % 4]  # freed by whoever drops it last
            if other is not None:
                assert other[0].item() == (i + 1) % 4

    in_threads(work)


def test_ddp_with_overlapped_buckets():
    """Each rank runs under the sanitizer, which its environment brings, and ends with an error if it saw a race."""
    pytest.importorskip("mpi4py")
    program = pathlib.Path(__file__).with_name("overlapped.py")
    result = subprocess.run([sys.executable, "-m", "wisp", "launch", "-n", "2", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert all(f"the same in rank {rank}" in result.stdout for rank in range(2))
