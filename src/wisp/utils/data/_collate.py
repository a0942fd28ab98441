"""Putting samples together into a batch."""

import collections.abc
import copy

import numpy

import wisp

_error = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_convert(data):
    """NumPy arrays in a nested value as tensors; the rest as it is.

    >>> import numpy
    >>> from wisp.utils.data import default_convert
    >>> default_convert({"a": numpy.ones(2), "b": "text"})
    {'a': tensor([1., 1.], dtype=torch.float64), 'b': 'text'}
    """
    if isinstance(data, wisp.Tensor):
        return data
    if isinstance(data, (numpy.ndarray, numpy.generic)):
        return data if data.dtype.kind in "SUO" else wisp.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuilt(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt(data, [default_convert(value) for value in data])
    return data


def _rebuilt(original, content):
    """`content`, a dict or list, as the type of `original`, where that can be built."""
    if type(original) in (dict, list):
        return content
    try:
        if isinstance(original, collections.abc.MutableMapping):
            clone = copy.copy(original)
            clone.update(content)
            return clone
        if isinstance(original, collections.abc.MutableSequence):
            clone = copy.copy(original)
            for i, value in enumerate(content):
                clone[i] = value
            return clone
        return type(original)(content)
    except (TypeError, ValueError):
        return content


# ---------------------------------------------------------------- one function for each kind of sample
def collate_tensor_fn(batch, *, collate_fn_map=None):
    """Tensors: stacked along a new first dimension."""
    return wisp.stack(batch)


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    """Arrays: stacked as tensors."""
    if batch[0].dtype.kind in "SUO":
        raise TypeError(_error.format(batch[0].dtype))
    return wisp.from_numpy(numpy.stack(batch))


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    """NumPy's numbers: a tensor of their dtype."""
    if isinstance(batch[0], (str, bytes)):
        return batch
    return wisp.as_tensor(numpy.array(batch))


def collate_float_fn(batch, *, collate_fn_map=None):
    """Python's floats: a tensor of float64."""
    return wisp.tensor(batch, dtype=wisp.float64)


def collate_int_fn(batch, *, collate_fn_map=None):
    """Python's ints: a tensor of int64."""
    return wisp.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    """Strings stay a list."""
    return batch


default_collate_fn_map = {
    wisp.Tensor: collate_tensor_fn,
    numpy.ndarray: collate_numpy_array_fn,
    numpy.generic: collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


_CONTAINERS = (tuple, list, dict)


def _check_sizes(batch):
    sizes = {len(entry) for entry in batch}
    if len(sizes) > 1:
        raise RuntimeError(f"each element in list of batch should be of equal size; got sizes {sorted(sizes)}")


def collate(batch, *, collate_fn_map=None):
    """Join a list of samples. `collate_fn_map` maps types to functions `f(batch, *, collate_fn_map)`; dicts, tuples and
    lists are joined entry by entry.

    >>> from wisp.utils.data._utils.collate import collate
    >>> collate([1, 2], collate_fn_map={int: lambda batch, **_: sum(batch)})
    3
    """
    sample = batch[0]
    if collate_fn_map is not None:
        function = collate_fn_map.get(type(sample))
        if function is None and type(sample) not in _CONTAINERS:
            function = next((f for kind, f in collate_fn_map.items() if isinstance(sample, kind)), None)
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    if type(sample) in (tuple, list):
        try:
            return [collate(column, collate_fn_map=collate_fn_map) for column in list(zip(*batch, strict=True))]
        except ValueError:
            _check_sizes(batch)
            raise
    if isinstance(sample, collections.abc.Mapping):
        joined = {key: collate([entry[key] for entry in batch], collate_fn_map=collate_fn_map) for key in sample}
        return _rebuilt(sample, joined)
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)))
    if isinstance(sample, collections.abc.Sequence):
        _check_sizes(batch)
        joined = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
        return joined if isinstance(sample, tuple) else _rebuilt(sample, joined)
    raise TypeError(_error.format(type(sample)))


def default_collate(batch):
    """Join samples into a batch: tensors, arrays and numbers are stacked along a new first dimension; dicts, tuples and
    lists are joined entry by entry; strings stay a list. Entries of `default_collate_fn_map` add other types.

    >>> import wisp
    >>> from wisp.utils.data import default_collate
    >>> default_collate([(wisp.zeros(2), 0), (wisp.ones(2), 1)])
    [tensor([[0., 0.],
            [1., 1.]]), tensor([0, 1])]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
