"""`torch.jit` for programs that use it: Wisp runs Python itself, so scripting and tracing give the thing back as it is.

`save` and `load` keep the whole module by its Python class, as `wisp.save(module)` does.
"""
import builtins as _builtins
import functools as _functools
import weakref as _weakref
from typing import Final  # noqa: F401

from wisp import nn as _nn

__all__ = ["Attribute", "Final", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "enable_onednn_fusion", "export", "fork",
           "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
           "optimize_for_inference", "optimized_execution", "run_frozen_optimizations", "save", "script", "script_if_tracing",
           "script_method", "set_fusion_strategy", "trace", "trace_module", "unused", "wait"]

ScriptModule = _nn.Module
RecursiveScriptModule = _nn.Module
ScriptFunction = type(lambda: None)


class TracerWarning(Warning):
    """Never given: Wisp does not trace."""


class _Save:
    """The method `save` of a scripted module; it is not part of a copy or of a pickle."""

    def __init__(self, module=None):
        self._module = None if module is None else _weakref.ref(module)

    def __call__(self, f, _extra_files=None):
        module = None if self._module is None else self._module()
        if module is None:
            raise RuntimeError("save: this is a copy of a scripted module; call torch.jit.save(module, file)")
        save(module, f)

    def __reduce__(self):
        return _Save, ()


def _with_save(obj):
    if _builtins.isinstance(obj, _nn.Module) and "save" not in obj.__dict__ and not hasattr(type(obj), "save"):
        object.__setattr__(obj, "save", _Save(obj))
    return obj


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """Return the function, class or module as it is.

    >>> import wisp
    >>> @wisp.jit.script
    ... def double(x):
    ...     return x * 2
    >>> double(wisp.ones(1))
    tensor([2.])
    """
    return _with_save(obj) if obj is not None else script


def trace(func, example_inputs=None, **options):
    """Call the function or module once on the example and return it as it is.

    >>> import wisp
    >>> model = wisp.jit.trace(wisp.nn.Linear(2, 1), wisp.ones(1, 2))
    >>> model(wisp.ones(3, 2)).shape
    torch.Size([3, 1])
    """
    import wisp
    with wisp.no_grad():
        if example_inputs is None:
            func(**options.get("example_kwarg_inputs") or {})
        else:
            func(*(example_inputs if _builtins.isinstance(example_inputs, (tuple, list)) else (example_inputs,)))
    return _with_save(func)


def trace_module(mod, inputs, **options):
    """Call the named methods once on their examples and return the module as it is."""
    import wisp
    with wisp.no_grad():
        for name, values in inputs.items():
            getattr(mod, name)(*(values if _builtins.isinstance(values, (tuple, list)) else (values,)))
    return _with_save(mod)


def save(m, f, _extra_files=None):
    """Save a whole module, by its Python class."""
    import wisp
    held = m.__dict__.pop("save", None) if _builtins.isinstance(m, _nn.Module) else None
    try:
        wisp.save(m, f)
    finally:
        if held is not None:
            object.__setattr__(m, "save", held)


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    """Load what `jit.save` wrote. A TorchScript archive of PyTorch holds compiled code, which Wisp does not run."""
    import zipfile

    import wisp
    if _builtins.isinstance(f, (str, bytes)) and zipfile.is_zipfile(f):
        with zipfile.ZipFile(f) as archive:
            if any(name.endswith("constants.pkl") for name in archive.namelist()):
                raise RuntimeError(f"jit.load: {f!r} is a TorchScript archive, whose compiled code Wisp does not run; save the model's "
                                   "state_dict() from PyTorch, build the model in Python and load that")
    return _with_save(wisp.load(f, map_location=map_location, weights_only=False))


def _same(function=None, *args, **kwargs):
    return function if callable(function) else lambda f: f


def _named(name, doc, function=_same):
    @_functools.wraps(function)
    def result(*args, **kwargs):
        return function(*args, **kwargs)
    result.__name__ = result.__qualname__ = name
    result.__doc__ = doc
    return result


ignore = _named("ignore", "Mark a method that a compiler should leave to Python: all are.")
unused = _named("unused", "Mark a method that a compiler should not touch.")
export = _named("export", "Mark a method that a compiler should keep.")
script_method = _named("script_method", "The method as it is.")
interface = _named("interface", "The class as it is.")
script_if_tracing = _script_if_tracing = _named("script_if_tracing", "The function as it is.")
_overload = _named("_overload", "The function as it is.")
_overload_method = _named("_overload_method", "The method as it is.")


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module in evaluation mode."""
    return _with_save(mod.eval())


def optimize_for_inference(mod, other_methods=None):
    """The module in evaluation mode."""
    return _with_save(mod.eval())


def run_frozen_optimizations(mod, optimize_numerics=True, preserved_methods=None):
    """Nothing to do."""


def is_scripting():
    """False: code runs as Python."""
    return False


def is_tracing():
    """False: code runs as Python."""
    return False


def annotate(the_type, the_value):
    """The value."""
    return the_value


def Attribute(value, type):
    """The value."""
    return value


def isinstance(obj, target_type):
    """Whether the object is of the class; of `List[int]` and the like, the container's class counts."""
    import typing
    kinds = target_type if _builtins.isinstance(target_type, tuple) else (target_type,)
    return _builtins.isinstance(obj, tuple(typing.get_origin(kind) or kind for kind in kinds))


def fork(func, *args, **kwargs):
    """Call the function now; `wait` gives its result."""
    from wisp.futures import Future
    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future):
    """The result of `fork`."""
    return future.wait()


def enable_onednn_fusion(enabled):
    """Nothing to fuse."""


def onednn_fusion_enabled():
    """False."""
    return False


def set_fusion_strategy(strategy):
    """Nothing to fuse."""
    return []


class optimized_execution:
    """A context that changes nothing."""

    def __init__(self, should_optimize=True):
        self.should_optimize = should_optimize

    def __enter__(self):
        return self

    def __exit__(self, *details):
        return False
