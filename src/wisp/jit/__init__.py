"""`torch.jit` for programs that use it: Wisp runs Python itself, so scripting and tracing give back functions as they are, and of a
module a twin with the same tensors.

`save` and `load` keep the whole module by its Python class, as `wisp.save(module)` does.
"""

import builtins as _builtins
import collections as _collections
import functools as _functools
import types as _types
from typing import Final  # noqa: F401

from wisp import _reference
from wisp import fx as _fx
from wisp import nn as _nn

__all__ = [
    "Attribute",
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "TracerWarning",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "run_frozen_optimizations",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

Error = JITException = Exception  # a scripted function is its Python, and raises what that raises

ScriptFunction = type(lambda: None)


class TracerWarning(Warning):
    """Never given: Wisp does not trace."""


class ScriptModule(_nn.Module):
    """The base class of scripted modules; a module that derives from it is an ordinary one with these methods."""

    @property
    def original_name(self):
        """The name of the module's own class."""
        return type(self).__name__

    @property
    def code(self):
        """The text of `forward`: its steps if they can be traced, else its source."""
        try:
            return _fx.symbolic_trace(self).code
        except Exception:
            import inspect

            return inspect.getsource(type(self).forward)

    @property
    def code_with_constants(self):
        """`code`, and the constants that it names, of which there are none: tensors in it are attributes of the module."""
        return self.code, _types.SimpleNamespace(const_mapping={})

    @property
    def graph(self):
        """The steps of `forward`, as `torch.fx` traces them."""
        return _fx.symbolic_trace(self).graph

    inlined_graph = graph

    def graph_for(self, *args, **kwargs):
        """The steps of `forward`."""
        return self.graph

    def save(self, f, _extra_files=None):
        """Save the whole module, by its Python class."""
        save(self, f)


class RecursiveScriptModule(ScriptModule):
    """What `script` and `trace` make of a module."""


_scripted_classes = {}


def _scripted(obj, made=None):
    """The twin of a module, of a class that is its own and `RecursiveScriptModule`: tensors are shared, flags and hooks are the twin's.
    The module stays as it is, and so does anything else. `made` has the twins of submodules."""
    if not _builtins.isinstance(obj, _nn.Module) or _builtins.isinstance(obj, ScriptModule):
        return obj
    obj = obj.__dict__["_modules"].get("_orig_mod", obj)  # of a compiled module the module itself, which can be saved
    made = {} if made is None else made
    if id(obj) in made:
        return made[id(obj)]
    kind = _scripted_class(type(obj))
    try:
        twin = _nn.Module.__new__(kind)
    except TypeError:  # a class with memory of its own
        return obj
    if kind is type(obj):
        return obj
    made[id(obj)] = twin
    state = {name: _for_twin(name, value, obj, twin) for name, value in obj.__dict__.items()}
    state["_modules"] = {name: _scripted(child, made) for name, child in obj._modules.items()}
    _nn.Module.__setstate__(twin, state)
    return twin


def _for_twin(name, value, obj, twin):
    if type(value) in (dict, _collections.OrderedDict, set) and name.startswith("_"):
        return value.copy()
    if _builtins.isinstance(value, _types.MethodType) and value.__self__ is obj:
        return _types.MethodType(value.__func__, twin)
    return value


def _scripted_class(kind):
    if kind not in _scripted_classes:
        try:
            _scripted_classes[kind] = type(
                kind.__name__,
                (kind, RecursiveScriptModule),
                {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce_ex__": _reduce_scripted, "_original_class": kind},
            )
        except TypeError:  # a metaclass that does not go together with ours
            _scripted_classes[kind] = kind
    return _scripted_classes[kind]


def _reduce_scripted(self, protocol):
    # files and copies hold the module's own class
    import copyreg

    original = type(self)._original_class
    reduced = original.__reduce_ex__(self, 2)
    if reduced[0] is not copyreg.__newobj__:  # a class that says itself what to make of it, as that of graphs does
        return reduced
    return copyreg._reconstructor, (original, object, None), *reduced[2:]


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """Return the function or class as it is; of a module a twin with the same parameters.

    >>> import wisp
    >>> @wisp.jit.script
    ... def double(x):
    ...     return x * 2
    >>> double(wisp.ones(1))
    tensor([2.])
    """
    return _scripted(obj) if obj is not None else script


def trace(func, example_inputs=None, **options):
    """Call the function or module once on the example and return the function as it is, of a module a twin with the same parameters.

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
    return _scripted(func)


def trace_module(mod, inputs, **options):
    """Call the named methods once on their examples and return a twin of the module, with the same parameters."""
    import wisp

    with wisp.no_grad():
        for name, values in inputs.items():
            getattr(mod, name)(*(values if _builtins.isinstance(values, (tuple, list)) else (values,)))
    return _scripted(mod)


def save(m, f, _extra_files=None):
    """Save a whole module, by its Python class."""
    import wisp

    wisp.save(m, f)


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    """Load what `jit.save` wrote. A TorchScript archive of PyTorch holds compiled code, which Wisp does not run."""
    import zipfile

    import wisp

    if _builtins.isinstance(f, (str, bytes)) and zipfile.is_zipfile(f):
        with zipfile.ZipFile(f) as archive:
            if any(name.endswith("constants.pkl") for name in archive.namelist()):
                raise RuntimeError(
                    f"jit.load: {f!r} is a TorchScript archive, whose compiled code Wisp does not run; save the model's "
                    "state_dict() from PyTorch, build the model in Python and load that"
                )
    return _scripted(wisp.load(f, map_location=map_location, weights_only=False))


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
    return _scripted(mod.eval())


def optimize_for_inference(mod, other_methods=None):
    """The module in evaluation mode."""
    return _scripted(mod.eval())


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
    if future is None:
        raise RuntimeError("Future can't be None")
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
        pass


def _get_trace_graph(f, args=(), kwargs=None, strict=True, _force_outplace=False, return_inputs=False, _return_inputs_states=False):
    raise NotImplementedError("jit._get_trace_graph: no TorchScript graph is made; torch.fx.symbolic_trace gives a graph of a module")


_reference.attach(__name__, globals())
