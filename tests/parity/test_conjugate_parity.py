"""Operators on conjugate views give what they give on the conjugate values; writes reach the base, as in PyTorch."""

import re
import warnings

import pytest
import torch
from database import database, found, label, put, samples

import wisp

SKIPPED = re.compile(
    r"dropout|bernoulli|normal|uniform|exponential|cauchy|geometric|multinomial|rand|_lowrank|empty|^_|^ops\.|torch\.|sparse|"
    r"as_strided|resize|^(is_conj|view_as_real|item|tolist)$|linalg\.(eig|svd|qr|eigh|lstsq)|^(svd|qr|eig|geqrf|ormqr)$|hash_tensor"
)


def flat(result):
    if isinstance(result, wisp.Tensor):
        return [result]
    return [t for part in result for t in flat(part)] if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize(
    "op", database(lambda op: torch.complex128 in op.supported_dtypes("cpu") and not SKIPPED.search(op.name)), ids=label
)
def test_operator(op):
    torch.manual_seed(0)
    function, done = found(wisp, op.name), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args, kwargs in samples(op, torch.complex128, 6):
            args, kwargs = put(args), put(kwargs)

            def changed(value, how):
                if isinstance(value, wisp.Tensor):
                    return how(value) if value.is_complex() else value
                if isinstance(value, (list, tuple)):
                    return type(value)(changed(v, how) for v in value)
                return value

            lazy = changed(args, lambda t: t.conj_physical().conj())
            try:
                expected = flat(function(*args, **kwargs))
            except Exception:
                continue
            for e, a in zip(expected, flat(function(*lazy, **kwargs))):
                if isinstance(e, wisp.Tensor):
                    wisp.testing.assert_close(a.resolve_conj(), e.resolve_conj(), rtol=1e-9, atol=1e-10, equal_nan=True)
                else:
                    assert a == e
            done += 1
            name = op.name + "_"
            if hasattr(wisp.Tensor, name) and isinstance(args[0], wisp.Tensor) and args[0].is_complex() and args[0].numel():
                try:
                    written = getattr(args[0].clone(), name)(*args[1:], **kwargs)
                except Exception:
                    continue
                base = args[0].conj_physical()
                try:
                    getattr(base.conj(), name)(*lazy[1:], **kwargs)
                except RuntimeError as error:
                    assert "conjugate view" in str(error)
                    continue
                wisp.testing.assert_close(base.conj().resolve_conj(), written, rtol=1e-9, atol=1e-10, equal_nan=True)
    if not done:
        pytest.skip("nothing to compare")
