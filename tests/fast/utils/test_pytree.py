"""Nested values as trees."""

import collections

import pytest

from wisp.utils import _pytree

Point = collections.namedtuple("Point", "x y")
TREE = {"a": [1, (2, Point(3, 4))], "b": collections.OrderedDict(z=5)}


def test_round_trip():
    leaves, spec = _pytree.tree_flatten(TREE)
    assert leaves == [1, 2, 3, 4, 5] == _pytree.tree_leaves(TREE)
    assert spec.num_leaves == 5
    again = _pytree.tree_unflatten(leaves, spec)
    assert again == TREE and type(again["a"][1][1]) is Point


def test_map():
    assert _pytree.tree_map(lambda a, b: a + b, [1, {"k": 2}], [10, {"k": 20}]) == [11, {"k": 22}]
    assert _pytree.tree_map_only(int, str, [1, 2.0]) == ["1", 2.0]
    assert _pytree.tree_map(len, [[1, 2], [3]], is_leaf=lambda v: v == [3] or v == [1, 2]) == [2, 1]
    with pytest.raises(ValueError):
        _pytree.tree_map(lambda a, b: a, [1], (1,))
    with pytest.raises(ValueError):
        _pytree.tree_unflatten([1], _pytree.tree_structure([1, 2]))
