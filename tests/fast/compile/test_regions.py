"""What is noted, when it runs, and what a compiled region must not change."""

import copy
import inspect
import pickle
import threading
import weakref

import numpy
import pytest

import wisp
from wisp import nn


@pytest.fixture(autouse=True)
def medium_tensors_are_noted():
    before = wisp._core._set_worth_noting(4096)
    yield
    wisp._core._set_worth_noting(before)


def same(a, b):
    """Equal: on a GPU but for the order in which reductions of rows add."""
    return wisp.equal(a, b) if not a.is_cuda else wisp.allclose(a, b, rtol=1e-4, atol=1e-5 * float(a.abs().max()))


def counted(f, *args):
    """The result, and what was counted on the way."""
    before = wisp.compiler.statistics()
    result = wisp.compile(f)(*args)
    after = wisp.compiler.statistics()
    return result, {name: after[name] - before[name] for name in after}


def test_a_chain_is_one_program():
    x, y = wisp.randn(100, 100), wisp.randn(100)
    chain = lambda x: ((x * 2 + y).exp() - x).relu()  # noqa: E731
    result, counts = counted(chain, x)
    assert wisp.equal(result, chain(x))
    assert counts["noted"] == 5 and counts["programs"] == 1 and counts["runs"] == 1
    assert counts["bytes"] == 4 * (10000 + 100 + 10000) and counts["bytes_one_by_one"] > 4 * counts["bytes"]


def test_dead_results_are_never_made():
    def f(x):
        x.exp()
        kept = x * 2
        del kept
        return x + 1

    result, counts = counted(f, wisp.ones(10000))
    assert counts["never_made"] == 2 and counts["programs"] == 1 and result[0] == 2


def test_backward_of_what_a_region_recorded_is_a_region_too():
    def model(x):
        return ((x * 2).tanh() - x).exp()

    x, z = (wisp.linspace(-1, 1, 10000).view(100, 100).requires_grad_() for _ in range(2))
    loss = wisp.compile(model)(x).square().sum()
    before = wisp.compiler.statistics()
    loss.backward()
    after = wisp.compiler.statistics()
    assert after["noted"] - before["noted"] >= 3 and after["programs"] - before["programs"] <= 2
    assert not wisp._core._is_noting()
    model(z).square().sum().backward()
    assert same(x.grad, z.grad)
    before = wisp.compiler.statistics()["noted"]
    model(z).square().sum().backward()  # as eager as it was recorded
    assert wisp.compiler.statistics()["noted"] == before


def test_an_error_in_backward_leaves_its_region():
    x = wisp.randn(100, 100).requires_grad_()
    y = wisp.compile(lambda x: (x * 2).exp() + 1)(x)

    def refuse(grad):
        raise ValueError("no")

    x.register_hook(refuse)
    with pytest.raises(ValueError, match="no"):
        y.sum().backward()
    assert not wisp._core._is_noting() and x.grad is None
    assert wisp.equal(y, (x * 2).exp() + 1)


def test_small_operators_run_at_once():
    _, counts = counted(lambda x: x * 2 + 1, wisp.ones(100))
    assert counts["noted"] == (2 if wisp.ones(1).is_cuda else 0)  # a launch costs more than a note


def test_rows_are_reduced_in_the_program():
    x, w = wisp.randn(50, 200), wisp.randn(200)
    norm = lambda x: x * wisp.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w  # noqa: E731
    result, counts = counted(norm, x)
    assert counts["programs"] == 1 and same(result, norm(x))


def test_values_are_there_when_asked_for():
    x = wisp.ones(5000)

    def f(x):
        y = x * 2
        seen = [y.sum().item(), y.numpy()[0], float(y[7]), bool((y == 2).all()), y.tolist()[1]]
        return seen, "tensor([2.," in repr(y)

    assert wisp.compile(f)(x) == ([10000.0, 2.0, 2.0, True, 2.0], True)


def test_what_is_not_asked_for_waits():
    def f(a, b, c):
        y, z = a * 2, b + 1
        first = float(y[0])
        z = z * 3 + y  # one program with the sum, which reads y
        w = (c - 1).exp()  # the difference is seen by nobody, and its exponential waits for it
        second = float(z[0])
        c.add_(1)  # now it can't
        return first, second, w, z, c * 1

    def made():
        return wisp.full((5000,), 1.0), wisp.full((5000,), 2.0), wisp.full((5000,), 1.0)

    (first, second, w, z, c), counts = counted(f, *made())
    assert (first, second, float(w[4999]), float(z[4999]), float(c[4999])) == (2, 11, 1, 11, 2)
    assert counts["runs"] == 4 and counts["programs"] == 4


def test_wider_copies_are_made_again_rather_than_kept():
    x = wisp.randn(50, 200).bfloat16().requires_grad_()
    w = wisp.randn(200, 64).bfloat16()

    def step(x, write=False):
        y = x * 2
        h = y.float()  # saved for backward, where it is made again
        z = (h * wisp.rsqrt(h.square().mean(-1, keepdim=True))).bfloat16()
        out = z @ w
        if write:
            with wisp.no_grad():
                y.zero_()  # what reads y runs first
        (g,) = wisp.autograd.grad(out.float().square().sum(), x)
        return out, g, h.detach() + 1

    rows = wisp.randn(50, 1).bfloat16()
    f = lambda x, r: (x.float() * (x.float().mean(-1, keepdim=True) + r.float())) * r.float()  # noqa: E731
    assert same(f(x, rows).detach(), wisp.compile(f)(x, rows).detach())
    for write in (False, True):
        told = wisp.compiler.explain(step)(x, write)
        assert all(same(a.detach(), b) for a, b in zip(step(x, write), told.result))
    forward = wisp.compiler.explain(lambda: step(x)[0])().programs[0]
    kept = 1 if x.is_cuda else 2  # on a GPU y too is made again, from x
    assert forward.operators[:3] == ["mul", "to float32", "square"] and forward.written == kept * (2 * 50 * 200) + 4 * 50


def test_writes_do_not_reach_earlier_readers():
    def f(x):
        y = x * 2
        x.add_(1)
        z = x * 2
        x[::2] = 0
        w = x.view(50, 100)
        a = w + 1
        w.t().mul_(3)
        return y, z, a, x.clone()

    plain = f(wisp.ones(5000))
    noted = wisp.compile(f)(wisp.ones(5000))
    assert all(wisp.equal(a, b) for a, b in zip(plain, noted))


def test_memory_shared_with_numpy():
    array = numpy.ones(5000, dtype=numpy.float32)

    def f(x, own):
        y = x * 2
        array[:] = 5
        shown = own.numpy()
        z = own * 2
        shown[:] = 7
        return y, z

    y, z = wisp.compile(f)(wisp.from_numpy(array), wisp.ones(5000))
    assert y[0] == 2 and z[0] == 2


def test_errors_leave_a_clean_state():
    kept = []

    def f(x):
        kept.append(x * 2 + 1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        wisp.compile(f)(wisp.ones(5000))
    assert not wisp.compiler.is_compiling() and kept[0][0] == 3
    with pytest.raises(RuntimeError, match="size of tensor"):
        wisp.compile(lambda a, b: a * 2 + b)(wisp.ones(5000), wisp.ones(4999))
    assert not wisp.compiler.is_compiling()


def test_nested_regions_and_disabled_functions():
    seen = []

    @wisp.compiler.disable
    def at_once(x):
        seen.append(wisp.compiler.is_compiling())
        return x * 2

    @wisp.compile
    def inner(x):
        seen.append(wisp.compiler.is_compiling())
        return at_once(x) + 1

    @wisp.compile
    def outer(x):
        y = inner(x) * 3
        seen.append(wisp.compiler.is_compiling())
        return y

    assert outer(wisp.ones(5000))[0] == 9 and seen == [True, False, True]
    with wisp.compiler.set_stance("force_eager"):
        assert outer(wisp.ones(5000))[0] == 9 and seen[3:] == [False, False, False]
    assert inner(wisp.ones(5000))[0] == 3 and seen[6:] == [True, False]


def test_launches_that_are_kept_back():
    """With mode="reduce-overhead" launches on a GPU go together, as a graph once they were seen; elsewhere nothing changes."""

    def step(x, w, scale):
        for _ in range(4):
            x = (x @ w).relu() * scale + 1
            x = x / x.amax(-1, keepdim=True)
        return x

    w = wisp.randn(128, 128)
    kept = wisp.compile(step, mode="reduce-overhead")
    before = wisp.compiler.statistics()
    for i in range(8):  # other values, another number, memory at other places
        x = wisp.randn(100, 128)
        assert same(kept(x, w, 1 + i), step(x, w, 1 + i))
    w.mul_(0.5)
    branch = lambda x: kept(x, w, 2) if float(x.sum()) > 0 else x - 1  # noqa: E731
    both = wisp.compile(branch, mode="reduce-overhead")
    for x in (wisp.ones(100, 128), -wisp.ones(100, 128), wisp.ones(100, 128)):
        assert same(both(x), branch(x))
    after = wisp.compiler.statistics()
    replayed = after["launches_replayed"] - before["launches_replayed"]
    assert replayed > 40 if w.is_cuda else replayed == 0


def test_threads():
    results, errors, x = {}, [], wisp.full((300, 1000), 0.5)

    @wisp.compile
    def f(x, k):
        for _ in range(20):
            x = (x * 1.01 + k).tanh() - 0.1
            if k % 2:
                float(x[0, 0])
        return x

    def work(k):
        try:
            for _ in range(10):
                results[k] = f(x, k)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    for k, value in results.items():
        assert wisp.equal(value, f._torchdynamo_orig_callable(x, k))


def test_a_noted_value_leaves_its_thread():
    box, go, done = [], threading.Event(), threading.Event()

    def f(x):
        box.append(x * 2 + 1)
        go.set()
        done.wait(10)
        return None

    t = threading.Thread(target=wisp.compile(f), args=(wisp.ones(5000),))
    t.start()
    go.wait(10)
    assert box[0][5].item() == 3
    done.set()
    t.join()


def test_a_training_step():
    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def train(step):
        wisp.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(128), nn.Linear(128, 64), nn.SiLU())
        x, y = wisp.randn(100, 64), wisp.randn(100, 64)
        # On a GPU sums of rows round otherwise, and where a gradient is nothing but rounding Adam makes a whole step of it.
        optimizer = (wisp.optim.SGD if x.is_cuda else wisp.optim.AdamW)(model.parameters(), lr=1e-2)
        return [step(model, optimizer, x, y).item() for _ in range(5)], [p.detach() for p in model.parameters()]

    losses, parameters = train(step)
    their_losses, their_parameters = train(wisp.compile(step))
    assert same(wisp.tensor(losses), wisp.tensor(their_losses)) and all(same(a, b) for a, b in zip(parameters, their_parameters))


def test_hooks_autocast_and_double_backward():
    def f(x):
        grads = []
        y = (x * 2).tanh()
        y.register_hook(lambda g: grads.append(g.sum().item()))
        with wisp.autocast("cpu", dtype=wisp.bfloat16):
            z = (y @ y.T) * 0.01 + 1
        (g,) = wisp.autograd.grad(z.float().square().sum(), x, create_graph=True)
        (g * g).sum().backward()
        return z, g.detach(), x.grad, grads

    def alike(a, b):
        return all(same(wisp.as_tensor(p), wisp.as_tensor(q)) for p, q in zip(a, b))

    wisp.manual_seed(0)
    x = wisp.randn(80, 80)
    assert alike(f(x.clone().requires_grad_()), wisp.compile(f)(x.clone().requires_grad_()))


def test_compiled_modules():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    compiled = wisp.compile(model, mode="max-autotune", fullgraph=True, dynamic=True)
    assert isinstance(compiled, wisp._dynamo.OptimizedModule) and compiled._orig_mod is model and compiled[0] is model[0]
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"] and len(compiled) == 2
    assert hasattr(compiled, "dynamo_ctx") and not hasattr(model, "dynamo_ctx")
    x = wisp.randn(3, 4)
    assert wisp.equal(compiled(x), model(x)) and compiled.eval() is compiled and not model.training
    compiled.extra = 5
    assert model.extra == 5 and compiled.extra == 5 and [n for n, _ in compiled.named_parameters()] == list(compiled.state_dict())
    again = pickle.loads(pickle.dumps(compiled))
    assert type(again) is type(compiled) and wisp.equal(again(x), model(x)) and wisp.equal(copy.deepcopy(compiled)(x), model(x))
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(wisp.compiler.is_compiling()))
    compiled(x)
    assert seen == [True]


def test_module_compile():
    model, seen = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), []
    x = wisp.randn(3, 4)
    expected = model(x)
    model.register_forward_hook(lambda module, args, out: seen.append(wisp.compiler.is_compiling()))
    assert model.compile() is None and wisp.equal(model(x), expected) and seen == [True]
    again = pickle.loads(pickle.dumps(nn.Sequential(nn.Linear(4, 8))))
    again.compile(backend="eager")
    assert again(x).shape == (3, 8) and copy.deepcopy(again)(x).shape == (3, 8)


@pytest.mark.parametrize("in_place", [True, False])
def test_hooks_and_copies_of_compiled_modules(in_place):
    class Twice(nn.Module):
        def __init__(self, by=2):
            super().__init__()
            self.by = by

        def forward(self, x, *, plus=0):
            seen.append(wisp.compiler.is_compiling())
            return x * self.by + plus

    seen, hooked, module, x = [], [], Twice(), wisp.ones(2)
    if in_place:
        module.compile()
        copied = copy.deepcopy(module)
    else:
        module = wisp.compile(module)
        copied = copy.deepcopy(module)
    for _ in range(3):
        assert module(x)[0] == 2 and module(x, plus=1)[0] == 3
        handle = module.register_forward_hook(lambda module, args, output: hooked.append(1))
        assert module(x)[0] == 2 and len(hooked) == 1
        handle.remove()
        assert module(x=x)[0] == 2 and len(hooked) == 1
        with nn.modules.module.register_module_forward_hook(lambda module, args, output: hooked.append(2)):
            assert module(x)[0] == 2 and len(hooked) > 1
        hooked.clear()
        assert module(x)[0] == 2 and not hooked
    with pytest.raises(TypeError, match="unexpected keyword"):
        module(x, minus=1)
    assert all(seen) and len(seen) == 18
    for again in (copied, copy.deepcopy(module)):
        again.by = 5
        assert again(x)[0] == 5 and again(x)[0] == 5 and module(x)[0] == 2
    module.forward = lambda x: x - 1
    assert module(x)[0] == 0 and module(x)[0] == 0
    del module.forward
    assert not in_place or module(x)[0] == 2


def test_arguments():
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        wisp.compile(abs, mode="quick")
    with pytest.raises(RuntimeError, match="both"):
        wisp.compile(abs, mode="default", options={})
    with pytest.raises(RuntimeError, match="backend"):
        wisp.compile(abs, backend="nothing")
    assert wisp.compile(mode="reduce-overhead")(abs)(-2) == 2 and wisp.compile(abs, disable=True) is abs
    for backend in set(wisp.compiler.list_backends(())) - set(wisp.compiler.list_backends()):
        assert wisp.compile(wisp.compiler.is_compiling, backend=backend)() is False
    assert "aot_eager_decomp_partition" in wisp.compiler.list_backends(())

    class Model:
        @wisp.compile
        def double(self, x):
            """Twice."""
            return x * 2

    assert Model().double(wisp.ones(1)).item() == 2 and Model.double.__doc__ == "Twice." and Model.double.__name__ == "double"


def test_explain():
    told = wisp.compiler.explain(lambda x: (x * 2 + 1).exp())(wisp.zeros(100, 100))
    assert [p.operators for p in told.programs] == [["mul", "add", "exp"]] and told.bytes == 80000 and "mul · add · exp" in str(told)
    assert wisp.equal(told.result, wisp.full((100, 100), 1.0).exp())


def test_long_chains_and_many_shapes():
    def f(x):
        for i in range(400):
            x = x * 1.001 + 0.001 * i
        return x

    x = wisp.randn(64, 100)
    assert wisp.equal(f(x), wisp.compile(f)(x))
    for shape in [(5000,), (3, 1700), (1, 5000), (50, 1, 100), (2, 3, 4, 5, 60)]:
        x = wisp.randn(shape)
        g = lambda x: (x.transpose(0, -1) * 2 + x.transpose(0, -1).contiguous()).sum(-1) + 1  # noqa: E731
        assert same(g(x), wisp.compile(g)(x))


def test_channels_last_and_strides_are_kept():
    x = wisp.randn(4, 8, 16, 16).to(memory_format=wisp.channels_last)
    f = lambda x, b: (x * 2 + b).relu() - x  # noqa: E731
    b = wisp.randn(8, 1, 1)
    plain, noted = f(x, b), wisp.compile(f)(x, b)
    assert wisp.equal(plain, noted) and plain.stride() == noted.stride() == x.stride()


def test_inputs_may_die_and_be_resized():
    def f():
        x = wisp.ones(5000)
        y = x * 2
        x.resize_(6000)
        x.set_(wisp.zeros(10))
        del x
        junk = [wisp.full((5000,), 9.0) for _ in range(5)]
        return y, junk

    assert wisp.compile(f)()[0].sum() == 10000


def doubled(x, *, by=2):
    """Doubles."""
    return x * by


compiled_doubled = wisp.compile(doubled)
doubled_once = wisp.compile(doubled, mode="reduce-overhead")


def test_a_compiled_function_looks_like_the_function():
    assert compiled_doubled.__name__ == "doubled" and compiled_doubled.__doc__ == "Doubles." and compiled_doubled.__wrapped__ is doubled
    assert str(inspect.signature(compiled_doubled)) == "(x, *, by=2)" and compiled_doubled.__code__ == doubled.__code__
    assert compiled_doubled.__module__ == __name__ and inspect.isfunction(compiled_doubled) and inspect.getsource(compiled_doubled)
    assert copy.deepcopy(compiled_doubled) is compiled_doubled and weakref.ref(compiled_doubled)() is compiled_doubled
    compiled_doubled.note = 3
    assert compiled_doubled.note == 3 and not hasattr(doubled, "note")
    assert float(compiled_doubled(wisp.tensor(2.0), by=3)) == 6 and float(doubled_once(wisp.tensor(2.0))) == 4
    with pytest.raises(TypeError, match="doubled"):
        compiled_doubled()

    class Holder:
        @wisp.compile
        def times(self, x):
            return x * self.factor

    holder = Holder()
    holder.factor = 3
    assert float(holder.times(wisp.tensor(2.0))) == 6 and float(Holder.times(holder, wisp.tensor(2.0))) == 6


def test_who_notes_nothing_passes_the_region_and_is_looked_at_again():
    seen = []

    @wisp.compile
    def work(x):
        seen.append((wisp.compiler.is_compiling(), wisp.compiler.disable(wisp.compiler.is_compiling)()))
        return wisp.tanh(x * 2) + 1

    small, large = wisp.ones(4), wisp.ones(100, 100)
    for _ in range(40):
        work(small)
    assert set(seen) == {(True, False)}
    before = wisp.compiler.statistics()["noted"]
    results = [work(large) for _ in range(20)]
    assert wisp.compiler.statistics()["noted"] > before
    assert all(wisp.equal(r, results[0]) for r in results)


def test_who_gains_nothing_passes_the_region_until_it_does():
    @wisp.compile
    def work(x, times):
        for _ in range(times):
            x = x * 2
        return x

    x = wisp.randn(100, 100)
    before = wisp.compiler.statistics()["noted"]
    assert all(wisp.equal(work(x, 1), x * 2) for _ in range(64))
    noted = wisp.compiler.statistics()["noted"] - before
    assert noted == 64 if x.is_cuda else 0 < noted < 64
    before = wisp.compiler.statistics()
    assert all(wisp.equal(work(x, 3), x * 8) for _ in range(32))
    after = wisp.compiler.statistics()
    assert after["noted"] - before["noted"] >= 3 * (after["programs"] - before["programs"]) > 0


def test_a_sum_over_rows_is_made_at_once_and_lets_other_readers_wait():
    x, seen = wisp.randn(100, 100), []

    def f(x):
        y = x * 2
        sums = x.sum(0)
        seen.append(wisp.compiler.statistics()["noted"])
        y = y + 1
        return y, sums

    before = wisp.compiler.statistics()["noted"]
    (y, sums), counts = counted(f, x)
    assert wisp.equal(y, x * 2 + 1) and same(sums, x.sum(0))
    if not x.is_cuda:  # there sums over rows are part of programs
        assert seen == [before + 1] and counts["programs"] == 1


def test_values_that_are_still_to_be_made_are_joined():
    @wisp.compile
    def f(x):
        return wisp.cat([x[:1], x + 1])  # long enough for several threads, and short enough to keep the interpreter's lock

    for n in (1000, 33000, 40000, 65000, 100000):
        x = wisp.arange(float(n)).double()
        assert wisp.equal(f(x), wisp.cat([x[:1], x + 1]))


def gated(activation, watched=lambda name, t: t):
    """A step over `activation(a) * b`; `watched` sees both factors."""
    wisp.manual_seed(0)
    x, gate, up, down = (wisp.randn(*shape).requires_grad_() for shape in ((40, 128), (128, 128), (128, 128), (128, 128)))

    def step():
        y = watched("activation", activation(x @ gate)) * watched("other", x @ up)
        return wisp.autograd.grad((y @ down).sum(), (x, gate, up, down))

    return step


@pytest.mark.parametrize("activation", [nn.functional.silu, nn.functional.gelu, lambda a: nn.functional.silu(a).tanh()])
def test_gradients_that_read_the_same_are_made_together(activation):
    wisp._core._set_worth_noting(0)  # as on a GPU what backward needs is made again
    step = gated(activation)
    compiled = wisp.compile(step)
    compiled()
    expected = step()
    assert all(map(same, compiled(), expected))
    told = wisp.compiler.explain(step)()
    assert all(map(same, told.result, expected))
    halves = [p for p in told.programs if "mul'" in p.operators]
    # One program makes both, of the gradient that arrives and the two operands, which it reads once.
    assert len(halves) == 1 and (halves[0].read, halves[0].written) == (3 * 4 * 40 * 128, 2 * 4 * 40 * 128), told


def test_hooks_are_called_in_the_order_of_eager():
    wisp._core._set_worth_noting(0)
    calls = []

    def hooked(name, t):
        t.register_hook(lambda g: calls.append(name))
        return t

    step = gated(nn.functional.silu, hooked)
    step()
    eager = list(calls)
    compiled = wisp.compile(step)
    for _ in range(3):
        calls.clear()
        compiled()
        assert calls == eager == ["other", "activation"]


def test_what_would_move_more_bytes_waits():
    """A product of which only one operand is read anyway: writing it for its reader would cost as much as is saved."""
    wisp._core._set_worth_noting(0)
    a, b, c = (wisp.randn(50, 100) for _ in range(3))

    def f():
        first, second = a * 2, a * b
        float(first[0, 0])
        return (second - c).exp()

    assert [p.operators for p in wisp.compiler.explain(f)().programs] == [["mul"], ["mul", "sub", "exp"]]

    def shared():  # both operands are read anyway, and the third is no reason to read them twice
        first, second = a * b, a * b - c
        float(first[0, 0])
        return second

    told = wisp.compiler.explain(shared)()
    assert len(told.programs) == 1 and told.programs[0].read == 3 * 4 * 50 * 100 and same(told.result, a * b - c)


def test_values_that_backward_can_make_again_are_not_written_out():
    wisp._core._set_worth_noting(0)
    x = wisp.linspace(-2, 2, 64 * 32).reshape(64, 32).to(wisp.bfloat16).requires_grad_()
    w, g = wisp.ones(32, dtype=wisp.bfloat16).requires_grad_(), wisp.linspace(1, 2, 64 * 32).reshape(64, 32).to(wisp.bfloat16)

    def norm(x):
        h = x.float()
        return (h * wisp.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w

    def step(f, between=lambda y: None):
        x.grad = w.grad = None
        before = wisp.compiler.statistics()["bytes"]
        y = f(x)
        moved = wisp.compiler.statistics()["bytes"] - before
        between(y)
        y.backward(g)
        return moved, y.detach(), x.grad, w.grad

    def agree(results, others):
        assert all(same(a, b) for a, b in zip(results[1:], others[1:]))

    expected, compiled = step(norm), wisp.compile(norm)
    agree(step(compiled), expected)
    again = step(compiled)
    agree(again, expected)
    results = 64 * 32 * 2
    assert again[0] <= 64 * 32 * 8 + 3 * results + 2000  # neither x in floats nor the product before that with w is written
    # who writes to what they are made from comes after them, and asking for them or for all that is noted makes them
    kept = x.detach().clone()
    for event in (lambda y: x.data.add_(1), lambda y: x.untyped_storage().fill_(1), lambda y: wisp.compiler.reset(), lambda y: norm(x)):
        agree(step(compiled, event), expected)
        x.data.copy_(kept)
    agree(step(compiled, lambda y: y.backward(g, retain_graph=True)), [0, expected[1], expected[2] * 2, expected[3] * 2])
    agree(step(compiled, lambda y: compiled(x)), expected)
    dropped = wisp.compiler.statistics()["never_made"]
    compiled(x)
    assert wisp.compiler.statistics()["never_made"] > dropped  # they end with the graph
    with wisp.no_grad():
        assert same(compiled(x), expected[1])
