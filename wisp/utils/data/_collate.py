"""Putting samples together into a batch."""
import collections.abc
import copy

import numpy

import wisp

_error = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_convert(data):
    """NumPy arrays in a nested value as tensors; the rest as it is."""
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
        return type(original)(content)
    except TypeError:
        return content


def collate(batch, *, collate_fn_map=None):
    """Join a list of samples. `collate_fn_map` maps types to functions `f(batch, *, collate_fn_map)`."""
    sample = batch[0]
    if collate_fn_map:
        function = collate_fn_map.get(type(sample)) or next(
            (f for kind, f in collate_fn_map.items() if isinstance(sample, kind)), None)
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(sample, wisp.Tensor):
        return wisp.stack(batch)
    if isinstance(sample, float):
        return wisp.tensor(batch, dtype=wisp.float64)
    if isinstance(sample, int):
        return wisp.tensor(batch)
    if isinstance(sample, (str, bytes)):
        return batch
    if isinstance(sample, numpy.ndarray):
        if sample.dtype.kind in "SUO":
            raise TypeError(_error.format(sample.dtype))
        return wisp.stack([wisp.as_tensor(array) for array in batch])
    if isinstance(sample, numpy.generic):
        if sample.dtype.kind in "SUO":
            raise TypeError(_error.format(sample.dtype))
        return wisp.as_tensor(numpy.array(batch))
    if isinstance(sample, collections.abc.Mapping):
        joined = {key: collate([entry[key] for entry in batch], collate_fn_map=collate_fn_map) for key in sample}
        return _rebuilt(sample, joined)
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)))
    if isinstance(sample, collections.abc.Sequence):
        size = len(sample)
        if any(len(entry) != size for entry in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        joined = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
        return joined if isinstance(sample, tuple) else _rebuilt(sample, joined)
    raise TypeError(_error.format(type(sample)))


def default_collate(batch):
    """Join samples into a batch: tensors, arrays and numbers are stacked along a new first dimension; dicts, tuples and
    lists are joined entry by entry; strings stay a list."""
    sample = batch[0]
    if type(sample) is tuple and all(type(entry) is tuple and len(entry) == len(sample) for entry in batch):
        return [wisp.stack(column) if isinstance(column[0], wisp.Tensor) else collate(column) for column in zip(*batch)]
    return collate(batch)
