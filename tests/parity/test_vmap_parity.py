"""vmap of every operator of PyTorch's test database gives what a loop over the samples gives."""

import re
import warnings

import pytest
import torch
from database import database, found, label, put, samples

import wisp

SKIPPED = re.compile(
    r"dropout|rrelu|bernoulli|normal|uniform|exponential|cauchy|geometric|multinomial|rand|gumbel|fractional|_lowrank|empty|^_|"
    r"^ops\.|torch\.|sparse|linalg\.(eig|svd|qr|eigh|lstsq)|^(svd|qr|eig|lu|geqrf|ormqr|lu_solve|lu_unpack)$|as_strided|resize|"
    r"unique|nonzero|argwhere|masked_select|equal|allclose|is_same_size|result_type|can_cast|item|tolist|"
    r"broadcast_tensors|broadcast_shapes|with_distance|histogramdd|bincount|combinations|cov|corrcoef|"
    r"batch_norm|instance_norm|matrix_exp|multi_margin|histogram|gaussian_nll"
)


def loop(function, arguments, mapped, count):
    results = []
    for i in range(count):
        values = [v[i] if m else v for v, m in zip(arguments, mapped)]
        results.append(function(*values))
    first = results[0]
    if isinstance(first, (tuple, list)):
        return [wisp.stack(part) for part in zip(*results)]
    return wisp.stack(results)


def check(op, args, kwargs):
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    places = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]
    if not places or any(flat[i].numel() > 3000 for i in places):
        return False
    tensors = [put(flat[i]) for i in places]
    function = found(wisp, op.name)
    plain = [None if isinstance(v, torch.Tensor) else put(v) for v in flat]

    def run(*values):
        new = list(plain)
        for i, v in zip(places, values):
            new[i] = v
        a, k = torch.utils._pytree.tree_unflatten(new, spec)
        return function(*a, **k)

    def batch(t):
        return wisp.stack([t, t * 0.9, t] if t.is_floating_point() or t.is_complex() else [t, t, t])

    for mapped in ([True] * len(tensors), [i == 0 for i in range(len(tensors))], [i != 0 for i in range(len(tensors))]):
        if not any(mapped) or len(tensors) > 6:
            continue
        arguments = [batch(t) if m else t for t, m in zip(tensors, mapped)]
        try:
            expected = loop(run, [a.clone() for a in arguments], mapped, 3)
        except Exception:
            continue  # results that are no tensors or of different shapes
        actual = wisp.vmap(run, in_dims=tuple(0 if m else None for m in mapped))(*arguments)
        if not isinstance(expected, list):
            expected, actual = [expected], [actual]
        for a, e in zip(actual, expected):
            assert a.dtype == e.dtype
            wisp.testing.assert_close(a, e, rtol=1e-7, atol=1e-9, equal_nan=True)
    return True


@pytest.mark.parametrize("op", database(lambda op: not SKIPPED.search(op.name)), ids=label)
def test_operator(op):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = sum(check(op, args, kwargs) for args, kwargs in samples(op, torch.float64, 8))
    if not done:
        pytest.skip("nothing to compare")
