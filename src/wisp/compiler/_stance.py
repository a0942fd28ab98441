"""`set_stance`: what calls of compiled functions do, for a while or from now on."""

import functools

from wisp import _core

_STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile")


_now = "default"


def _take(stance):
    global _now
    _now = stance
    _core._set_force_eager(stance == "force_eager")


class set_stance:
    """With "force_eager" compiled functions run their operators at once; the other stances are about recompilation, which there is
    none of here, and are the default one. Takes effect when called; as a context or decorator, for as long as that lasts.

    >>> import wisp
    >>> with wisp.compiler.set_stance("force_eager"):
    ...     wisp.compile(wisp.exp)(wisp.zeros(2))
    tensor([1., 1.])
    """

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}', expected one of {', '.join(_STANCES)}")
        self._stance, self._before = stance, _now
        _take(stance)

    def __enter__(self):
        _take(self._stance)
        return self

    def __exit__(self, *error):
        _take(self._before)

    def __call__(self, function):
        _take(self._before)  # it is a decorator: only while the function runs

        @functools.wraps(function)
        def with_stance(*args, **kwargs):
            with set_stance(self._stance):
                return function(*args, **kwargs)

        return with_stance
