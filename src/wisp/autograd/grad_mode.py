"""Context managers and decorators that say whether operations are recorded for backward."""

import functools
import warnings

from wisp import _core

__all__ = ["no_grad", "enable_grad", "enforce_grad_layout_policy", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]


_GENERATOR = 0x20  # inspect.CO_GENERATOR, without the time to import that module


class _Mode:
    """A context manager that can also decorate functions, generator functions and coroutines' callers."""

    def __call__(self, function):
        if isinstance(function, type):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or methods: "
                f"the `__init__` method of {function.__name__} behaves as the class does now.",
                FutureWarning,
                stacklevel=2,
            )
        return _decorated(self._again, function)

    def _again(self):
        return type(self)()


def _decorated(make, function):
    """`function` run inside of `make()`; a generator is inside only while it runs, not while its user does."""
    if getattr(getattr(function, "__code__", None), "co_flags", 0) & _GENERATOR:

        @functools.wraps(function)
        def generator(*args, **kwargs):
            with make():
                inner = function(*args, **kwargs)
            send, value = inner.send, None
            try:
                while True:
                    with make():
                        result = send(value)
                    try:
                        send, value = inner.send, (yield result)
                    except GeneratorExit:
                        with make():
                            inner.close()
                        raise
                    except BaseException as error:
                        send, value = inner.throw, error
            except StopIteration as end:
                return end.value

        return generator

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with make():
            return function(*args, **kwargs)

    return wrapper


class _Recording(_Mode):
    # no_grad and enable_grad, which may also be written as decorators without parentheses.
    def __new__(cls, orig_func=None):
        return super().__new__(cls) if orig_func is None else cls()(orig_func)

    def __init__(self, orig_func=None):
        pass

    def __enter__(self):
        self.prev = _core.is_grad_enabled()
        _core._set_grad_enabled(self._recorded)

    def __exit__(self, *_):
        _core._set_grad_enabled(self.prev)


class no_grad(_Recording):
    """Nothing is recorded inside: `with no_grad():`, or `@no_grad()` before a function."""

    _recorded = False


class enable_grad(_Recording):
    """Operations are recorded inside, even within `no_grad`."""

    _recorded = True


class set_grad_enabled(_Mode):
    """Turns recording on or off: as a call at once, as a context manager until its end, or as a decorator."""

    def __init__(self, mode):
        self.prev = _core.is_grad_enabled()
        self.mode = bool(mode)
        _core._set_grad_enabled(self.mode)

    def __call__(self, function):
        _core._set_grad_enabled(self.prev)  # a decorator changes nothing until the function runs
        return super().__call__(function)

    def _again(self):
        return set_grad_enabled(self.mode)

    def __enter__(self):
        _core._set_grad_enabled(self.mode)

    def __exit__(self, *_):
        _core._set_grad_enabled(self.prev)

    def __repr__(self):
        return f"set_grad_enabled(mode={self.mode})"


class inference_mode(_Mode):
    """As `no_grad`, and the tensors made inside can never take part in a recorded operation."""

    def __new__(cls, mode=True):
        return super().__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode=True):
        self.mode = mode

    def _again(self):
        return inference_mode(self.mode)

    def __enter__(self):
        self.prev = _core.is_inference_mode_enabled(), _core.is_grad_enabled()
        _core._set_inference_mode(self.mode)
        if self.mode:
            _core._set_grad_enabled(False)
        elif self.prev[0]:
            _core._set_grad_enabled(True)

    def __exit__(self, *_):
        _core._set_inference_mode(self.prev[0])
        _core._set_grad_enabled(self.prev[1])


class enforce_grad_layout_policy(_Mode):
    """Whether the gradient of a leaf takes the leaf's strides (the default) or keeps those that backward made: as a call at once, as a
    context manager until its end, or as a decorator."""

    def __init__(self, enable=True):
        self.mode, self.prev = bool(enable), _core._grad_layout_enforced()
        _core._set_grad_layout_enforced(self.mode)

    def __call__(self, function):
        _core._set_grad_layout_enforced(self.prev)  # a decorator changes nothing until the function runs
        return super().__call__(function)

    def _again(self):
        return enforce_grad_layout_policy(self.mode)

    def __enter__(self):
        _core._set_grad_layout_enforced(self.mode)

    def __exit__(self, *_):
        _core._set_grad_layout_enforced(self.prev)


class _unsafe_preserve_version_counter(_Mode):
    """Inside, in-place writes to tensors are not noticed: their versions are set back at the end."""

    def __init__(self, tensors):
        self.tensors = tensors if isinstance(tensors, tuple) else (tensors,)

    def _again(self):
        return _unsafe_preserve_version_counter(self.tensors)

    def __enter__(self):
        self.versions = [tensor._version for tensor in self.tensors]

    def __exit__(self, *_):
        for tensor, version in zip(self.tensors, self.versions):
            _core._set_version(tensor, version)


_settings = {"multithreading": True, "view_replay": False}  # of PyTorch's engine; backward runs in the calling thread here


class _Setting(_Mode):
    """A setting that programs make and ask for, with no effect here."""

    name = None

    def __init__(self, mode):
        self.mode, self.prev = mode, _settings[self.name]
        _settings[self.name] = mode

    def __call__(self, function):
        _settings[self.name] = self.prev  # a decorator changes nothing until the function runs
        return super().__call__(function)

    def _again(self):
        return type(self)(self.mode)

    def __enter__(self):
        _settings[self.name] = self.mode

    def __exit__(self, *_):
        _settings[self.name] = self.prev


class set_multithreading_enabled(_Setting):
    """Accepted for PyTorch's sake: backward always runs in the calling thread here."""

    name = "multithreading"


class _force_original_view_tracking(_Setting):
    """Accepted for PyTorch's sake: views remember their base."""

    name = "view_replay"


def is_multithreading_enabled():
    """What `set_multithreading_enabled` was told."""
    return _settings["multithreading"]


def is_view_replay_enabled():
    """Whether views are replayed on their base's history: they are not, unless asked for."""
    return _settings["view_replay"]
