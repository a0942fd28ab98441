"""Convolution, pooling and image operators beside torch on random shapes and options, with gradients."""

import random
import warnings

import numpy as np
import pytest
import torch

import wisp

warnings.simplefilter("ignore")


def both(call, arrays, tolerance=1e-9):
    """Results and gradients of call(package, *tensors) agree in float64, or both packages refuse."""
    results = []
    for package in (torch, wisp):
        tensors = [package.from_numpy(a.copy()).requires_grad_() for a in arrays]
        try:
            y = call(package, *tensors)
        except (RuntimeError, ValueError, NotImplementedError):
            results.append(None)
            continue
        parts = y if isinstance(y, tuple) else (y,)
        weight = package.from_numpy(np.cos(np.arange(parts[0].numel(), dtype="float64")).reshape(parts[0].shape))
        (parts[0] * weight).sum().backward()
        results.append([p.detach().numpy() for p in parts] + [t.grad.numpy() for t in tensors if t.grad is not None])
    assert (results[0] is None) == (results[1] is None)
    if results[0] is not None:
        for a, b in zip(*results):
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", range(40))
def test_convolution(seed):
    draw = random.Random(seed)
    dims = draw.choice([1, 2, 2, 3])
    groups, per_in, per_out = draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 5]), draw.choice([1, 3, 8])
    kernel, stride, dilation, padding = ([draw.randint(low, high) for _ in range(dims)] for low, high in ((1, 4), (1, 3), (1, 2), (0, 2)))
    size = [draw.randint(4, {1: 40, 2: 14, 3: 7}[dims]) for _ in range(dims)]
    numbers = np.random.default_rng(seed)
    transposed = draw.random() < 0.4
    x = numbers.standard_normal((draw.randint(1, 3), (per_out if transposed else per_in) * groups, *size))
    w = numbers.standard_normal((per_out * groups, per_in, *kernel))
    b = numbers.standard_normal((per_in if transposed else per_out) * groups)

    def call(package, x, w, b):
        functional = package.nn.functional
        if transposed:
            rest = [s - 1 for s in stride]
            return getattr(functional, f"conv_transpose{dims}d")(x, w, b, stride, padding, rest, groups, dilation)
        return getattr(functional, f"conv{dims}d")(x, w, b, stride, padding, dilation, groups)

    both(call, [x, w, b])


@pytest.mark.parametrize("seed", range(30))
def test_pooling(seed):
    draw = random.Random(seed)
    dims = draw.choice([1, 2, 3])
    size = [draw.randint(3, 12) for _ in range(dims)]
    kernel = [draw.randint(1, 4) for _ in range(dims)]
    options = dict(
        stride=[draw.randint(1, 3) for _ in range(dims)], padding=[draw.randint(0, 2) for _ in range(dims)], ceil_mode=draw.random() < 0.5
    )
    out = [draw.randint(1, 5) for _ in range(dims)]
    x = np.random.default_rng(seed).standard_normal((2, 3, *size))

    def pool(name, *args, **kwargs):
        both(lambda package, t: getattr(package.nn.functional, f"{name}{dims}d")(t, *args, **kwargs), [x])

    pool("max_pool", kernel, return_indices=True, **options)
    pool("max_pool", kernel, **options)
    pool("avg_pool", kernel, count_include_pad=draw.random() < 0.5, **options)
    pool("adaptive_avg_pool", out)
    pool("adaptive_max_pool", out, return_indices=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"])
@pytest.mark.parametrize("seed", range(4))
def test_interpolation(mode, seed):
    draw = random.Random(seed)
    dims = {"linear": 1, "trilinear": 3}.get(mode, 2)
    x = np.random.default_rng(seed).standard_normal((2, 2, *[draw.randint(2, 7) for _ in range(dims)]))
    options = {"align_corners": draw.random() < 0.5} if mode.endswith(("linear", "cubic")) else {}
    if draw.random() < 0.5:
        options["size"] = [draw.randint(1, 11) for _ in range(dims)]
    else:
        options["scale_factor"] = draw.choice([0.6, 1.5, 2.0, 2.7])
    if mode in ("bilinear", "bicubic") and draw.random() < 0.5:
        options["antialias"] = True
    both(lambda package, t: package.nn.functional.interpolate(t, mode=mode, **options), [x], 1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grid_sample(mode, padding, align):
    numbers = np.random.default_rng(0)
    x, grid = numbers.standard_normal((2, 3, 5, 4)), numbers.uniform(-1.6, 1.6, (2, 3, 6, 2))
    both(lambda package, a, b: package.nn.functional.grid_sample(a, b, mode, padding, align_corners=align), [x, grid])
    if mode != "nearest":  # the derivative of the gradient

        def second(package, a, b):
            y = package.nn.functional.grid_sample(a, b, mode, padding, align_corners=align)
            return package.autograd.grad((y**2).sum(), b, create_graph=True)[0]

        both(second, [x, grid], 1e-6)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("pad", [(1, 2), (2, 0, 1, 1), (-1, 2, 0, -1), (1, 1, 2, 0, 0, 1), (3, 3), (9, 9)])
def test_pad(mode, pad):
    x = np.random.default_rng(0).standard_normal((2, 3, *[4] * (len(pad) // 2)))
    both(lambda package, t: package.nn.functional.pad(t, pad, mode), [x])
