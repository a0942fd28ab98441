"""Settings of PyTorch's compiler that programs change: remembered, and without effect."""

import contextlib as _contextlib
import types as _types

# Numbers that programs raise from what they are: max(config.cache_size_limit, 64).
_LIMITS = {"cache_size_limit": 8, "recompile_limit": 8, "accumulated_cache_size_limit": 256, "accumulated_recompile_limit": 256}


class Config(_types.ModuleType):
    """A module whose attributes may be set, read back and patched; one never set is False, or PyTorch's limit."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, _LIMITS.get(name) or _Section())

    @_contextlib.contextmanager
    def patch(self, changes=None, value=None, **named):
        """Set some values within a `with` block."""
        changes = {changes: value} if isinstance(changes, str) else {**(changes or {}), **named}
        before = {name: getattr(self, name) for name in changes}
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
