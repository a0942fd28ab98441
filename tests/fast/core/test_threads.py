"""Operators and backward passes from several Python threads at once."""

import sys
import threading

import pytest
from in_threads import in_threads

import wisp
from wisp import autograd, nn


@pytest.fixture(autouse=True)
def _switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_independent_graphs():
    def work(i):
        x = wisp.full((50,), float(i + 1), dtype=wisp.float64, requires_grad=True)
        for _ in range(200):
            x.grad = None
            ((x * x).sin() + x.exp() * 0).sum().backward()
            assert wisp.allclose(x.grad, 2 * x.detach() * (x.detach() ** 2).cos())

    in_threads(work)


def test_large_operators():
    a = wisp.randn(600, 600)
    expected = (a @ a).relu().sum(0)

    def work(_):
        for _ in range(5):
            assert wisp.equal((a @ a).relu().sum(0), expected)
            b = a.clone().requires_grad_()
            (b * 2).sum().backward()
            assert (b.grad == 2).all()

    in_threads(work)


def test_shared_parameters_accumulate_every_gradient():
    for n in (10, 300_000):  # the larger one lets other threads run while it adds
        w = wisp.zeros(n, dtype=wisp.float64, requires_grad=True)

        def work(_):
            for _ in range(10):
                (w * 1).sum().backward()  # noqa: B023

        in_threads(work)
        assert (w.grad == 40).all()


def test_one_graph_run_by_all():
    x = wisp.randn(20, dtype=wisp.float64, requires_grad=True)
    y = x
    for _ in range(50):
        y = y.sin() + x
    y = y.sum()
    (expected,) = autograd.grad(y, x, retain_graph=True)

    def work(_):
        for _ in range(20):
            (g,) = autograd.grad(y, x, retain_graph=True)
            assert wisp.equal(g, expected)

    in_threads(work)


def test_modes_belong_to_threads():
    barrier = threading.Barrier(2)

    def work(i):
        with wisp.set_grad_enabled(i == 0):
            barrier.wait()
            for _ in range(100):
                assert wisp.is_grad_enabled() == (i == 0)
                assert (wisp.ones(1, requires_grad=True) * 2).requires_grad == (i == 0)
            barrier.wait()

    in_threads(work, 2)
    seen = []
    with wisp.no_grad():
        t = threading.Thread(target=lambda: seen.append(wisp.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_training_in_threads():
    def work(i):
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        x = wisp.linspace(-1, 1, 64).view(16, 4)
        y = x.sum(1, keepdim=True)
        first = last = None
        for _ in range(60):
            loss = ((model(x) - y) ** 2).mean()
            model.zero_grad()
            loss.backward()
            with wisp.no_grad():
                for p in model.parameters():
                    p -= 0.05 * p.grad
            last = loss.item()
            first = first or last
        assert last < first

    in_threads(work)


def test_hooks_and_functions_in_threads():
    class Double(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            assert len(ctx.saved_tensors) == 1
            return grad * 2

    def work(i):
        for _ in range(50):
            x = wisp.ones(3, requires_grad=True)
            seen = []
            y = Double.apply(x)
            y.register_hook(lambda g, seen=seen: seen.append(g) or g * 3)
            y.sum().backward()
            assert x.grad.tolist() == [6.0] * 3 and len(seen) == 1

    in_threads(work)


def test_tensors_freed_in_other_threads():
    import queue

    q = queue.Queue(10)

    def produce():
        for _ in range(300):
            q.put((wisp.randn(100, requires_grad=True) * 2).exp().sum())
        q.put(None)

    t = threading.Thread(target=produce)
    t.start()
    while (loss := q.get()) is not None:
        loss.backward()
        del loss
    t.join()


def test_in_place_from_threads():
    t = wisp.zeros(4, 1000)

    def work(i):
        for _ in range(100):
            t[i] += 1

    in_threads(work)
    assert (t == 100).all()
