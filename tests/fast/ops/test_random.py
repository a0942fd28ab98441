"""Random numbers: the generator's promises (seed, threads, splits), the laws of the samplers, their errors."""

import math
import subprocess
import sys

import numpy as np
import pytest

import wisp


def test_known_answer_of_philox():
    # Random123's test vector for key 0 and counter 0; its words are elements 0, 16, 32 and 48 of the first draw.
    g = wisp.Generator().manual_seed(0)
    words = wisp.empty(64, dtype=wisp.int64).random_(0, 2**32, generator=g).numpy()
    assert [hex(w) for w in words[::16]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize(
    "make",
    [
        lambda n: wisp.rand(n),
        lambda n: wisp.randn(n),
        lambda n: wisp.randn(n, dtype=wisp.float64),
        lambda n: wisp.randint(0, 1000, (n,)),
        lambda n: wisp.empty(n).exponential_(),
        lambda n: wisp.empty(n).bernoulli_(0.3),
    ],
)
def test_same_numbers_for_any_thread_count(make):
    before, results = wisp.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            wisp.set_num_threads(threads)
            wisp.manual_seed(3)
            results.append(make(100_003).numpy())
    finally:
        wisp.set_num_threads(before)
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


def test_seed_and_state():
    wisp.manual_seed(7)
    first = wisp.randn(5)
    second = wisp.randn(5)
    wisp.manual_seed(7)
    assert wisp.equal(first, wisp.randn(5)) and wisp.equal(second, wisp.randn(5)) and not wisp.equal(first, second)
    g = wisp.Generator().manual_seed(7)
    assert wisp.equal(first, wisp.randn(5, generator=g))
    # A longer draw begins with the shorter one.
    wisp.manual_seed(7)
    assert wisp.equal(first, wisp.randn(1000)[:5])


def moments(x):
    x = x.double().numpy().ravel()
    return x.mean(), x.var(), ((x - x.mean()) ** 3).mean() / x.std() ** 3


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64, wisp.float16, wisp.bfloat16])
def test_uniform_and_normal(dtype):
    wisp.manual_seed(1)
    u = wisp.rand(200_000, dtype=dtype)
    assert u.dtype == dtype and float(u.min()) >= 0 and float(u.max()) < 1
    mean, variance, _ = moments(u)
    assert abs(mean - 0.5) < 0.005 and abs(variance - 1 / 12) < 0.002
    mean, variance, skew = moments(wisp.randn(200_000, dtype=dtype))
    assert abs(mean) < 0.01 and abs(variance - 1) < 0.02 and abs(skew) < 0.03
    x = wisp.empty(400, 500, dtype=dtype).t().uniform_(-3, 5)
    assert float(x.min()) >= -3 and float(x.max()) < 5.0001 and abs(moments(x)[0] - 1) < 0.03


def test_normal_has_the_right_tails():
    wisp.manual_seed(2)
    x = wisp.randn(1_000_000).numpy()
    for limit, share in ((1, 0.31731), (2, 0.0455), (3, 0.0027)):
        assert abs((np.abs(x) > limit).mean() - share) < 4 * math.sqrt(share / 1e6)


def test_normal_overloads():
    wisp.manual_seed(0)
    mean = wisp.full((50_000,), 3.0)
    for x in (
        wisp.normal(mean, 2.0),
        wisp.normal(mean, wisp.full((50_000,), 2.0)),
        wisp.normal(3.0, wisp.full((50_000,), 2.0)),
        wisp.normal(3.0, 2.0, (50_000,)),
        wisp.empty(50_000).normal_(3, 2),
    ):
        assert abs(moments(x)[0] - 3) < 0.05 and abs(moments(x)[1] - 4) < 0.2
    z = wisp.randn(50_000, dtype=wisp.complex64)
    assert abs(z.abs().pow(2).mean().item() - 1) < 0.03


def test_integers():
    wisp.manual_seed(0)
    x = wisp.randint(-3, 4, (70_000,)).numpy()
    assert x.dtype == np.int64 and np.all(np.abs(np.bincount(x + 3) - 10_000) < 500)
    wide = wisp.randint(-(2**62), 2**62, (1000,)).numpy()
    assert (wide > 2**61).any() and (wide < -(2**61)).any()
    assert set(wisp.empty(1000, dtype=wisp.bool).random_().numpy().tolist()) == {True, False}
    bytes_ = wisp.empty(10_000, dtype=wisp.uint8).random_().numpy()
    assert bytes_.min() == 0 and bytes_.max() == 255
    assert wisp.randint(5, (2, 3), dtype=wisp.float32).dtype == wisp.float32


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_randperm(n):
    assert sorted(wisp.randperm(n).tolist()) == list(range(n))


def test_randperm_is_fair():
    wisp.manual_seed(0)
    counts = np.zeros((3, 3))
    for _ in range(3000):
        counts[np.arange(3), wisp.randperm(3).numpy()] += 1
    assert np.all(np.abs(counts - 1000) < 150)


def test_discrete_samplers():
    wisp.manual_seed(0)
    n = 100_000
    assert abs(wisp.empty(n).bernoulli_(0.3).mean().item() - 0.3) < 0.01
    assert abs(wisp.bernoulli(wisp.full((n,), 0.7)).mean().item() - 0.7) < 0.01
    for rate in (0.5, 4.0, 30.0, 1e4):
        mean, variance, _ = moments(wisp.poisson(wisp.full((n,), rate)))
        assert abs(mean / rate - 1) < 0.02 and abs(variance / rate - 1) < 0.05
    for count, p in ((5, 0.3), (40, 0.9), (1000, 0.5), (100, 0.01)):
        mean, variance, _ = moments(wisp.binomial(wisp.full((n,), float(count)), wisp.tensor(p)))
        assert abs(mean / (count * p) - 1) < 0.02 and abs(variance / (count * p * (1 - p)) - 1) < 0.05
    mean, variance, _ = moments(wisp.empty(n).geometric_(0.25))
    assert abs(mean - 4) < 0.1 and abs(variance - 12) < 0.7


def test_continuous_samplers():
    wisp.manual_seed(0)
    x = wisp.empty(100_000).exponential_(2.0)
    assert float(x.min()) > 0 and abs(moments(x)[0] - 0.5) < 0.01
    assert abs(wisp.empty(100_001).cauchy_(1.0, 2.0).median().item() - 1) < 0.1
    assert abs(wisp.empty(100_000).log_normal_(0.5, 0.25).log().mean().item() - 0.5) < 0.01


def test_multinomial():
    wisp.manual_seed(0)
    weights = wisp.tensor([1.0, 0.0, 3.0, 6.0])
    counts = np.bincount(wisp.multinomial(weights, 50_000, replacement=True).numpy(), minlength=4) / 50_000
    assert counts[1] == 0 and np.abs(counts - np.array([0.1, 0, 0.3, 0.6])).max() < 0.01
    rows = wisp.multinomial(weights.expand(2000, 4), 3)
    assert rows.shape == (2000, 3) and all(sorted(r) == [0, 2, 3] for r in rows.tolist())
    first = np.bincount(rows[:, 0].numpy(), minlength=4) / 2000
    assert abs(first[3] - 0.6) < 0.05


def test_like_and_options():
    x = wisp.ones(2, 3, dtype=wisp.float64)
    assert wisp.rand_like(x).dtype == wisp.float64 and wisp.randn_like(x, dtype=wisp.float32).dtype == wisp.float32
    assert wisp.randint_like(x, 5).shape == (2, 3)
    assert wisp.randn(2, 3, requires_grad=True).requires_grad
    out = wisp.empty(2, 3)
    assert wisp.rand(2, 3, out=out) is out
    assert wisp.rand((2, 3)).shape == wisp.rand(2, 3).shape == (2, 3) and wisp.rand(()).shape == ()


def test_in_place_samplers_and_autograd():
    leaf = wisp.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.normal_()
    with wisp.no_grad():
        leaf.normal_()
    y = leaf * 2
    y.uniform_()
    y.sum().backward()
    assert leaf.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "call,error,message",
    [
        (lambda: wisp.rand(2, dtype=wisp.int64), NotImplementedError, "\"check_uniform_bounds\" not implemented for 'Long'"),
        (lambda: wisp.randn(2, dtype=wisp.int64), NotImplementedError, "\"normal_kernel_cpu\" not implemented for 'Long'"),
        (lambda: wisp.randint(5, 5, (2,)), RuntimeError, "random_ expects 'from' to be less than 'to', but got from=5 >= to=5"),
        (lambda: wisp.randint(0, 300, (2,), dtype=wisp.uint8), RuntimeError, "to - 1 is out of bounds for unsigned char"),
        (
            lambda: wisp.multinomial(wisp.tensor([-1.0, 2]), 1),
            RuntimeError,
            "probability tensor contains either `inf`, `nan` or element < 0",
        ),
        (
            lambda: wisp.multinomial(wisp.tensor([1.0, 2]), 3),
            RuntimeError,
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        ),
        (lambda: wisp.poisson(wisp.tensor([-1.0])), RuntimeError, "invalid Poisson rate, expected rate to be non-negative"),
        (lambda: wisp.rand(2, -3), RuntimeError, "Trying to create tensor with negative dimension -3: [2, -3]"),
        (lambda: wisp.empty(3).normal_(0, -1), RuntimeError, "normal expects std >= 0.0, but found std -1"),
        (lambda: wisp.empty(3).uniform_(2, 1), RuntimeError, "uniform_ expects to return a [from, to) range, but found from=2 > to=1"),
        (lambda: wisp.empty(3).bernoulli_(2.0), RuntimeError, "bernoulli_ expects p to be in [0, 1], but got p=2"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error) as info:
        call()
    assert str(info.value) == message


@pytest.mark.parametrize("dtype, least", [(wisp.bfloat16, 1000), (wisp.float16, 4000)])
def test_uniform_of_short_types_has_all_their_values_and_not_the_end(dtype, least):
    x = wisp.empty(10000, dtype=dtype).uniform_(-100, 100)
    assert x.unique().numel() > least and abs(x.float().mean().item()) < 3
    for low, high in ((3, 4), (-2, -1), (-1, 0), (0, 2)):
        x = wisp.empty(100000, dtype=dtype).uniform_(low, high).float()
        assert low <= x.min() and x.max() < high and abs(x.mean() - (low + high) / 2) < 0.01
    assert (wisp.empty(3, dtype=dtype).uniform_(5, 5) == 5).all()


def test_a_generator_in_a_pickle_goes_on_where_it_stood():
    """In a program that has imported nothing else, too."""
    program = """
import copy, pickle, wisp
generator = wisp.Generator().manual_seed(3)
wisp.rand(5, generator=generator)
others = pickle.loads(pickle.dumps(generator)), copy.copy(generator), copy.deepcopy(generator)
expected = wisp.rand(4, generator=generator)
assert all((wisp.rand(4, generator=other) == expected).all() for other in others)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
