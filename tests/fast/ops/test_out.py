"""out= of operators that work element by element, of products, sums and joined tensors: what is written where, and what happens to memory that operands share with it."""

import subprocess
import sys

import pytest

import wisp


def numbers(n=8):
    return wisp.arange(float(n))


# name -> (the call with out=, its arguments), each by one kernel that writes where it is told
CALLS = {
    "mul": (wisp.mul, lambda: (numbers(), numbers() + 1)),
    "mul of a number": (wisp.mul, lambda: (numbers(), 3)),
    "add with a factor": (lambda x, y, out: wisp.add(x, y, alpha=3, out=out), lambda: (numbers(), numbers() + 1)),
    "exp": (wisp.exp, lambda: (numbers(),)),
    "where": (lambda x, y, out: wisp.where(x > 3, x, y, out=out), lambda: (numbers(), -numbers())),
    "clamp": (wisp.clamp, lambda: (numbers(), 2, 5)),
    "clamp to tensors": (wisp.clamp, lambda: (numbers(), wisp.full((8,), 2.0), wisp.full((8,), 5.0))),
    "pow": (wisp.pow, lambda: (numbers(), 3)),
    "lerp": (wisp.lerp, lambda: (numbers(), -numbers(), 0.25)),
    "addcmul": (wisp.addcmul, lambda: (numbers(), numbers(), numbers() + 1)),
    "div, rounded": (lambda x, y, out: wisp.div(x, y, rounding_mode="floor", out=out), lambda: (numbers(), numbers() - 3.5)),
    "softplus": (wisp.nn.functional.softplus, lambda: (numbers(),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_out_of_any_layout(name):
    call, arguments = CALLS[name]
    expected = call(*arguments(), out=wisp.empty(0)).tolist()
    frame = wisp.full((8, 3), -9.0)
    column = frame[:, 1]
    assert call(*arguments(), out=column) is column and column._version == frame._version
    assert frame.tolist() == [[-9.0, e, -9.0] for e in expected]
    turned = wisp.empty(2, 4).t()
    call(*(a.view(4, 2) if isinstance(a, wisp.Tensor) else a for a in arguments()), out=turned)
    assert turned.flatten().tolist() == expected and turned.stride() == (1, 4)
    if name in ("where", "softplus"):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float32"):
            call(*arguments(), out=wisp.empty(8, dtype=wisp.float64))
        return
    wide = call(*arguments(), out=wisp.empty(8, dtype=wisp.float64))
    assert wide.dtype == wisp.float64 and wide.tolist() == expected


@pytest.mark.parametrize("name", CALLS)
def test_every_operand_may_be_out(name):
    call, arguments = CALLS[name]
    expected = call(*arguments(), out=wisp.empty(0)).tolist()
    for i, a in enumerate(arguments()):
        if isinstance(a, wisp.Tensor):
            given = arguments()
            before = given[i]._version
            assert call(*given, out=given[i]) is given[i]
            assert given[i].tolist() == expected and given[i]._version > before


def test_out_that_meets_an_operand_somewhere_else_is_refused():
    x = numbers()
    for out in (x[1:5], x[3:7]):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            wisp.mul(x[:4], 2, out=out)
    square = numbers(9).view(3, 3)
    for operand, out in ((square, square.t()), (square[0], square), (square.view(wisp.int32), square.t())):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            wisp.add(operand, 1, out=out)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        wisp.mul(square, wisp.ones(2, 3, 3), out=square)
    assert x.tolist() == list(range(8)) and square.flatten().tolist() == list(range(9))
    wisp.mul(x[:4], 2, out=x[4:])  # beside each other
    assert x.tolist() == [0, 1, 2, 3, 0, 2, 4, 6]


def test_parts_with_gaps_between_them_are_read_to_the_end_first():
    x = numbers()
    wisp.mul(x[::2], 2, out=x[1::2])
    assert x.tolist() == [0, 0, 2, 4, 4, 8, 6, 12]
    x = numbers()
    wisp.mul(x[:6:2], 2, out=x[2::2])
    assert x.tolist() == [0, 1, 0, 3, 4, 5, 8, 7]
    square = numbers(9).view(3, 3)
    wisp.add(square, square[:, :1], out=square)
    assert square.tolist() == [[0, 1, 2], [6, 7, 8], [12, 13, 14]]


def test_the_same_bytes_as_another_dtype():
    x = wisp.ones(4)
    wisp.add(x.view(wisp.int32), 0, out=x)
    assert x.tolist() == [float(0x3F800000)] * 4
    halves = wisp.zeros(8, dtype=wisp.float16)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        wisp.add(halves[:4], 1, out=halves.view(wisp.float32))


def test_out_that_is_expanded_read_only_or_needs_a_gradient():
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        wisp.mul(numbers(3), 2, out=wisp.zeros(1).expand(3))
    with pytest.raises(RuntimeError, match="out requires grad"):
        wisp.mul(numbers(3), 2, out=wisp.zeros(3, requires_grad=True))
    with pytest.raises(RuntimeError, match="one of the arguments requires grad"):
        wisp.mul(numbers(3).requires_grad_(), 2, out=wisp.zeros(3))
    with wisp.no_grad():
        leaf = wisp.zeros(3, requires_grad=True)
        assert wisp.mul(leaf, 2, out=leaf).requires_grad and leaf.is_leaf
    with wisp.inference_mode():
        made = wisp.zeros(3)
    with pytest.raises(RuntimeError, match="inference tensor"):
        wisp.mul(numbers(3), 2, out=made)


def test_out_of_another_shape_or_dtype():
    with pytest.warns(UserWarning, match="was resized"):
        out = wisp.mul(numbers(3), 2, out=wisp.zeros(5))
    assert out.tolist() == [0, 2, 4]
    empty = wisp.empty(0)
    assert wisp.mul(numbers(3), 2, out=empty) is empty and empty.tolist() == [0, 2, 4]
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
        wisp.mul(numbers(3), 2, out=wisp.zeros(3, dtype=wisp.int64))
    # A result is rounded to its own dtype before it is cast.
    thirds = wisp.full((3,), 1 / 3, dtype=wisp.bfloat16)
    assert wisp.equal(wisp.mul(thirds, thirds, out=wisp.empty(3)), (thirds * thirds).float())


def test_sums_are_made_in_the_dtype_of_out():
    x = wisp.tensor([1.7, 1.7, 0.4])
    assert wisp.sum(x, 0, out=wisp.empty(0, dtype=wisp.int64)).item() == 2 and wisp.cumsum(
        x, 0, out=wisp.empty(3, dtype=wisp.uint8)
    ).tolist() == [1, 2, 2]
    halves = wisp.full((3,), 1 / 3, dtype=wisp.bfloat16)
    assert wisp.sum(halves, 0, out=wisp.empty(())).item() == halves.float().sum().item()
    assert wisp.mean(x.to(wisp.complex64), out=wisp.empty(0)).item() == pytest.approx(x.mean().item())
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float64"):
        wisp.sum(x, 0, dtype=wisp.float64, out=wisp.empty(()))
    with pytest.raises(RuntimeError, match="but got int instead"):
        wisp.linalg.inv(wisp.eye(2), out=wisp.empty(2, 2, dtype=wisp.int32))
    assert wisp.any(x, 0, out=wisp.empty(0, dtype=wisp.uint8)).item() == 1
    with pytest.raises(RuntimeError, match="any only supports bool tensor for result, got: Long"):
        wisp.any(x, 0, out=wisp.empty(0, dtype=wisp.int64))


def test_what_was_saved_for_backward_notices_out():
    x = numbers(3).requires_grad_()
    kept = wisp.ones(3)
    y = x * kept
    wisp.add(kept, 1, out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_out_in_a_compiled_region():
    @wisp.compile
    def f(x, y, out):
        a = x * y
        b = a + 1
        wisp.mul(b, 2, out=out)  # out is x: a and b are still to be made of it
        return a, b, out + x

    x, y = wisp.arange(100000.0), wisp.arange(100000.0) + 1
    kept = x.clone()
    a, b, c = f(x, y, x)
    assert wisp.equal(a, kept * y) and wisp.equal(b, kept * y + 1)
    assert wisp.equal(x, 2 * (kept * y + 1)) and wisp.equal(c, 2 * x)


IN_PLACE = {
    "clamp_": lambda x, y: x.clamp_(2, 5),
    "clamp_ to tensors": lambda x, y: x.clamp_(y, y + 2),
    "pow_": lambda x, y: x.pow_(y),
    "logit_": lambda x, y: x.logit_(0.1),
    "nan_to_num_": lambda x, y: x.nan_to_num_(1.0),
    "square_": lambda x, y: x.square_(),
    "threshold_": lambda x, y: wisp.threshold_(x, 3, 1),
    "round_": lambda x, y: x.round_(decimals=1),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms_of_any_layout_and_of_their_own_operands(name):
    call = IN_PLACE[name]
    plain = call(numbers() / 3, numbers() / 3).tolist()
    frame = wisp.full((8, 2), -9.0)
    frame[:, 0] = numbers() / 3
    column = frame[:, 0]
    assert call(column, numbers() / 3) is column
    assert frame.tolist() == [[e, -9.0] for e in plain]
    x = numbers() / 3
    before = x._version
    call(x, x)
    assert x.tolist() == plain and x._version > before
    shifted = numbers(9) / 3  # an operand that lies one element further on is read before it is written over
    call(shifted[:8], shifted[1:])
    assert shifted[:8].tolist() == call(numbers() / 3, (numbers() + 1) / 3).tolist()


MEMORY = """
import resource, wisp
wisp.set_num_threads(1)
n = 1 << 26
x, y, out = wisp.ones(n), wisp.ones(n), wisp.zeros(n)
{warm}
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + n * 2, resource.RLIM_INFINITY))  # half of what a tensor takes
{call}
assert out[-1].item() == {expected}, out[-1]
"""


@pytest.mark.parametrize(
    "call, expected",
    [
        ("wisp.mul(x, 3, out=out)", 3),
        ("wisp.add(x, y, alpha=2, out=out)", 3),
        ("wisp.maximum(x, y, out=out)", 1),
        ("wisp.clamp(x, 2, 5, out=out)", 2),
        ("wisp.nn.functional.hardshrink(x, out=out)", 1),
        ("out.clamp_(2, 5)", 2),
        ("out.pow_(0)", 1),
        ("wisp.mm(x[:, None], y[:1, None], out=out[:, None])", 1),
        ("out[:, None].addmm_(x[:, None], y[:1, None])", 1),
        ("wisp.sum(x[None], 0, out=out)", 1),
        ("wisp.cat((x[:5], y[5:]), out=out)", 1),
    ],
)
def test_nothing_as_large_as_the_result_is_made_beside_it(call, expected):
    warm = "small = wisp.ones(2); " + call.replace("(x", "(small").replace(", y", ", small").replace("out=out", "out=wisp.ones(2)")
    program = MEMORY.format(warm=warm.replace("out.", "small.").replace("out[", "small["), call=call, expected=float(expected))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr


def matrix(rows, columns, start=0.0):
    return (wisp.arange(float(rows * columns)) + start).view(rows, columns) % 7 - 3


# name -> (the call with out=, its arguments): kernels that read operands when parts of the result are written already
WHOLE = {
    "mm": (wisp.mm, lambda: (matrix(6, 6), matrix(6, 6, 1))),
    "mm of turned matrices": (wisp.mm, lambda: (matrix(6, 6).t(), matrix(6, 6, 1).t())),
    "matmul of a batch": (wisp.matmul, lambda: (matrix(12, 6).view(2, 6, 6), matrix(6, 6, 1))),
    "bmm": (wisp.bmm, lambda: (matrix(12, 6).view(2, 6, 6), matrix(12, 6, 1).view(2, 6, 6))),
    "addmm": (lambda x, a, b, out: wisp.addmm(x, a, b, beta=2, alpha=3, out=out), lambda: (matrix(6, 6, 2), matrix(6, 6), matrix(6, 6, 1))),
    "addmm of one row": (wisp.addmm, lambda: (matrix(1, 6, 2), matrix(6, 6), matrix(6, 6, 1))),
    "baddbmm": (wisp.baddbmm, lambda: (matrix(6, 6, 2), matrix(12, 6).view(2, 6, 6), matrix(12, 6, 1).view(2, 6, 6))),
    "sum": (lambda x, out: wisp.sum(x, 0, out=out), lambda: (matrix(24, 6).view(4, 6, 6),)),
    "mean": (lambda x, out: wisp.mean(x, (0, 3), out=out), lambda: (matrix(24, 9).view(4, 6, 1, 9),)),
    "amax": (lambda x, out: wisp.amax(x, -1, True, out=out), lambda: (matrix(6, 50),)),
    "cat": (lambda *parts, out: wisp.cat(parts, -1, out=out), lambda: (matrix(6, 2), matrix(6, 4, 1))),
    "cat of turned parts": (lambda *parts, out: wisp.cat(parts, out=out), lambda: (matrix(6, 2).t(), matrix(6, 4, 1).t())),
    "stack": (lambda *parts, out: wisp.stack(parts, 1, out=out), lambda: (matrix(6, 6), matrix(6, 6, 1))),
}


def in_dtype(arguments, dtype):
    return tuple(a.to(dtype) if isinstance(a, wisp.Tensor) else a for a in arguments())


NOT_DEFINED = [("amax", wisp.complex64), ("mean", wisp.int64)]
DTYPES = [wisp.float32, wisp.float64, wisp.complex64, wisp.bfloat16, wisp.int64]


@pytest.mark.parametrize("name, dtype", [(n, d) for n in WHOLE for d in DTYPES if (n, d) not in NOT_DEFINED])
def test_whole_results_go_to_out_of_any_layout_and_nowhere_else(name, dtype):
    call, arguments = WHOLE[name]
    expected = call(*in_dtype(arguments, dtype), out=wisp.empty(0, dtype=dtype))
    sizes = expected.shape
    frame = wisp.full([n + 2 for n in sizes], -9).to(dtype)
    inner = frame[tuple(slice(1, -1) for _ in sizes)]
    assert call(*in_dtype(arguments, dtype), out=inner) is inner and inner.tolist() == expected.tolist()
    inner.fill_(-9)
    assert (frame == -9).all()
    turned = wisp.empty(sizes[::-1], dtype=dtype).permute(*range(len(sizes))[::-1])
    before = turned._version
    assert call(*in_dtype(arguments, dtype), out=turned).tolist() == expected.tolist() and turned._version > before
    small = wisp.empty(0, dtype=dtype)
    assert call(*in_dtype(arguments, dtype), out=small).tolist() == expected.tolist() and small.is_contiguous()


@pytest.mark.parametrize("name", WHOLE)
def test_operands_that_out_writes_over_are_read_first_or_refused(name):
    call, arguments = WHOLE[name]
    expected = call(*arguments(), out=wisp.empty(0))
    for i, a in enumerate(arguments()):
        given = list(arguments())
        if a.shape == expected.shape and "cat" not in name:
            given[i] = given[i].clone()
            assert call(*given, out=given[i]).tolist() == expected.tolist()
        memory = wisp.zeros(a.numel() + expected.numel())  # out begins in the middle of the operand
        given[i] = memory[: a.numel()].view(a.shape).copy_(a)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            call(*given, out=memory[a.numel() // 2 : a.numel() // 2 + expected.numel()].view(expected.shape))
        assert given[i].tolist() == a.tolist()


def test_products_added_in_place_read_what_lies_in_the_same_memory_first():
    for a, b in ((matrix(6, 6), matrix(6, 6, 1)), (matrix(6, 6).t(), matrix(6, 6, 1).t())):
        x = matrix(6, 6, 2)
        expected = (x + a @ b).tolist()
        assert x.addmm_(a, b) is x and x.tolist() == expected and x._version == 1
        x, memory = matrix(6, 6, 2), wisp.full((8, 8), -9.0)
        inner = memory[1:-1, 1:-1].copy_(x)
        assert inner.addmm_(a, b).tolist() == expected
        inner.fill_(-9)
        assert (memory == -9).all()
    x = matrix(6, 6)
    expected = (x + x @ x).tolist()
    assert x.addmm_(x, x).tolist() == expected
    x = matrix(6, 6)
    expected = (x + x.t() @ x).tolist()
    assert x.addmm_(x.t(), x).tolist() == expected
    x = matrix(12, 6).view(2, 6, 6)
    expected = (2 * x + x @ x).tolist()
    assert x.baddbmm_(x, x, beta=2).tolist() == expected


def test_what_nonzero_takes_for_out():
    x, out = wisp.tensor([0, 1, 2]), wisp.zeros(0, dtype=wisp.int64)
    assert wisp.nonzero(x, as_tuple=False, out=out) is out and out.tolist() == [[1], [2]]
    with pytest.raises(RuntimeError, match="nonzero does not support the out kwarg when as_tuple is True"):
        wisp.nonzero(x, as_tuple=True, out=out)
    for as_tuple in (False, True):
        with pytest.raises(TypeError, match="argument 'out' must be Tensor, not list"):
            wisp.nonzero(x, as_tuple=as_tuple, out=[out])
