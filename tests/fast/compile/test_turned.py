"""Images whose channels lie last in memory, though their tensors are contiguous: programs read and write them so, and nobody sees it."""

import random

import pytest

import wisp
from wisp.nn import functional as F


@pytest.fixture(autouse=True)
def everything_is_noted():
    before = wisp._core._set_worth_noting(0)
    warm = wisp.compile(lambda x: x.exp().sum().backward())
    warm(wisp.ones(3, requires_grad=True))  # a region with a backward pass: the next ones expect one
    yield
    wisp._core._set_worth_noting(before)


def turned(x):
    """x, by way of memory with its channels last, which a region has to know about."""
    if not wisp._core._is_noting():
        return x.clone(memory_format=wisp.contiguous_format)
    return wisp._core._turned(wisp._core._by_channels(x.clone()))


def step(r, values):
    x = r.choice(values)
    other = r.choice([v for v in values if v.shape == x.shape])
    n, c, h, w = x.shape
    kind = r.randrange(14)
    if kind < 4:
        return r.choice([wisp.add, wisp.mul, wisp.sub, wisp.maximum])(x, other)
    if kind < 6:
        return r.choice([F.silu, wisp.tanh, wisp.neg])(x)
    if kind == 6:
        return x + x.sum((2, 3), keepdim=True) * 0.01
    if kind == 7:
        return x * wisp.arange(float(c)).reshape(c, 1, 1)
    if kind == 8:
        return wisp.cat([x, other], 1)[:, r.randrange(c) :][:, :c]
    if kind == 9:
        return turned(x)
    if kind == 10:
        return turned(x.to(wisp.bfloat16)).float()
    if kind == 11:
        y = turned(x) if r.random() < 0.5 else x * 1
        y[:, 0].mul_(2)
        return y
    if kind == 12:
        return turned(x).reshape(n, c, h * w).transpose(1, 2).softmax(-1).transpose(1, 2).reshape(n, c, h, w)
    return F.interpolate(F.interpolate(turned(x), scale_factor=2), scale_factor=0.5)


def program(seed, x):
    r = random.Random(seed)
    values = [x, turned(x)]
    for _ in range(14):
        values.append(step(r, values))
        if r.random() < 0.2:
            wisp._core._by_channels(values[-1])
        if r.random() < 0.3:
            del values[r.randrange(1, len(values))]
    return [v.detach().clone() for v in values] + [sum(v.sum(1).square().mean() for v in values)]


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (1, 4, 3, 3), (3, 1, 2, 2), (2, 5, 1, 1)])
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(shape, seed):
    x = wisp.randn(*shape, generator=wisp.Generator().manual_seed(seed))
    with wisp.no_grad():
        expected, got = program(seed, x), wisp.compile(program)(seed, x)
    for a, b in zip(expected, got, strict=True):
        assert a.stride() == b.stride()
        assert wisp.allclose(a, b, 1e-5, 1e-6, equal_nan=True), (a, b)  # sums go along the memory


def test_the_copy_is_only_made_when_it_is_asked_for():
    x = wisp.randn(2, 8, 4, 4)

    def f(x, asks):
        y = turned(x)
        z = wisp._core._by_channels((y * 2 + 1).exp()).sum()
        return (z, y) if asks else z

    with wisp.no_grad():
        quiet, loud = (wisp.compiler.explain(f)(x, asks) for asks in (False, True))
    shapes = [p.shape for p in quiet.programs]
    assert shapes == ["[2, 4, 4, 8]"], shapes  # the program that makes z has its channels last, and reads y so
    assert len(loud.programs) == 2
    with wisp.no_grad():
        z, y = wisp.compile(f)(x, True)
    assert wisp.allclose(z, (x * 2 + 1).exp().sum()) and y.is_contiguous() and wisp.equal(y, x)


def test_what_is_turned_can_be_written_to():
    x = wisp.randn(2, 3, 4, 5)

    @wisp.compile
    def f(x):
        y = turned(x)
        z = y + 1
        y.mul_(2)
        return y, z

    y, z = f(x)
    assert wisp.equal(y, x * 2) and wisp.equal(z, x + 1)


def test_images_without_elements():
    for sizes in ((0, 4, 3, 3), (2, 4, 0, 3), (2, 0, 3, 3)):
        x = wisp.ones(sizes)
        assert wisp.compile(lambda x: turned(x).sum())(x).item() == 0
        assert wisp.compile(lambda x: wisp._core._turned(x) * 2)(x).shape == sizes
