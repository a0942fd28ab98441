"""Forward mode against PyTorch's: jvp of every operator of its test database that both have, and nested transforms."""

import re
import warnings

import pytest
import torch
from database import database, found, label, put, samples

import wisp
from wisp.func import grad, hessian, jacfwd, jacrev, jvp

# Random operators; those whose derivative is not unique (phases of eigenvectors, several indices for one place, a
# triangle of a symmetric argument) or not finite; triangular_solve and logcumsumexp, where PyTorch's forward mode is
# wrong (compare difference quotients); those with other functions or several views of one storage as arguments.
SKIPPED = re.compile(
    r"dropout|rrelu|bernoulli|normal|uniform|exponential|cauchy|geometric|multinomial|rand|gumbel|fractional|_lowrank|"
    r"ormqr|geqrf|householder|lstsq|linalg\.(eig|svd|qr|eigh|lu|ldl|cholesky)|^(svd|qr|eig|lu|lu_solve|lu_unpack)$|sparse|"
    r"empty|^_|^ops\.|torch\.|chalf|as_strided|max_unpool|triangular_solve|logcumsumexp|with_distance|^var"
)


def leaves_of(args, kwargs):
    """Floating tensors among the arguments, with a way to call f with others in their place."""
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    places = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor) and (v.is_floating_point() or v.is_complex())]
    return flat, spec, places


def only_differentiable(result):
    parts = result if isinstance(result, (tuple, list)) else [result]
    return tuple(p for p in parts if isinstance(p, (torch.Tensor, wisp.Tensor)) and (p.is_floating_point() or p.is_complex()))


def check(op, args, kwargs, function):
    flat, spec, places = leaves_of(args, kwargs)
    if not places or any(flat[i].numel() > 2000 for i in places):
        return False
    generator = torch.Generator().manual_seed(1)
    points = [flat[i].detach() for i in places]
    tangents = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in points]

    def run(f, values, convert):
        new = [convert(v) for v in flat]
        for i, v in zip(places, values):
            new[i] = v
        a, k = torch.utils._pytree.tree_unflatten(new, spec)
        return only_differentiable(f(*a, **k))

    try:
        expected = torch.func.jvp(lambda *v: run(op.op, v, lambda x: x), tuple(points), tuple(tangents))
    except Exception:
        return False  # PyTorch has no forward formula for this, or refuses functions of this kind
    actual = jvp(lambda *v: run(function, v, put), put(tuple(points)), put(tuple(tangents)))
    for which in (0, 1):
        assert len(actual[which]) == len(expected[which])
        for a, e in zip(actual[which], expected[which]):
            e = put(e)
            assert tuple(a.shape) == tuple(e.shape)
            wisp.testing.assert_close(a, e.to(a.dtype), rtol=1e-6, atol=1e-7, equal_nan=True)
    return True


@pytest.mark.parametrize("op", database(lambda op: op.supports_forward_ad and not SKIPPED.search(op.name)), ids=label)
def test_operator(op):
    torch.manual_seed(0)
    count = 0
    for dtype in (torch.float64, torch.complex128):
        done = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for args, kwargs in samples(op, dtype, 12):
                if done < 4:
                    done += check(op, args, kwargs, found(wisp, op.name))
        count += done
    if not count:
        pytest.skip("nothing to compare")


def test_transforms_agree_with_torch():
    x, t = torch.tensor([0.3, 1.2, -0.7], dtype=torch.float64), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)

    def f(x):
        return (x.sin() * x.prod()).softmax(0).log().square().sum()

    def g(x):
        return x.outer(x).tanh()

    points, direction = put(x), put(t)
    pairs = [
        (jvp(f, (points,), (direction,)), torch.func.jvp(f, (x,), (t,))),
        (jacfwd(g)(points), torch.func.jacfwd(g)(x)),
        (hessian(f)(points), torch.func.hessian(f)(x)),
        (jacrev(jacfwd(f))(points), torch.func.hessian(f)(x)),
        (jacfwd(jacfwd(jacfwd(f)))(points), torch.func.jacfwd(torch.func.hessian(f))(x)),
        (grad(lambda x: jvp(f, (x,), (direction,))[1])(points), torch.func.jvp(torch.func.grad(f), (x,), (t,))[1]),
        (jvp(grad(f), (points,), (direction,)), torch.func.jvp(torch.func.grad(f), (x,), (t,))),
    ]
    for actual, expected in pairs:
        for a, e in zip(*((v if isinstance(v, tuple) else (v,)) for v in (actual, expected))):
            wisp.testing.assert_close(a, put(e), rtol=1e-8, atol=1e-10)


def test_modules_agree_with_torch():
    torch.manual_seed(0)
    reference = (
        torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.GELU(),
            torch.nn.Flatten(),
            torch.nn.Linear(36, 5),
            torch.nn.LayerNorm(5),
            torch.nn.LogSoftmax(-1),
        )
        .double()
        .eval()
    )
    model = (
        wisp.nn.Sequential(
            wisp.nn.Conv2d(2, 4, 3),
            wisp.nn.BatchNorm2d(4),
            wisp.nn.GELU(),
            wisp.nn.Flatten(),
            wisp.nn.Linear(36, 5),
            wisp.nn.LayerNorm(5),
            wisp.nn.LogSoftmax(-1),
        )
        .double()
        .eval()
    )
    model.load_state_dict({k: put(v) for k, v in reference.state_dict().items()})
    x, t = torch.randn(3, 2, 5, 5, dtype=torch.float64), torch.randn(3, 2, 5, 5, dtype=torch.float64)
    with torch.no_grad(), wisp.no_grad():
        expected = torch.func.jvp(reference, (x,), (t,))
        actual = jvp(model, (put(x),), (put(t),))
    for a, e in zip(actual, expected):
        assert not a.requires_grad
        wisp.testing.assert_close(a, put(e), rtol=1e-8, atol=1e-10)
