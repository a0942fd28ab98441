"""An operator may write its result over an operand that dies with it, and over no other."""

import functools
import gc
import itertools
import operator
import sys
import weakref

import numpy as np
import pytest

import wisp

N = 200_000  # elements: large enough to be reused


@pytest.fixture(autouse=True)
def learnt():
    """The way from the interpreter to each slot is known from the second use on."""
    x = wisp.ones(N)
    for _ in range(2):
        -x + 1, -x - 1, -x * 2, -x / 2


def ramp():
    return wisp.arange(N).float()


def expect(t, f):
    assert (t.numpy() == f(np.arange(N, dtype=np.float32))).all()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython", reason="depends on the interpreter's build")
def test_memory_of_a_temporary_is_used():
    x, before = ramp(), wisp.ones(1)
    live = []
    for _ in range(3):
        a, b = ramp(), ramp()
        places = {a.data_ptr(), b.data_ptr()}
        del a, b
        y = x * 2 + before
        live.append(y.data_ptr() in places)
    assert any(live)
    expect(y, lambda v: v * 2 + 1)


def test_values_of_long_expressions():
    x, y = ramp(), ramp()
    expect((x * 2 + 1) - (y * 3 - 2) / 2, lambda v: (v * 2 + 1) - (v * 3 - 2) / 2)
    expect(1 - x * 2, lambda v: 1 - v * 2)
    expect(10 / (x + 1), lambda v: np.float32(10) / (v + 1))
    expect(x, lambda v: v)
    expect(y, lambda v: v)
    assert (x * 2 + wisp.ones(3, 1)).shape == (3, N)
    assert ((x * 2).half() + x).dtype == wisp.float32
    assert ((x * 2) + x.double()).dtype == wisp.float64
    assert ((x * 2) + 1j).dtype == wisp.complex64
    assert (ramp().long() * 2 + 0.5).dtype == wisp.float32
    assert (x * 2 + 1)._version == 0


def test_variables_keep_their_values():
    x = ramp()
    a = -x
    b = a + 1
    expect(a, lambda v: -v)
    expect(b, lambda v: -v + 1)

    def inner(t):
        u = t * 2
        return u, t, t + 1

    u, t, w = inner(-x)
    expect(t, lambda v: -v)
    expect(u, lambda v: -v * 2)
    expect(w, lambda v: -v + 1)
    if (c := -x) is not None:
        c + 1
        expect(c, lambda v: -v)


def test_other_owners_of_the_only_reference():
    x = ramp()
    for op in (operator.add, operator.mul):
        held = [-x, -x]
        list(map(op, held, held))
        expect(held[0], lambda v: -v)
    # An array of objects holds the only reference, and its own `+` is the running instruction.
    array = np.empty(2, dtype=object)
    array[0], array[1] = -x, x * 3
    array + 1.0
    array * array
    array + array[::-1].copy()
    expect(array[0], lambda v: -v)
    expect(array[1], lambda v: v * 3)
    result = array + 1.0
    expect(result[0], lambda v: -v + 1)
    totals = list(itertools.accumulate(-x for _ in range(4)))
    expect(totals[0], lambda v: -v)
    expect(totals[3], lambda v: -v * 4)
    gathered = []
    gathered += itertools.accumulate((-x for _ in range(4)), operator.add)
    expect(gathered[1], lambda v: -v * 2)
    expect(functools.reduce(operator.add, (-x for _ in range(3))), lambda v: -v * 3)
    expect(sum(-x for _ in range(3)), lambda v: -v * 3)
    expect(functools.partial(operator.add, -x)(1), lambda v: -v + 1)
    keep = functools.partial(operator.add, -x)
    keep(1)
    expect(keep(1), lambda v: -v + 1)
    table = {"t": -x}
    table["t"] + 1
    expect(table["t"], lambda v: -v)


def test_slots_called_from_python_code():
    class Wrapper:
        def __init__(self, inner):
            self.inner = inner

        def __add__(self, other):
            return self.inner + other

        def __neg__(self):
            return self.inner * -1

    x = ramp()
    w = Wrapper(-x)
    w + 1, -w, w + 1
    expect(w.inner, lambda v: -v)
    a = -x
    a.__add__(1), wisp.Tensor.__add__(a, 1)
    expect(a, lambda v: -v)

    def numbers():
        yield (-x) + 1

    expect(next(numbers()), lambda v: -v + 1)


def test_what_else_sees_the_memory():
    x = ramp()
    views = []
    y = x * 2
    views.append(y[1:])
    del y
    views[0].view(-1) + 1
    assert views[0][0] == 2
    array = (x * 2).numpy()
    wisp.from_numpy(array) + 1
    assert array[3] == 6

    def watched():
        t = x * 2
        watched.reference = weakref.ref(t)
        return t

    z = watched() + 1
    expect(z, lambda v: v * 2 + 1)
    gc.collect()
    assert watched.reference() is None

    class Sub(wisp.Tensor):
        pass

    s = (x * 2).as_subclass(Sub) + 1
    expect(s, lambda v: v * 2 + 1)


def test_gradients_and_modes():
    x = ramp().requires_grad_()
    y = ((x * 2 + 1) * (x / 3 - 1)).sum()
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * np.arange(N) / 3 - 2 + 1 / 3, rtol=1e-5)
    with wisp.no_grad():
        z = x * 2 + 1
    assert not z.requires_grad
    w = wisp.ones(1, requires_grad=True)
    out = ((ramp() * 2 + 1) * w).sum()  # saves the temporary for w's gradient
    out.backward()
    assert float(w.grad) == float((ramp() * 2 + 1).sum())
    with wisp.inference_mode():
        t = ramp() * 2
    u = t + 1
    assert not u.is_inference()


def test_dividing_and_subtracting_from_the_right_operand():
    x = ramp() + 1
    expect(x - x * 3, lambda v: (v + 1) - (v + 1) * 3)
    expect(x / (x * 2), lambda v: (v + 1) / ((v + 1) * 2))
    expect((x * 2) - (x * 5), lambda v: (v + 1) * 2 - (v + 1) * 5)
