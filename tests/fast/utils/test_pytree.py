"""Nested values as trees."""

import collections

import pytest

import wisp
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


def test_structures_are_written_as_text_and_read_again():
    Point = collections.namedtuple("Point", "x y")
    _pytree._register_namedtuple(Point, serialized_type_name="tests.Point")
    tree = {"a": [1, (2, 3)], "b": collections.OrderedDict(c=collections.deque([4], maxlen=2)), "p": Point(5, 6)}
    spec = _pytree.tree_structure(tree)
    assert _pytree.treespec_loads(_pytree.treespec_dumps(spec)) == spec and spec.num_nodes == 12
    assert repr(_pytree.tree_structure((0, [0]))) == "TreeSpec(tuple, None, [*,\n  TreeSpec(list, None, [*])])"
    assert _pytree._broadcast_to_and_flatten((1, 2), _pytree.tree_structure(([0, 0], 0))) == [1, 1, 2]
    assert all(_pytree.key_get(tree, path) == leaf for path, leaf in _pytree.tree_leaves_with_path(tree))


def test_foreach_in_place_returns_its_list():
    tensors = [wisp.ones(2), wisp.ones(3)]
    assert wisp._foreach_add_(tensors, 1) is tensors and tensors[1].tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="same number of elements as scalar list"):
        wisp._foreach_mul(tensors, [2.0])


def test_named_results_are_struct_sequences():
    """Libraries know PyTorch's results by the members of such classes, and that nothing can be made from them."""
    for result in (wisp.ones(2, 3).max(0), wisp.frexp(wisp.ones(2)), wisp.linalg.slogdet(wisp.eye(2)), wisp.ones(2).sort()):
        kind = type(result)
        assert kind.__bases__ == (tuple,) and (kind.n_fields, kind.n_sequence_fields, kind.n_unnamed_fields) == (2, 2, 0)
        assert _pytree.is_structseq(result) and not _pytree.is_namedtuple(result)
        assert kind(result) == result and all(getattr(result, name) is value for name, value in zip(kind.__match_args__, result))
        with pytest.raises(TypeError):
            type("Derived", (kind,), {})
        mapped = _pytree.tree_map(lambda x: x, result)
        assert type(mapped) is kind and repr(mapped) == repr(result) and repr(result).startswith(f"torch.return_types.{kind.__name__}(\n")


def test_sizes_are_nodes():
    size = wisp.ones(2, 3).shape
    leaves, spec = _pytree.tree_flatten(size)
    assert leaves == [2, 3] and repr(spec) == "TreeSpec(Size, None, [*,\n  *])"
    mapped = _pytree.tree_map(lambda n: n + 1, (size, [4]))
    assert mapped == ((3, 4), [5]) and type(mapped[0]) is tuple
    assert _pytree.tree_map(str, size) == ("2", "3")
