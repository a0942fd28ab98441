"""Gives the unknown sizes of a graph one name where they are the same."""

from wisp.fx.experimental.graph_gradual_typechecker import Refine, _mapped
from wisp.fx.experimental.refinement_types import Var

__all__ = ["check_for_type_equality", "infer_symbolic_types", "infer_symbolic_types_single_pass", "substitute_all_types", "unify_eq"]


def _known(size, found):
    while size in found:
        size = found[size]
    return size


def unify_eq(list_of_eq):
    """What each variable is, as a dictionary, so that all equalities hold; TypeError where none can be.

    >>> from wisp.fx.experimental.refinement_types import Equality
    >>> unify_eq([Equality(Var(0), Var(1)), Equality(Var(1), 3)])
    {~0: ~1, ~1: 3}
    """
    found = {}
    for one in list_of_eq:
        left, right = _known(one.lhs, found), _known(one.rhs, found)
        if left == right:
            continue
        if isinstance(left, Var):
            found[left] = right
        elif isinstance(right, Var):
            found[right] = left
        else:
            raise TypeError(f"unify_eq: {left} and {right} are not the same")
    return found


def substitute_all_types(graph, mapping):
    """Put what variables are in their place, in the types of all steps."""
    for node in graph.nodes:
        node.type = _mapped(node.type, lambda size: _known(size, mapping))


def infer_symbolic_types_single_pass(traced):
    """Go through the graph once."""
    refined = Refine(traced)
    refined.refine()
    substitute_all_types(traced.graph, unify_eq(refined.constraints))
    return refined


def infer_symbolic_types(traced):
    """Give equal unknown sizes of a checked graph one symbol of SymPy's; twice through it, since broadcasting is known the second time."""
    infer_symbolic_types_single_pass(traced)
    infer_symbolic_types_single_pass(traced).symbolic_relations()


def check_for_type_equality(g1, g2):
    """Whether the steps of two graphs have the same types."""
    return all(a.type == b.type for a, b in zip(g1.nodes, g2.nodes))
