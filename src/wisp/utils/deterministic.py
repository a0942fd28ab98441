"""Whether memory that nothing was written to is filled in deterministic mode (`fill_uninitialized_memory`, on unless set)."""

import sys
import types

from wisp._composites.settings import _fill_uninitialized_memory


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self):
        return _fill_uninitialized_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode):
        _fill_uninitialized_memory(mode)


sys.modules[__name__].__class__ = _Deterministic
