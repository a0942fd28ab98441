"""Convolution against a plain NumPy sum, in all the shapes that take different paths through the kernels."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import wisp
import wisp.nn.functional as F


def reference(x, w, b, stride, padding, dilation, groups):
    """The definition, for [batch, channels, ...] arrays of any number of spatial dimensions."""
    dims = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    sizes = [(x.shape[2 + d] - dilation[d] * (w.shape[2 + d] - 1) - 1) // stride[d] + 1 for d in range(dims)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for tap in itertools.product(*[range(k) for k in w.shape[2:]]):
        window = tuple(slice(t * l, t * l + (n - 1) * s + 1, s) for t, l, n, s in zip(tap, dilation, sizes, stride))
        for g in range(groups):
            part = x[(slice(None), slice(g * per_in, (g + 1) * per_in)) + window]
            weight = w[(slice(g * per_out, (g + 1) * per_out), slice(None)) + tap]
            y[:, g * per_out : (g + 1) * per_out] += np.moveaxis(np.tensordot(part, weight, ([1], [1])), -1, 1)
    return y if b is None else y + b.reshape(1, -1, *[1] * dims)


# input shape, weight shape, stride, padding, dilation, groups
CASES = [
    ((2, 3, 11, 12), (6, 3, 5, 5), 1, 0, 1, 1),  # direct, small
    ((5, 6, 14, 14), (16, 6, 5, 5), 1, 0, 1, 1),  # input gradient by scattering
    ((9, 4, 5, 5), (7, 4, 5, 5), 1, 0, 1, 1),  # the kernel covers the input: a product
    ((3, 16, 14, 13), (20, 16, 3, 3), 1, 1, 1, 1),  # Winograd
    ((40, 17, 6, 5), (16, 17, 3, 3), 1, 2, 1, 1),  # Winograd on small images
    ((2, 8, 9, 9), (8, 1, 3, 3), 1, 1, 1, 8),  # depthwise
    ((2, 3, 7, 37), (3, 1, 3, 3), 1, 1, 1, 3),
    ((1, 2, 5, 6), (2, 1, 3, 3), 1, 3, 1, 2),
    ((2, 4, 21, 18), (4, 1, 5, 5), 1, 2, 1, 4),
    ((1, 2, 9, 40), (2, 1, 7, 7), 1, 3, 1, 2),
    ((1, 2, 150, 70), (2, 1, 3, 3), 1, 1, 1, 2),  # in bands
    ((2, 4, 10, 9), (6, 2, 3, 2), 2, 1, 1, 2),  # strided, grouped
    ((1, 3, 23, 21), (5, 3, 7, 7), 2, 3, 1, 1),
    ((2, 3, 12, 12), (4, 3, 3, 3), 1, 2, 2, 1),  # dilated
    ((2, 2, 12, 12), (4, 2, 2, 2), 3, 1, 2, 1),  # stride and dilation with a common part
    ((3, 40, 7, 7), (50, 40, 1, 1), 1, 0, 1, 1),  # 1x1
    ((2, 5, 8, 8), (4, 5, 1, 1), 2, 0, 1, 1),
    ((2, 3, 16, 16), (8, 3, 8, 8), 8, 0, 1, 1),  # patches
    ((3, 3, 35, 32), (24, 3, 16, 16), 16, 0, 1, 1),  # larger ones: products
    ((2, 2, 20, 23), (40, 2, 8, 6), 9, 2, 1, 1),
    ((2, 32, 4, 4), (64, 32, 3, 3), 1, 1, 1, 1),  # few positions, large weights: products with unfolded images
    ((3, 16, 7, 6), (44, 16, 5, 5), 2, 2, 1, 1),
    ((1, 24, 9, 11), (80, 24, 3, 3), 3, 0, 2, 1),
    ((2, 128, 6, 5), (128, 128, 1, 1), 2, 0, 1, 1),
    ((1, 16, 4, 5, 4), (80, 16, 2, 3, 3), 1, 1, 1, 1),
    ((3, 2, 50), (4, 2, 7), 1, 3, 1, 1),  # one dimension
    ((2, 2, 300), (3, 2, 9), 4, 0, 3, 1),
    ((2, 2, 5, 6, 7), (3, 2, 2, 3, 2), 1, 1, 1, 1),  # three dimensions
    ((1, 2, 7, 6, 5), (4, 1, 3, 2, 1), 2, 1, 1, 2),
    ((1, 3, 4, 14, 14), (7, 3, 3, 3, 3), 1, 1, 1, 1),  # vectors between planes that nobody wants
    ((1, 2, 3, 20, 12), (2, 2, 2, 5, 5), 1, 2, 1, 1),
    ((2, 3, 40, 3), (4, 3, 3, 3), 1, 0, 1, 1),  # one column of outputs: im2col
    ((0, 3, 8, 8), (4, 3, 3, 3), 1, 0, 1, 1),  # no images
]


def spread(v, dims):
    return [v] * dims


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=[str(c[0]) + str(c[1]) for c in CASES])
def test_forward_and_gradients(case, dtype):
    shape, weight_shape, stride, padding, dilation, groups = case
    dims = len(shape) - 2
    random = np.random.default_rng(0)
    x, w = random.standard_normal(shape), random.standard_normal(weight_shape)
    b = random.standard_normal(weight_shape[0])
    options = [spread(v, dims) for v in (stride, padding, dilation)]
    expected = reference(x, w, b, *options, groups)
    tensors = [wisp.from_numpy(a.astype(dtype)).requires_grad_() for a in (x, w, b)]
    conv = [F.conv1d, F.conv2d, F.conv3d][dims - 1]
    y = conv(*tensors, stride, padding, dilation, groups)
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=tolerance, atol=50 * tolerance)

    # <g, F(dx, w) + F(x, dw) + db> = <grad x, dx> + <grad w, dw> + <grad b, db>, for random directions.
    g = random.standard_normal(expected.shape)
    y.backward(wisp.from_numpy(g.astype(dtype)))
    dx, dw, db = (random.standard_normal(a.shape) for a in (x, w, b))
    for direction, tensor, change in (
        (dx, tensors[0], reference(dx, w, None, *options, groups)),
        (dw, tensors[1], reference(x, dw, None, *options, groups)),
        (db, tensors[2], np.zeros_like(expected) + db.reshape(1, -1, *[1] * dims)),
    ):
        grad = tensor.grad.numpy().astype("float64")
        scale = np.sqrt((grad**2).sum() * (direction**2).sum()) + 1e-30
        assert abs((g * change).sum() - (grad * direction).sum()) < 20 * tolerance * scale


def test_transposed_is_the_adjoint():
    random = np.random.default_rng(1)
    w = wisp.from_numpy(random.standard_normal((4, 3, 3, 2)))
    for stride, padding, dilation, groups in [(1, 0, 1, 1), (2, 1, 1, 1), (3, 0, 2, 1), (2, 1, 2, 2)]:
        x = wisp.from_numpy(random.standard_normal((2, 3 * groups, 9, 8)))
        g = F.conv2d(x, w, None, stride, padding, dilation, groups)
        y = wisp.from_numpy(random.standard_normal(g.shape))
        rest = [(x.shape[2 + d] + 2 * padding - dilation * (w.shape[2 + d] - 1) - 1) % stride for d in (0, 1)]
        back = F.conv_transpose2d(y, w, None, stride, padding, rest, groups, dilation)
        assert back.shape == x.shape
        np.testing.assert_allclose((g * y).sum().item(), (back * x).sum().item(), rtol=1e-10)


def test_second_derivative():
    random = np.random.default_rng(2)
    x = wisp.from_numpy(random.standard_normal((1, 2, 5, 5))).requires_grad_()
    w = wisp.from_numpy(random.standard_normal((3, 2, 3, 3))).requires_grad_()

    def penalty(x_value, w_value):
        y = F.conv2d(x_value, w_value, padding=1)
        (grad,) = wisp.autograd.grad((y**3).sum(), x_value, create_graph=True)
        return (grad**2).sum()

    penalty(x, w).backward()
    step = 1e-5
    for tensor in (x, w):
        for index in [(0, 0, 1, 2), (0, 1, 2, 0)]:

            def at(change):
                values = [t.detach().clone() for t in (x, w)]
                values[0 if tensor is x else 1][index] += change
                return penalty(values[0].requires_grad_(), values[1]).item()

            numeric = (at(step) - at(-step)) / (2 * step)
            assert abs(numeric - tensor.grad[index].item()) < 1e-5 * abs(numeric)


def test_layouts_and_unbatched():
    x = wisp.arange(2 * 3 * 6 * 7, dtype=wisp.float32).reshape(2, 3, 6, 7) / 50
    w = wisp.arange(4 * 3 * 3 * 3, dtype=wisp.float32).reshape(4, 3, 3, 3) / 50
    y = F.conv2d(x, w)
    for other in (x.transpose(2, 3).contiguous().transpose(2, 3), wisp.cat([x, x], 1)[:, :3]):
        assert wisp.equal(F.conv2d(other, w), y)
    assert wisp.equal(F.conv2d(x[0], w), y[0]) or wisp.allclose(F.conv2d(x[0], w), y[0])
    assert wisp.allclose(F.conv2d(x[:1].expand(3, 3, 6, 7), w)[2], y[0])


def test_padding_names():
    x, w = wisp.randn(1, 2, 9, 9), wisp.randn(3, 2, 4, 3)
    assert F.conv2d(x, w, padding="valid").shape == (1, 3, 6, 7)
    same = F.conv2d(x, w, padding="same", dilation=2)
    assert same.shape == (1, 3, 9, 9)
    assert wisp.allclose(same, F.conv2d(F.pad(x, (2, 2, 3, 3)), w, dilation=2), atol=1e-5)
    with pytest.raises(RuntimeError, match="not supported for strided"):
        F.conv2d(x, w, padding="same", stride=2)


def test_integers_wrap_and_halves_round_once():
    x = wisp.full((1, 1, 3), 2**62)
    assert F.conv1d(x, wisp.tensor([[[2, 2]]])).tolist() == [[[0, 0]]]
    a, b = wisp.randn(1, 8, 6, 6), wisp.randn(4, 8, 3, 3)
    y = F.conv2d(a.bfloat16(), b.bfloat16())
    assert wisp.equal(y, F.conv2d(a.bfloat16().float(), b.bfloat16().float()).bfloat16())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (((3, 8), (6, 3, 5, 5)), r"Expected 3D \(unbatched\) or 4D \(batched\) input to conv2d, but got input of size: \[3, 8\]"),
        (
            ((1, 4, 8, 8), (6, 3, 5, 5)),
            r"Given groups=1, weight of size \[6, 3, 5, 5\], expected input\[1, 4, 8, 8\] to "
            "have 3 channels, but got 4 channels instead",
        ),
        (
            ((1, 3, 2, 2), (6, 3, 5, 5)),
            r"Calculated padded input size per channel: \(2 x 2\). Kernel size: \(5 x 5\). "
            "Kernel size can't be greater than actual input size",
        ),
        (((1, 3, 8, 8), (6, 3, 5, 5), (5,)), r"expected bias to be 1-dimensional with 6 elements, but got bias of size \[5\]"),
        (((1, 3, 8, 8), (6, 3, 5, 5), None, 0), "non-positive stride is not supported"),
        (((1, 3, 8, 8), (6, 3, 5, 5), None, 1, -1), "negative padding is not supported"),
        (((1, 3, 8, 8), (6, 3, 5, 5), None, 1, 0, 0), "non-positive dilation is not supported"),
        (((1, 3, 8, 8), (6, 3, 5, 5), None, 1, 0, 1, 4), "Given groups=4, expected weight to be divisible by 4"),
        (((1, 3, 8, 8), (6, 3, 5, 5), None, (1, 2, 3)), "expected stride to be a single integer value or a list of 2 values"),
    ],
)
def test_errors(arguments, message):
    tensors = [wisp.zeros(a) if i < 3 and a is not None else a for i, a in enumerate(arguments)]
    with pytest.raises(RuntimeError, match=message):
        F.conv2d(*tensors)


def test_threads_do_not_change_results():
    program = """if True:
        import hashlib, numpy, wisp, wisp.nn.functional as F
        random = numpy.random.default_rng(0)
        for padding in (0, 1):
            x, w = (wisp.from_numpy(random.standard_normal(shape).astype("float32")).requires_grad_()
                    for shape in ((6, 20, 20, 20), (24, 20, 3, 3)))
            y = F.conv2d(x, w, padding=padding, stride=2 - padding)
            y.square().sum().backward()
            print([hashlib.sha256(t.numpy().tobytes()).hexdigest() for t in (y.detach(), x.grad, w.grad)])
    """
    results = [
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, env={**os.environ, "WISP_NUM_THREADS": threads}
        ).stdout
        for threads in "123"
    ]
    assert results[0] and results[0] == results[1] == results[2]


def test_every_instruction_set_that_was_built():
    """The same tests, in a process that is told to use fewer instructions. (`.ci/run` builds all sets, an installation that of the machine.)"""
    if os.environ.get("WISP_ISA"):
        return
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", "gradients"]
    for isa in wisp._core._built_instruction_sets().split():
        subprocess.run(command, check=True, env={**os.environ, "WISP_ISA": isa}, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_of_any_dimension(dims, transposed):
    x = wisp.randn(2, 4, *[6] * dims, requires_grad=True)
    weight, bias = wisp.randn(4, 2, *[3] * dims), wisp.randn(4)
    found = wisp.convolution(x, weight, bias, [2] * dims, [1] * dims, [1] * dims, transposed, [1 if transposed else 0] * dims, 2)
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    known = {"output_padding": 1} if transposed else {}
    expected = getattr(wisp.nn.functional, name)(x, weight, bias, stride=2, padding=1, groups=2, **known)
    assert wisp.equal(found, expected)
    (gradient,) = wisp.autograd.grad(found.sum(), x)
    assert wisp.equal(gradient, wisp.autograd.grad(expected.sum(), x)[0])
    with pytest.raises(RuntimeError, match="3, 4 or 5 dimensions"):
        wisp.convolution(x, wisp.ones(2, 2), None, [1], [0], [1], False, [0], 1)
