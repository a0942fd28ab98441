"""Padding, unfold and fold, interpolation, shuffles and grid sampling."""

import numpy as np
import pytest

import wisp
import wisp.nn.functional as F

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pad", [(1, 2), (1, 2, 3, 0), (2, 1, 0, 1, 1, 2)])
def test_pad(mode, pad):
    dims = len(pad) // 2
    x = np.random.default_rng(0).standard_normal((2, 3, *(4, 5, 6)[:dims]))
    leaf = wisp.from_numpy(x).requires_grad_()
    y = F.pad(leaf, pad, mode)
    amounts = [(0, 0), (0, 0)] + [(pad[2 * i], pad[2 * i + 1]) for i in reversed(range(dims))]
    np.testing.assert_array_equal(y.detach().numpy(), np.pad(x, amounts, mode=MODES[mode]))
    g = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(wisp.from_numpy(g))
    counter = np.pad(
        np.arange(x.size).reshape(x.shape), amounts, mode=MODES[mode], **({"constant_values": -1} if mode == "constant" else {})
    )
    expected = np.zeros(x.size + 1)
    np.add.at(expected, counter.ravel(), g.ravel())
    np.testing.assert_allclose(leaf.grad.numpy().ravel(), expected[:-1], atol=1e-12)


def test_constant_pad_crops_and_keeps_dtype():
    x = wisp.arange(12).reshape(3, 4)
    assert F.pad(x, (-1, 1, 1, -1), value=7).tolist() == [[7, 7, 7, 7], [1, 2, 3, 7], [5, 6, 7, 7]]
    assert F.pad(x > 3, (1, 0)).dtype == wisp.bool
    with pytest.raises(RuntimeError, match="negative output size"):
        F.pad(x, (-3, -3))
    with pytest.raises(RuntimeError, match="Padding size should be less than the corresponding input dimension"):
        F.pad(wisp.zeros(1, 2, 3), (3, 0), "reflect")


@pytest.mark.parametrize("kernel, dilation, padding, stride", [((2, 3), 1, 0, 1), ((3, 2), (2, 1), 1, (2, 3))])
def test_unfold_and_fold(kernel, dilation, padding, stride):
    x = wisp.randn(2, 3, 8, 9, dtype=wisp.float64, requires_grad=True)
    columns = F.unfold(x, kernel, dilation, padding, stride)
    weight = wisp.randn(4, 3, *kernel, dtype=wisp.float64)
    y = F.conv2d(x, weight, None, stride, padding, dilation)
    assert wisp.allclose((weight.flatten(1) @ columns).reshape(y.shape), y)
    g = wisp.randn(columns.shape, dtype=wisp.float64)
    columns.backward(g)
    assert wisp.allclose(x.grad, F.fold(g, (8, 9), kernel, dilation, padding, stride))
    assert wisp.allclose((columns * g).sum(), (x * F.fold(g, (8, 9), kernel, dilation, padding, stride)).sum())


def linear_reference(x, out, align):
    n = x.shape[-1]
    at = np.arange(out) * (n - 1) / max(out - 1, 1) if align else np.maximum((np.arange(out) + 0.5) * n / out - 0.5, 0)
    low = np.minimum(at.astype(int), n - 1)
    high = np.minimum(low + 1, n - 1)
    return x[..., low] * (1 - (at - low)) + x[..., high] * (at - low)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("out", [3, 7, 14, 20])
def test_linear_interpolation(align, out):
    x = np.random.default_rng(0).standard_normal((2, 2, 7))
    expected = linear_reference(x, out, align)
    leaf = wisp.from_numpy(x).requires_grad_()
    y = F.interpolate(leaf, size=out, mode="linear", align_corners=align)
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-12)
    image = np.einsum("ncw,h->nchw", x, np.arange(1.0, 6.0))
    both = F.interpolate(wisp.from_numpy(image), size=(9, out), mode="bilinear", align_corners=align).numpy()
    rows = linear_reference(np.arange(1.0, 6.0), 9, align)
    np.testing.assert_allclose(both, np.einsum("ncw,h->nchw", expected, rows), atol=1e-12)
    y.sum().backward()
    assert abs(leaf.grad.sum().item() - y.numel()) < 1e-9


def test_nearest_area_and_identity():
    x = wisp.arange(12, dtype=wisp.float32).reshape(1, 1, 3, 4)
    doubled = F.interpolate(x, scale_factor=2)
    assert wisp.equal(doubled, x.repeat_interleave(2, 2).repeat_interleave(2, 3))
    assert wisp.equal(F.interpolate(doubled, size=(3, 4), mode="area"), x)
    for mode in ("bilinear", "bicubic"):
        same = F.interpolate(x, size=(3, 4), mode=mode)
        assert wisp.allclose(same, x) and same.data_ptr() != x.data_ptr()
    # Filters reproduce a constant.
    for mode in ("bilinear", "bicubic"):
        for antialias in (False, True):
            y = F.interpolate(wisp.ones(1, 2, 9, 11), size=(4, 17), mode=mode, antialias=antialias)
            assert wisp.allclose(y, wisp.ones_like(y))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: F.interpolate(x), "either size or scale_factor should be defined"),
        (lambda x: F.interpolate(x, size=3, scale_factor=2), "only one of size or scale_factor should be defined"),
        (lambda x: F.interpolate(x, size=3, align_corners=True), "align_corners option can only be set"),
        (lambda x: F.interpolate(x, size=(1, 2, 3)), "same number of spatial dimensions"),
    ],
)
def test_interpolate_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(wisp.zeros(1, 1, 4, 4))


def test_shuffles():
    x = wisp.randn(2, 12, 3, 4)
    y = F.pixel_shuffle(x, 2)
    assert y.shape == (2, 3, 6, 8)
    assert y[1, 2, 3, 5] == x[1, 2 * 4 + 1 * 2 + 1, 1, 2]
    assert wisp.equal(F.pixel_unshuffle(y, 2), x)
    assert wisp.equal(F.channel_shuffle(x, 3)[:, :3], x[:, [0, 4, 8]])


@pytest.mark.parametrize("align", [False, True])
def test_grid_sample_of_the_identity(align):
    theta = wisp.tensor([[[1.0, 0, 0], [0, 1, 0]]], dtype=wisp.float64)
    x = wisp.randn(1, 2, 5, 6, dtype=wisp.float64)
    grid = F.affine_grid(theta, (1, 2, 5, 6), align_corners=align)
    for mode in ("bilinear", "nearest", "bicubic"):
        assert wisp.allclose(F.grid_sample(x, grid, mode, align_corners=align), x, atol=1e-10)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_gradient(mode, padding):
    random = np.random.default_rng(0)
    x = wisp.from_numpy(random.standard_normal((1, 2, 4, 5))).requires_grad_()
    grid = wisp.from_numpy(random.uniform(-1.4, 1.4, (1, 3, 3, 2))).requires_grad_()
    g = wisp.from_numpy(random.standard_normal((1, 2, 3, 3)))

    def loss(a, b):
        return (F.grid_sample(a, b, mode, padding, align_corners=False) * g).sum()

    loss(x, grid).backward()
    for tensor, which in ((x, 0), (grid, 1)):
        for index in np.ndindex(*tensor.shape):

            def at(change):
                values = [x.detach().clone(), grid.detach().clone()]
                values[which][index] += change
                return loss(*values).item()

            assert abs((at(1e-6) - at(-1e-6)) / 2e-6 - tensor.grad[index].item()) < 1e-6


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_grid_sample_of_floats_is_that_of_doubles(padding, align):
    random = np.random.default_rng(1)
    image = random.standard_normal((2, 3, 9, 13)).astype(np.float32)
    points = random.uniform(-1.5, 1.5, (2, 17, 31, 2)).astype(np.float32)
    points[0, 0, :4] = [[np.nan, 0], [1e30, 0], [-1e30, 1], [1, -1]]
    results = []
    for dtype in (wisp.float32, wisp.float64):
        x, grid = (wisp.from_numpy(a).to(dtype).requires_grad_() for a in (image, points))
        y = F.grid_sample(x, grid, padding_mode=padding, align_corners=align)
        (y * wisp.arange(y.numel(), dtype=dtype).reshape(y.shape).sin()).sum().backward()
        results.append((y.detach().double(), x.grad.double(), grid.grad.double()))
    for a, b in zip(*results, strict=True):
        assert wisp.allclose(a, b, rtol=1e-4, atol=1e-4)
    holes = wisp.from_numpy(image).clone()
    holes[:, :, 0, 0] = float("inf")  # what lies outside is not read, wherever it would be
    far = F.grid_sample(holes, wisp.full((2, 1, 1, 2), 9.0), padding_mode="zeros", align_corners=align)
    assert (far == 0).all()


def test_circular_padding_does_not_go_around_what_it_cuts_off():
    x = wisp.arange(3.0).view(1, 1, 3)
    pad = lambda *sizes: F.pad(x, sizes, mode="circular")
    assert pad(-1, 2).flatten().tolist() == [1.0, 2.0, 1.0, 2.0]
    assert pad(2, -1).flatten().tolist() == [0.0, 1.0, 0.0, 1.0]
    assert pad(-2, -1).shape == (1, 1, 0)
    for sizes in ((-1, 3), (-2, 2), (3, -1), (-3, 1), (3, -3), (-4, 2)):
        with pytest.raises(RuntimeError, match="wrapping around more than once|too small"):
            pad(*sizes)
