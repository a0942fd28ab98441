"""Small helpers of the layers: numbers or tuples as arguments, and what their text tells of them."""

import collections.abc
from itertools import repeat


def _ntuple(n, name="parse"):
    def parse(x):
        return tuple(x) if isinstance(x, collections.abc.Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t, n):
    """(a, b) and 2 -> (b, b, a, a): how `F.pad` wants symmetric padding."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size, defaults):
    if isinstance(out_size, (int,)):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [v if v is not None else d for v, d in zip(out_size, defaults[-len(out_size) :])]


def join_repr(*parts):
    """Join the parts of an `extra_repr`, leaving out those that are False or empty."""
    return ", ".join(part for part in parts if part)


def if_inplace(inplace):
    return "inplace=True" if inplace else ""


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Take a prefix (say, "module." of DataParallel) off the names of a state dict, in place.

    >>> from wisp.nn.modules.utils import consume_prefix_in_state_dict_if_present
    >>> state = {"module.weight": 1, "other": 2}
    >>> consume_prefix_in_state_dict_if_present(state, "module.")
    >>> state
    {'other': 2, 'weight': 1}
    """
    for name in list(state_dict):
        if name.startswith(prefix):
            state_dict[name[len(prefix) :]] = state_dict.pop(name)
    metadata = getattr(state_dict, "_metadata", None)
    for name in list(metadata or ()):
        if name and (name == prefix.replace(".", "") or name.startswith(prefix)):
            metadata[name[len(prefix) :]] = metadata.pop(name)


def _unusual(module, **usual):
    """ ", name=value" for each attribute that differs from what it usually is."""
    values = {name: getattr(module, name) for name in usual}
    return "".join(f", {name}={values[name]}" for name in usual if values[name] != usual[name])
