"""Helpers for tests: comparison of nested values, random tensors."""

import cmath
import collections.abc
import math
import warnings

import numpy

import wisp
from wisp import _reference
from wisp._tensor import has_shells
from wisp.testing._file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]

_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def _tolerances(*names):
    """The larger tolerances of some dtypes; integers are compared exactly."""
    pairs = [_TOLERANCES.get(name, (0.0, 0.0)) for name in names]
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


class _Mismatch(Exception):
    """The text of a failure, and where in a nested value it occurred."""

    def __init__(self, text, path):
        super().__init__(text)
        self.text, self.path = text, path


class _Options:
    def __init__(self, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses):
        if (rtol is None) != (atol is None):
            missing = "rtol" if rtol is None else "atol"
            raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
        self.rtol, self.atol = (value.item() if isinstance(value, wisp.Tensor) else value for value in (rtol, atol))
        self.equal_nan = equal_nan
        self.check_device, self.check_dtype = check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride
        self.allow_subclasses = allow_subclasses

    def tolerances(self, *names):
        return _tolerances(*names) if self.rtol is None else (self.rtol, self.atol)


def assert_close(
    actual,
    expected,
    *,
    allow_subclasses=True,
    rtol=None,
    atol=None,
    equal_nan=False,
    check_device=True,
    check_dtype=True,
    check_layout=True,
    check_stride=False,
    msg=None,
):
    """Raise an AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Tensors, NumPy arrays, numbers, and lists and dicts of them can be compared; types, dtypes and shapes must agree.
    The tolerances depend on the dtype unless given. `msg` is the text of the error, or a function of the usual text.
    """
    options = _Options(rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses)
    try:
        _compare(actual, expected, options, ())
    except _Mismatch as mismatch:
        text = mismatch.text
        if mismatch.path:
            text += "\n\nThe failure occurred for item " + "".join(f"[{key!r}]" for key in mismatch.path)
        raise AssertionError(msg(text) if callable(msg) else text if msg is None else msg) from None


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """As `assert_close`, without a check of dtypes and devices (deprecated)."""
    to_tensor = wisp.as_tensor
    assert_close(
        to_tensor(actual),
        to_tensor(expected),
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )


def _compare(actual, expected, options, path):
    sequence = collections.abc.Sequence
    if isinstance(actual, str) or isinstance(expected, str):
        pass
    elif isinstance(actual, sequence) and isinstance(expected, sequence):
        if len(actual) != len(expected):
            raise _Mismatch(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path)
        for i, pair in enumerate(zip(actual, expected)):
            _compare(*pair, options, (*path, i))
        return
    elif isinstance(actual, collections.abc.Mapping) and isinstance(expected, collections.abc.Mapping):
        missing = sorted((key for key in expected if key not in actual), key=repr)
        additional = sorted((key for key in actual if key not in expected), key=repr)
        if missing or additional:
            raise _Mismatch(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {additional}",
                path,
            )
        for key in expected:
            _compare(actual[key], expected[key], options, (*path, key))
        return
    if actual is None or expected is None:
        if actual is not expected:
            raise _Mismatch(f"None mismatch: {actual} is not {expected}", path)
        return
    kinds = (bool, numpy.bool_)
    if isinstance(actual, kinds) and isinstance(expected, kinds):
        if bool(actual) is not bool(expected):
            raise _Mismatch(f"Booleans mismatch: {bool(actual)} is not {bool(expected)}", path)
        return
    kinds = (int, float, complex, numpy.number)
    if isinstance(actual, kinds) and isinstance(expected, kinds):
        _compare_numbers(actual, expected, options, path)
        return
    kinds = (wisp.Tensor, numpy.ndarray)
    if isinstance(actual, kinds) and isinstance(expected, kinds):
        if options.allow_subclasses or type(actual) is type(expected):
            _compare_tensors(wisp.as_tensor(actual), wisp.as_tensor(expected), options, path)
            return
    raise TypeError(
        f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}." + (f" (at {path})" if path else "")
    )


def _compare_numbers(actual, expected, options, path):
    actual, expected = (value.item() if isinstance(value, numpy.number) else value for value in (actual, expected))
    if options.check_dtype and type(actual) is not type(expected):
        raise _Mismatch(f"The (d)types do not match: {type(actual)} != {type(expected)}.", path)
    names = [
        "complex128" if isinstance(value, complex) else "float64" if isinstance(value, float) else "int64" for value in (actual, expected)
    ]
    _check_scalars(complex(actual), complex(expected), actual, expected, options, options.tolerances(*names), path)


def _check_scalars(a, b, actual, expected, options, tolerances, path):
    rtol, atol = tolerances
    if a == b or abs(a - b) <= atol + rtol * abs(b) < math.inf or options.equal_nan and cmath.isnan(a) and cmath.isnan(b):
        return
    difference = abs(actual - expected)
    relative = difference / abs(expected) if expected != 0 else math.inf
    exact = rtol == 0 and atol == 0
    allowed = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    raise _Mismatch(
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{allowed[0]}\nRelative difference: {relative}{allowed[1]}",
        path,
    )


def _compare_tensors(actual, expected, options, path):
    def same(name, first, second):
        if first != second:
            raise _Mismatch(f"The values for attribute '{name}' do not match: {first} != {second}.", path)

    same("shape", actual.shape, expected.shape)
    if options.check_layout:
        same("layout", actual.layout, expected.layout)
    if options.check_stride:
        same("stride()", tuple(actual.stride()), tuple(expected.stride()))
    if options.check_device:
        same("device", actual.device, expected.device)
    if options.check_dtype:
        same("dtype", actual.dtype, expected.dtype)
    if has_shells([actual, expected]):  # made of other tensors: their class answers operators, and has no memory to look at
        rtol, atol = options.tolerances(*(str(t.dtype).rsplit(".", 1)[-1] for t in (actual, expected)))
        if not wisp.all(wisp.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=options.equal_nan)):
            raise _Mismatch("Tensor-likes are not close!", path)
        return
    tolerances = rtol, atol = options.tolerances(*(str(t.dtype).rsplit(".", 1)[-1] for t in (actual, expected)))
    a, b = _array(actual), _array(expected)
    if a.dtype != b.dtype:
        a, b = (value.astype(numpy.result_type(a, b)) for value in (a, b))
    if a.ndim == 0:
        _check_scalars(complex(a), complex(b), a.item(), b.item(), options, tolerances, path)
        return
    exact = rtol == 0 and atol == 0
    with numpy.errstate(all="ignore"):
        difference, size = _difference(a, b), numpy.abs(b)
        close = (a == b) | (difference <= atol + rtol * size) & numpy.isfinite(size) if not exact else a == b
        if options.equal_nan:
            close |= numpy.isnan(a) & numpy.isnan(b)
        if close.all():
            return
        difference = numpy.where(close, 0, difference)
        relative = numpy.where(
            close,
            0,
            difference / size if size.dtype.kind in "fc" else numpy.divide(difference, size, dtype=numpy.float64).astype(numpy.float32),
        )
    if actual.dtype == expected.dtype and actual.dtype.itemsize == 1 and actual.dtype.is_floating_point:  # differences say little
        place = tuple(map(int, numpy.argwhere(~close)[0]))
        raise _Mismatch(f"Tensor-likes are not 'equal'!\n\nThe first mismatched element is at index {place}.", path)
    lines = [
        f"Tensor-likes are not {'equal' if exact else 'close'}!",
        "",
        f"Mismatched elements: {(~close).sum()} / {close.size} ({100 * (~close).mean():.1f}%)",
    ]
    for name, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
        place = numpy.unravel_index(values.argmax(), values.shape)  # argmax finds a NaN first
        lines.append(
            f"Greatest {name} difference: {values[place].item()} at index {tuple(map(int, place))}"
            + ("" if exact else f" (up to {allowed} allowed)")
        )
    raise _Mismatch("\n".join(lines), path)


def _array(tensor):
    tensor = tensor.detach().cpu()
    if getattr(tensor, "is_sparse", False):
        tensor = tensor.to_dense()
    if tensor.dtype == wisp.complex32:
        tensor = tensor.cfloat()
    elif tensor.dtype.is_floating_point and tensor.dtype not in (wisp.float16, wisp.float32, wisp.float64):
        tensor = tensor.float()
    array = (tensor.resolve_conj() if tensor.is_complex() else tensor).numpy()
    small = array.dtype.kind in "biu" and array.itemsize < 8
    return array.astype(numpy.int64) if small else array


def _difference(a, b):
    if a.dtype.kind == "u":  # must not wrap around
        return numpy.maximum(a, b) - numpy.minimum(a, b)
    return numpy.abs(a - b)


def make_tensor(
    *shape, dtype, device, low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False, memory_format=None
):
    """A tensor of random numbers from [low, high): by default [-9, 9), 0 to 9 for unsigned integers.

    `exclude_zero` replaces zeros by the smallest positive number of the dtype; `noncontiguous` makes every other
    element of a larger tensor.
    """
    if len(shape) == 1 and isinstance(shape[0], collections.abc.Sequence):
        shape = tuple(shape[0])
    exact = not (dtype.is_floating_point or dtype.is_complex)
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got {noncontiguous=} and {memory_format=}"
        )
    if requires_grad and exact:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    if dtype == wisp.bool:
        least, bound, default = 0, 2, (0, 2)
    elif exact:
        info = wisp.iinfo(dtype)
        least, bound, default = info.min, info.max + (dtype != wisp.int64), (-9, 10)
    else:
        info = wisp.finfo(dtype)
        least, bound, default = info.min, info.max, (-9, 9)
    low, high = default[0] if low is None else low, default[1] if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and not exact:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated.", FutureWarning, stacklevel=2
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= bound:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports [{least}, {bound})"
        )
    low, high = min(max(low, least), bound), min(max(high, least), bound)
    noncontiguous = noncontiguous and math.prod(shape) > 1
    full = (*shape[:-1], 2 * shape[-1]) if noncontiguous else shape
    if exact:
        result = wisp.randint(math.ceil(low), math.ceil(high), full, dtype=dtype, device=device)
    elif dtype == wisp.complex32:  # by the generator, which knows that no half may be rounded up to `high`
        result = wisp.empty(full, dtype=dtype, device=device)
        wisp.view_as_real(result).uniform_(low, high)
    else:
        numbers = (*full, 2) if dtype.is_complex else full
        result = (
            wisp.rand(numbers, dtype=wisp.float64, device=device) * (high - low) + low
            if math.isfinite(high - low)
            else (wisp.rand(numbers, dtype=wisp.float64, device=device) - 0.5) * bound
        )
        result = (wisp.view_as_complex(result).clone() if dtype.is_complex else result).to(dtype)
    if noncontiguous:
        result = result[..., ::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        tiny = 1 if exact else wisp.finfo(dtype).tiny
        result[result == 0] = complex(tiny, tiny) if dtype.is_complex else tiny
    return result.requires_grad_() if requires_grad else result


_reference.attach(__name__, globals())
