"""Dictionaries that do not keep their tensors alive."""

import weakref

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that compares by identity."""

    def __init__(self, key, callback=None):
        super().__init__(key, callback)
        self._id = id(key)

    def __hash__(self):
        return self._id

    def __eq__(self, other):
        a, b = self(), other()
        return a is b if a is not None and b is not None else self is other


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor):
        self.ref = weakref.ref(tensor)

    def __call__(self):
        return self.ref()


class WeakIdKeyDictionary(weakref.WeakKeyDictionary):
    """A dictionary with weak keys that compares them by identity.

    >>> import wisp
    >>> from wisp.utils.weak import WeakIdKeyDictionary
    >>> x, table = wisp.ones(1), WeakIdKeyDictionary()
    >>> table[x] = 3
    >>> table[x], wisp.ones(1) in table
    (3, False)
    """

    def __getitem__(self, key):
        return self.data[WeakIdRef(key)]

    def __setitem__(self, key, value):
        self.data[WeakIdRef(key, self._remove)] = value

    def __delitem__(self, key):
        del self.data[WeakIdRef(key)]

    def __contains__(self, key):
        try:
            return WeakIdRef(key) in self.data
        except TypeError:
            return False

    def get(self, key, default=None):
        """The value of a key, or the default."""
        return self.data.get(WeakIdRef(key), default)

    def pop(self, key, *default):
        """Remove a key and return its value."""
        return self.data.pop(WeakIdRef(key), *default)

    def setdefault(self, key, default=None):
        """The value of a key, which is set if it is not there."""
        return self.data.setdefault(WeakIdRef(key, self._remove), default)

    def update(self, dict=None, /, **kwargs):
        """Set the values of all keys of another mapping, or of pairs."""
        if hasattr(dict, "keys"):
            dict = [(key, dict[key]) for key in dict.keys()]  # noqa: SIM118 - whatever has keys()
        pairs = () if dict is None else dict
        for key, value in (*pairs, *kwargs.items()):
            self[key] = value

    def copy(self):
        """Another dictionary of the same keys and values."""
        return type(self)(self)

    __copy__ = copy

    def __or__(self, other):
        if not isinstance(other, (dict, weakref.WeakKeyDictionary)):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other):
        if not isinstance(other, (dict, weakref.WeakKeyDictionary)):
            return NotImplemented
        made = type(self)(other)
        made.update(self)
        return made


WeakTensorKeyDictionary = WeakIdKeyDictionary
