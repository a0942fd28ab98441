"""The tolerances of `assert_close`, where tests of libraries ask for them."""

import wisp
from wisp.testing import _tolerances, assert_allclose, assert_close

__all__ = ["assert_allclose", "assert_close", "default_tolerances", "get_tolerances"]


def default_tolerances(*inputs, dtype_precisions=None):
    """The larger (rtol, atol) of the dtypes of some tensors, or of dtypes.

    >>> import wisp
    >>> from wisp.testing._comparison import default_tolerances
    >>> default_tolerances(wisp.float32, wisp.ones(1, dtype=wisp.float64))
    (1.3e-06, 1e-05)
    """
    dtypes = [value.dtype if isinstance(value, wisp.Tensor) else value for value in inputs]
    if any(not isinstance(dtype, wisp.dtype) for dtype in dtypes):
        raise TypeError(f"Expected a torch.Tensor or a torch.dtype, but got {[type(value).__name__ for value in inputs]}")
    if dtype_precisions is not None:
        pairs = [dtype_precisions.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)
    return _tolerances(*(str(dtype).rpartition(".")[2] for dtype in dtypes))


def get_tolerances(*inputs, rtol, atol, id=()):
    """(rtol, atol) as given, or those of the dtypes; one alone is refused.

    >>> import wisp
    >>> from wisp.testing._comparison import get_tolerances
    >>> get_tolerances(wisp.float64, rtol=None, atol=None)
    (1e-07, 1e-07)
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    return default_tolerances(*inputs) if rtol is None else (rtol, atol)
