"""The handle that registering a hook returns."""

import itertools
import weakref
from collections import OrderedDict


def _reference(entries):
    """A weak reference where that is possible: a plain dict has none."""
    return weakref.ref(entries) if isinstance(entries, OrderedDict) else lambda: entries


def add_hook(hooks_dict, hook):
    """Put a hook into a dict of hooks -> its handle."""
    handle = RemovableHandle(hooks_dict)
    hooks_dict[handle.id] = hook
    return handle


def unserializable_hook(f):
    """A decorator that marks a hook which need not be saved: tensors are saved without hooks."""
    f.__torch_unserializable__ = True
    return f


class RemovableHandle:
    """Removes a hook again: `handle.remove()`, or at the end of `with handle:`.

    `hooks_dict` maps the ids of handles to hooks; entries of the same id in `extra_dict` (a dict or a list of them)
    go with it.
    """

    _ids = itertools.count()

    def __init__(self, hooks_dict, *, extra_dict=None):
        self.id = next(RemovableHandle._ids)
        self.hooks_dict_ref = _reference(hooks_dict)
        extra = extra_dict if isinstance(extra_dict, (list, tuple)) else [extra_dict] if extra_dict is not None else []
        self.extra_dict_ref = tuple(_reference(entries) for entries in extra)

    def remove(self):
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            entries = ref()
            if entries is not None:
                entries.pop(self.id, None)

    def __getstate__(self):
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state):
        hooks, self.id, extra = state
        self.hooks_dict_ref = _reference(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(_reference(entries) for entries in extra if entries is not None)
        RemovableHandle._ids = itertools.count(max(self.id + 1, next(RemovableHandle._ids)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()
