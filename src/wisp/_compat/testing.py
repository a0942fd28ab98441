"""What tests of libraries take from PyTorch's harness: a TestCase whose assertEqual compares tensors."""

import functools
import re
import unittest

import numpy

import wisp


class TestCase(unittest.TestCase):
    """A test case; `assertEqual` is `testing.assert_close` for tensors, arrays and what holds them."""

    precision, rel_tol = 0.0, 0.0
    maxDiff = None

    def assertEqual(self, x, y, msg=None, *, atol=None, rtol=None, equal_nan=True, exact_dtype=True, exact_device=False, **options):
        """Refuse values that are not equal; tensors, arrays and numbers may be close."""
        again = dict(atol=atol, rtol=rtol, equal_nan=equal_nan, exact_dtype=exact_dtype, exact_device=exact_device)
        if isinstance(x, dict) and isinstance(y, dict):
            super().assertEqual(set(x), set(y), msg)
            for key in x:
                self.assertEqual(x[key], y[key], msg, **again)
        elif isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
            super().assertEqual(len(x), len(y), msg)
            for one, other in zip(x, y):
                self.assertEqual(one, other, msg, **again)
        elif any(isinstance(v, (wisp.Tensor, numpy.ndarray)) for v in (x, y)) or (isinstance(x, (int, float)) and (atol or rtol)):
            if isinstance(x, wisp.Tensor) != isinstance(y, wisp.Tensor):
                x, y, exact_dtype = wisp.as_tensor(x), wisp.as_tensor(y), False
            wisp.testing.assert_close(
                x,
                y,
                atol=atol if atol is not None or rtol is None else 0.0,
                rtol=rtol if rtol is not None or atol is None else 0.0,
                equal_nan=equal_nan,
                check_dtype=exact_dtype,
                check_device=exact_device,
                msg=msg,
            )
        elif all(isinstance(v, (int, float, complex)) for v in (x, y)) and any(isinstance(v, (float, complex)) for v in (x, y)):
            # numbers are compared as float32, which they mostly come from
            close = dict(atol=1e-5, rtol=1.3e-6) if atol is None and rtol is None else dict(atol=atol or 0.0, rtol=rtol or 0.0)
            wisp.testing.assert_close(wisp.as_tensor(x), wisp.as_tensor(y), check_dtype=False, equal_nan=equal_nan, msg=msg, **close)
        else:
            super().assertEqual(x, y, msg)


def parametrize(names, values, name_fn=None):
    """Decorate a test that is to run once for each of the values (see `instantiate_parametrized_tests`)."""
    names = [name.strip() for name in names.split(",")]

    def decorate(test):
        rows = [row if len(names) > 1 else (row,) for row in values]
        test._cases = [{**dict(zip(names, row)), **rest} for row in rows for rest in getattr(test, "_cases", [{}])]
        return test

    return decorate


def instantiate_parametrized_tests(cls):
    """Give a class one test for each set of values of those that are parametrized."""
    for name, test in list(vars(cls).items()):
        if hasattr(test, "_cases"):
            delattr(cls, name)
            for case in test._cases:
                text = "_".join(f"{key}_{getattr(value, '__name__', value)}" for key, value in case.items())
                one = functools.partialmethod(test, **case)
                setattr(cls, re.sub(r"\W", "_", f"{name}_{text}"), one)
    return cls
