"""Settings of PyTorch's compiler that programs change: remembered, and without effect."""

import contextlib as _contextlib
import types as _types


class Config(_types.ModuleType):
    """A module whose attributes may be set, read back and patched; one never set is False."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, _Section())

    @_contextlib.contextmanager
    def patch(self, changes=None, value=None, **named):
        """Set some values within a `with` block."""
        changes = {changes: value} if isinstance(changes, str) else {**(changes or {}), **named}
        before = {name: self.__dict__.get(name) for name in changes}
        self.__dict__.update(changes)
        try:
            yield
        finally:
            self.__dict__.update(before)


class _Section(_types.SimpleNamespace):
    """A setting that was never set: false, and a place for settings below it."""

    def __bool__(self):
        return False

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, _Section())
