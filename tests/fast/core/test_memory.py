"""Nothing leaks: tensors and nodes are freed, by counting or by the collector; deep graphs need no deep stack."""

import gc
import warnings
import weakref

import pytest

import wisp
from wisp import autograd, nn, optim

live = wisp._core._live_tensors
pytestmark = pytest.mark.usefixtures("no_leaks")


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_results_are_freed_at_once():
    gc.collect()
    gc.disable()
    try:
        before = live()
        x = wisp.randn(10, 10, requires_grad=True)
        for _ in range(20):
            y = (x @ x).relu().softmax(-1).view(-1)[3:].exp().sum()
            y.backward()
        del x, y
        assert live() == before  # counting alone was enough
    finally:
        gc.enable()


def test_a_training_step_needs_no_collector():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = optim.Adam(model.parameters())
    x, y = wisp.randn(16, 4), wisp.randint(0, 2, (16,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    gc.collect()
    gc.disable()
    try:
        before = live()
        for _ in range(5):
            step()
        # optimizer.zero_grad sets .grad to None and the step makes it again
        assert live() == before
    finally:
        gc.enable()


def test_ten_thousand_steps_leave_memory_where_it_was():
    w, b = wisp.randn(8, 8, requires_grad=True), wisp.zeros(8, requires_grad=True)
    x = wisp.randn(4, 8)

    def steps(n):
        for _ in range(n):
            loss = (wisp.tanh(x @ w + b) ** 2).mean()
            loss.backward()
            with wisp.no_grad():
                w.sub_(0.01 * w.grad)
                b.sub_(0.01 * b.grad)
            w.grad = b.grad = None

    steps(500)
    gc.collect()
    tensors, memory = live(), resident_bytes()
    steps(10000)
    gc.collect()
    assert live() == tensors
    assert resident_bytes() - memory < 1 << 20


def test_saved_tensors_are_freed_by_backward():
    x = wisp.randn(100, requires_grad=True)
    y = x.exp()
    seen = weakref.ref(y)
    z = (y * y).sum()
    del y
    assert seen() is not None
    z.backward()
    assert seen() is None


def test_cycle_through_a_hook():
    def make():
        x = wisp.randn(3, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: y * 0 + g)  # the hook holds y, whose node holds the hook
        x.register_hook(lambda g: x.detach())
        y.sum().backward()
        return weakref.ref(y)

    seen = make()
    gc.collect()
    assert seen() is None


def test_cycle_through_node_hooks():
    def make():
        x = wisp.randn(3, requires_grad=True)
        y = x * 2
        y.grad_fn.register_hook(lambda a, b: y and None)
        y.grad_fn.register_prehook(lambda a: y and None)
        x.register_post_accumulate_grad_hook(lambda t: x and None)
        return weakref.ref(y)

    seen = make()
    gc.collect()
    assert seen() is None


def test_cycle_through_a_function():
    class Keep(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            ctx.output = y  # what one should not do
            ctx.input = x
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    for run in (True, False):
        x = wisp.randn(3, requires_grad=True)
        y = Keep.apply(x)
        if run:
            y.sum().backward()
        seen = weakref.ref(y)
        del x, y
        gc.collect()
        assert seen() is None


def test_a_function_makes_no_cycle():
    class Square(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    gc.collect()
    gc.disable()
    try:
        before = live()
        x = wisp.randn(3, requires_grad=True)
        for run in (True, False):
            y = Square.apply(x)
            if run:
                y.sum().backward()
        del x, y
        assert live() == before
    finally:
        gc.enable()


def test_cycle_through_attributes():
    x = wisp.randn(3, requires_grad=True)
    x.itself = [x]
    x.derived = x * 2
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_cycle_through_grad():
    x = wisp.randn(3, requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    x.grad.sum().backward(create_graph=True)
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_cycle_through_a_written_view():
    x = wisp.randn(4, requires_grad=True)
    y = x * 1
    v = y[1:]
    v.exp_()  # the node keeps the view, whose history leads to the node
    seen = weakref.ref(v)
    del v, y, x
    gc.collect()
    assert seen() is None


def test_cycle_through_saved_tensor_hooks():
    x = wisp.randn(3, requires_grad=True)
    kept = []
    with autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or kept, lambda k: k[0]):  # noqa: F821
        y = x.exp()
        kept.append(y)
    seen = weakref.ref(y)
    kept = None
    del x, y
    gc.collect()
    assert seen() is None


def test_subclasses_and_parameters():
    class Mine(wisp.Tensor):
        pass

    p = nn.Parameter(wisp.randn(3))
    p.owner = [p]
    t = wisp.Tensor._make_subclass(Mine, wisp.ones(3))
    t.me = t
    seen = weakref.ref(p), weakref.ref(t)
    del p, t
    gc.collect()
    assert seen[0]() is None and seen[1]() is None


def test_an_error_frees_everything():
    gc.collect()
    before = live()
    x = wisp.randn(3, requires_grad=True)
    for _ in range(10):
        with pytest.raises(RuntimeError):
            (x * wisp.ones(3)).view(2, 2)
        with pytest.raises(RuntimeError):
            (x @ wisp.ones(4)).backward()
        with pytest.raises(TypeError):
            wisp.add(x, "text")
    del x
    gc.collect()
    assert live() == before


def test_numpy_shares_and_frees():
    import numpy as np

    a = np.arange(6.0)
    t = wisp.from_numpy(a)
    seen = weakref.ref(t)
    view = t.numpy()
    del t
    view[0] = 9
    assert a[0] == 9
    del view
    gc.collect()
    assert seen() is None
    t = wisp.from_numpy(np.arange(1000.0))  # the tensor keeps the array
    gc.collect()
    assert t[999] == 999


@pytest.mark.parametrize("kind", ["chain", "saved", "views", "in-place", "sums"])
def test_a_million_nodes(kind):
    n = 1_000_000 if kind == "chain" else 100_000
    x = wisp.ones(1, requires_grad=True)
    y = x * 1
    for _ in range(n):
        if kind == "chain":
            y = y + 1
        elif kind == "saved":
            y = y * x
        elif kind == "views":
            y = y.view(1)
        elif kind == "in-place":
            y.mul_(1)
        else:
            y = y + y * 0
    y.sum().backward()
    assert x.grad.item() == (n + 1 if kind == "saved" else 1)
    y = x * 1
    for _ in range(n):  # freed without having run
        y = y * x if kind == "saved" else y + 1
    del y


def test_a_deep_graph_of_tensors_that_hold_tensors():
    x = wisp.ones(1, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y.exp() * 0 + y * x  # saved results of saved inputs
    gc.collect()
    del y


def test_a_deep_chain_of_attributes():
    t = wisp.ones(1)
    for _ in range(100_000):
        u = wisp.ones(1)
        u.before = t
        t = u
    del t, u
    gc.collect()


def test_freed_memory_serves_other_sizes_and_goes_back():
    program = """
import wisp
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20
start = resident()
x = wisp.ones(1 << 27)
assert resident() - start > 500
del x
assert resident() - start < 100, resident() - start
parts = [wisp.ones(1 << 20) for _ in range(200)]
assert resident() - start < 1000, resident() - start
for i in range(3):  # a program that comes back for its sizes keeps them
    parts = None
    parts = [wisp.ones(1 << 22) for _ in range(32)]
parts = None
assert resident() - start > 400
"""
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", program], check=True)


def test_arrays_marked_as_not_writeable_are_written_if_their_memory_is_numpys(tmp_path):
    import numpy

    table = numpy.arange(4.0).reshape(2, 2)
    column = table[0]
    column.flags.writeable = False  # as pandas gives the columns of a DataFrame
    with pytest.warns(UserWarning, match="not writable"):
        shared = wisp.from_numpy(column)
    shared.masked_fill_(wisp.tensor([False, True]), 9)
    assert table.tolist() == [[0, 9], [2, 3]]
    numpy.save(tmp_path / "x.npy", table)
    for array in (numpy.frombuffer(b"abcd", dtype=numpy.uint8), numpy.load(tmp_path / "x.npy", mmap_mode="r")[1:]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shared = wisp.from_numpy(array)
        with pytest.raises(RuntimeError, match="read-only"):
            shared.add_(1)
