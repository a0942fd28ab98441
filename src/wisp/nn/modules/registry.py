"""The dictionaries in which a module keeps its parameters, buffers and submodules.

Every entry also is a plain attribute of the module, so that `self.weight` is an ordinary fast lookup. A write to the
dictionary itself, as parametrizations do (`module._parameters["weight"] = x`), reaches the attribute as well.
"""


class Registry(dict):
    """A dict that repeats its entries in the `__dict__` of the module that owns it, unless its class has a `__getattr__` of its own."""

    # The owner is a weak reference: a strong one would be a cycle, and would delay freeing a model's memory.
    __slots__ = ("owner",)

    def __init__(self, owner, entries=()):
        if isinstance(owner, dict):  # a copy that some library makes by type(registry)(values): nobody's
            owner, entries = lambda: None, owner
        super().__init__(entries)
        self.owner = owner
        self._attributes().update(self)

    def _attributes(self):
        module = self.owner()
        return module.__dict__ if module is not None and module._members_are_attributes else {}

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        self._attributes()[name] = value

    def __delitem__(self, name):
        super().__delitem__(name)
        self._attributes().pop(name, None)

    def pop(self, name, *default):
        if name in self:
            self._attributes().pop(name, None)
        return super().pop(name, *default)

    def popitem(self):
        name, value = super().popitem()
        self._attributes().pop(name, None)
        return name, value

    def clear(self):
        attributes = self._attributes()
        for name in self:
            attributes.pop(name, None)
        super().clear()

    def setdefault(self, name, default=None):
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *args, **kwargs):
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __ior__(self, other):
        self.update(other)
        return self

    # Copies and pickles are plain dictionaries: the module that receives them makes registries of them again.
    def copy(self):
        return dict(self)

    def __copy__(self):
        return dict(self)

    def __reduce_ex__(self, protocol):
        return _plain_dict, (), None, None, iter(self.items())


def _plain_dict():
    return {}
