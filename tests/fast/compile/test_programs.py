"""Random programs give the same bits in a compiled region as eagerly (on a GPU but for the order of sums): forward, backward, views, in-place writes, control flow."""

import random

import pytest

import wisp
from wisp.nn import functional as F

UNARY = [wisp.exp, wisp.tanh, wisp.sigmoid, wisp.abs, wisp.neg, wisp.square, F.gelu, F.silu, F.relu, wisp.cos, wisp.sign, wisp.log1p]
BINARY = [wisp.add, wisp.sub, wisp.mul, wisp.maximum, wisp.atan2, lambda a, b: a / (b.abs() + 1)]
SHAPES = [(6, 70), (1, 70), (70,), (6, 1), (), (2, 6, 70)]


@pytest.fixture(autouse=True)
def everything_is_noted():
    before = wisp._core._set_worth_noting(0)
    yield
    wisp._core._set_worth_noting(before)


class Twice(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2 + x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 + g * x.cos()


def step(r, values, leaves):
    """One random operator on values made before; the same for the same state of r."""
    pick = lambda: values[r.randrange(len(values))]  # noqa: E731
    kind = r.randrange(28)
    x = pick()
    if kind < 6:
        y = r.choice(UNARY)(x * 0.1 if x.is_floating_point() else x.float() * 0.1)
    elif kind < 11:
        other = pick()
        try:
            y = r.choice(BINARY)(x, other)
        except RuntimeError:
            return
        if y.numel() > 4000:
            return
    elif kind == 11:
        y = x * r.choice([2, 0.5, -1.25]) + r.choice([1, 0.5])
    elif kind == 12:
        y = x.to(r.choice([wisp.float64, wisp.bfloat16, wisp.float16, wisp.float32]))
    elif kind == 13:
        y = wisp.where(x > 0, x, r.choice([0.0, x * 0.1]))
    elif kind == 14:
        y = x.sum(-1, keepdim=r.random() < 0.5) * 0.01 if x.dim() else x
    elif kind == 15:
        y = x.mean(-1, keepdim=True) if x.is_floating_point() and x.dim() else x
    elif kind == 16:
        y = x.transpose(-1, -2) if x.dim() > 1 else x.unsqueeze(0)
    elif kind == 17:
        y = x[..., ::2] if x.dim() else x
    elif kind == 18:
        y = x.reshape(-1) if r.random() < 0.5 else x.expand(*((2,) + tuple(x.shape))) if x.numel() < 500 else x.clone()
    elif kind == 19:  # in place, on a value of its own
        y = x * 1.5
        view = y.view(-1)[: max(1, y.numel() // 2)] if y.is_contiguous() and y.dim() else y
        kept = y + 1
        r.choice([lambda: view.add_(1), lambda: view.mul_(0.5), lambda: view.copy_(view.detach() * 2), lambda: y.clamp_(-1, 1)])()
        y = y + kept
    elif kind == 20:  # control flow on values
        y = x * 2 if float(x.float().sum()) > 0 else x - 1
    elif kind == 21:
        with wisp.no_grad():
            y = x.float().exp().clamp(max=3) if x.is_floating_point() else x.float()
    elif kind == 22:
        y = Twice.apply(x.float() * 0.1)
    elif kind == 23:
        y = F.softmax(x.float(), -1) if x.dim() else x.float().sqrt()
    elif kind == 24:  # halves turned, as rotary embeddings do
        if not x.dim() or x.shape[-1] % 2:
            return
        a, b = x.chunk(2, -1)
        y = x * 1.5 + wisp.cat([-b, a], -1) * 0.5
    elif kind == 25:
        if not x.dim() or x.numel() > 1000:
            return
        dim = r.randrange(x.dim())
        y = wisp.cat([x * 0.5, x, x.narrow(dim, 0, 1) + 1], dim)
        y = y.narrow(dim, 1, y.shape[dim] - 2) * 2 if r.random() < 0.5 else y
    elif kind == 26:
        y = (x * 2).transpose(0, -1).contiguous() if x.dim() > 1 else x
    else:
        y = (x.unsqueeze(-2) - 1).transpose(0, -2).reshape(-1, x.shape[-1]) if x.dim() > 1 else x
    if y.is_floating_point() and not bool(wisp.isfinite(y.detach()).all()) and r.random() < 0.5:
        return
    values.append(y)


def forward(seed, leaves):
    r = random.Random(seed)
    values = list(leaves)
    for _ in range(r.randrange(3, 18)):
        step(r, values, leaves)
        if r.random() < 0.2 and len(values) > 8:
            del values[r.randrange(6, len(values))]
    return values[6:], sum(v.float().tanh().sum() * 0.1 for v in values[-3:])


def run(seed, leaves):
    values, loss = forward(seed, leaves)
    if loss.requires_grad:
        loss.backward()
    return values, loss


def run_apart(seed, leaves, around=lambda f: f):
    """Only the forward pass in a region, and things that may happen until backward."""
    r = random.Random(seed + 1)

    @around
    def only(seed):
        values, loss = forward(seed, leaves)
        return values[-1:] if r.random() < 0.5 else [], loss

    values, loss = only(seed)
    for _ in range(r.randrange(4)):
        kind, x = r.randrange(9), leaves[r.randrange(len(leaves))]
        if kind == 0:
            values.append(x * 2)
        elif kind == 1 and not x.requires_grad:
            x.mul_(2)  # an error in backward, if that needs it
        elif kind == 2:
            x.data.add_(1)  # seen by nobody
        elif kind == 3 and loss.requires_grad:
            wanted = [y for y in leaves if y.requires_grad]
            attempt(lambda: values.extend(wisp.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)), values)  # noqa: B023
        elif kind == 4:
            again, other = only(seed + 7)
            values += again
            if other.requires_grad and r.random() < 0.5:
                attempt(other.backward, values)
        elif kind == 5:
            x.detach().numpy() if x.dtype != wisp.bfloat16 and not x.is_cuda else x.tolist()
        elif kind == 6:
            only(seed + 11)
        elif kind == 7:
            with wisp.no_grad():
                values += only(seed + 3)[0]
        else:
            wisp.compiler.reset()
    if loss.requires_grad:
        before = len(values)
        attempt(lambda: loss.backward(retain_graph=True), values)
        if r.random() < 0.5:
            attempt(loss.backward, values)
        if len(values) > before:  # which gradients there are when another one fails is open
            for x in leaves:
                x.grad = None
    return [v for v in values if v is not None], loss


def attempt(f, values):
    """Errors count as values, up to whose it is: of several the first that backward comes upon is raised."""
    try:
        f()
    except RuntimeError as error:
        values.append(wisp.tensor([ord(c) for c in str(error).split("[")[0]]))


def made(seed):
    g = wisp.Generator().manual_seed(seed)
    leaves = [wisp.randn(shape, generator=g).requires_grad_(i % 3 != 2) for i, shape in enumerate(SHAPES)]
    return [x.detach().to(wisp.bfloat16).requires_grad_() if (seed + i) % 7 == 0 else x for i, x in enumerate(leaves)]


def steps(x):
    """Its strides, but for dimensions of one element, along which nobody steps."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size != 1]


def same(a, b):
    if a is None or b is None:
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape or steps(a) != steps(b):
        return False
    if not a.is_floating_point():
        return wisp.equal(a, b)
    numbers = a.nan_to_num(), b.nan_to_num()
    if a.is_cuda and a.numel():  # programs add the elements of a row in an order of their own
        scale = float(numbers[0].abs().max())
        return wisp.allclose(*numbers, rtol=1e-3 if a.element_size() > 2 else 0.02, atol=(1e-4 if a.element_size() > 2 else 0.02) * scale)
    return wisp.equal(a.isnan(), b.isnan()) and wisp.equal(*numbers)


def compared(ours, theirs):
    """-> where the results of a program on two sets of leaves differ, or None."""
    (plain, (values, loss)), (noted, (their_values, their_loss)) = ours, theirs
    if len(values) != len(their_values):
        return "values"
    for i, (a, b) in enumerate(zip(values, their_values)):
        if not same(a.detach(), b.detach()):
            return "value", i
        if a.requires_grad != b.requires_grad or str(a.grad_fn).split(" ")[0] != str(b.grad_fn).split(" ")[0]:
            return "graph", i
    if not same(loss.detach(), their_loss.detach()):
        return "loss"
    return next((("gradient", i) for i, (a, b) in enumerate(zip(plain, noted)) if not same(a.grad, b.grad)), None)


def magnifies_rounding(seed, run=run):
    """Whether eager's results change as much when the last bit of its leaves does: a sign of almost 0, a choice by a sum."""

    def results(sign):
        leaves = made(seed)
        with wisp.no_grad():
            for x in leaves:
                x.mul_(1 + sign * 1e-7 * wisp.arange(x.numel()).reshape(x.shape).mul(7).remainder(3).sub(1))
        return leaves, run(seed, leaves)

    return any(compared(results(0), results(sign)) for sign in (1, -1, 2, -2))


@pytest.mark.parametrize("part", range(20))
def test_random_programs(part):
    for seed in range(part * 20, part * 20 + 20):
        plain, noted = made(seed), made(seed)
        wrong = compared((plain, run(seed, plain)), (noted, wisp.compile(run)(seed, noted)))
        assert wrong is None or plain[0].is_cuda and magnifies_rounding(seed), (seed, wrong)


@pytest.mark.parametrize("part", range(10))
def test_random_programs_whose_backward_comes_later(part):
    for seed in range(part * 20, part * 20 + 20):
        plain, noted = made(seed), made(seed)
        wrong = compared((plain, run_apart(seed, plain)), (noted, run_apart(seed, noted, wisp.compile)))
        assert wrong is None or plain[0].is_cuda and magnifies_rounding(seed, run_apart), (seed, wrong)
