"""Lists and dictionaries that cannot be changed: arguments of nodes, whose users must stay known."""

from wisp.utils._pytree import register_pytree_node

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self, *args, **kwargs):
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or args of a torch.fx.Node "
        "object, instead create a new copy of it and assign the copy to the node: new_args = [...]; node.args = new_args"
    )


class immutable_list(list):
    """A list whose items stay."""

    append = extend = insert = pop = remove = reverse = sort = clear = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self):
        return hash(tuple(self))

    def __reduce__(self):
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dictionary whose items stay."""

    clear = pop = popitem = setdefault = update = __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self):
        return hash(frozenset(self.items()))

    def __reduce__(self):
        return immutable_dict, (tuple(self.items()),)


register_pytree_node(immutable_list, lambda value: (list(value), None), lambda parts, _: immutable_list(parts))
register_pytree_node(
    immutable_dict, lambda value: (list(value.values()), list(value.keys())), lambda parts, keys: immutable_dict(zip(keys, parts))
)
