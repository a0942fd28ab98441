"""The reduction of losses: old arguments and names."""

import warnings


def get_enum(reduction):
    """The number of a reduction."""
    numbers = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}
    if reduction not in numbers:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return numbers[reduction]


def legacy_get_string(size_average, reduce, emit_warning=True):
    """The reduction that two old arguments mean."""
    size_average, reduce = size_average is None or size_average, reduce is None or reduce
    name = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.", stacklevel=3)
    return name


def legacy_get_enum(size_average, reduce, emit_warning=True):
    """Its number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
