"""`compile` and `disable`: calling functions and modules in compiled regions, and out of them."""

import functools
import inspect
import types

from wisp import _core
from wisp.nn.modules.module import Module

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# In these, launches on a GPU are kept back and replayed as graphs.
_KEEPING = ("reduce-overhead", "max-autotune")
# Names of backends that programs ask for, and whether operators are noted under them: not under those that look for faults.
BACKENDS = dict.fromkeys(("inductor", "cudagraphs"), True) | dict.fromkeys(
    """eager eager_debug eager_noexcept pre_dispatch_eager aot_eager aot_eager_default_partitioner aot_eager_decomp_partition
    aot_eager_decomp_partition_with_mode""".split(),
    False,
)


def _check(backend, mode, options):
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if callable(backend):
        raise NotImplementedError(
            "compile: there is no graph to hand to a backend of your own; operators are noted while the function runs"
        )
    if backend not in BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, see `torch.compiler.list_backends()` for available backends.")


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, name=None, disable=False, **kwargs):
    """The function or module with its operators noted and run together: pointwise chains, casts and the reductions between them
    become few passes over memory. Python runs every time, so control flow, printing and hooks work as always, nothing is traced,
    and new shapes cost nothing. Results are the same to the last bit, but for the order of sums on a GPU.

    `fullgraph` and `dynamic` change nothing: there are no graphs to break and no shapes to guard. `backend="eager"` notes nothing.

    >>> import wisp
    >>> @wisp.compile
    ... def gate(x):
    ...     return wisp.sigmoid(x) * x + 1
    >>> gate(wisp.zeros(3))
    tensor([1., 1., 1.])
    """
    if model is None:
        return lambda f: compile(
            f, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, name=name, disable=disable, **kwargs
        )
    _check("inductor" if backend is None else backend, mode, options)
    keeping = mode in _KEEPING or backend == "cudagraphs" or bool(options and options.get("triton.cudagraphs"))
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if isinstance(model, Module):
        return OptimizedModule(model, noting=BACKENDS[backend or "inductor"] and not disable, keeping=keeping)
    if disable:
        return model
    return _noting(model, keeping) if BACKENDS[backend or "inductor"] else _forwarding(model)


def _wraps(function):
    kept = [name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(function, name)]

    def finish(wrapper):
        own = ("__dict__",) if isinstance(function, types.FunctionType) else ()
        wrapper = functools.wraps(function, assigned=kept, updated=own)(wrapper)
        wrapper._torchdynamo_orig_callable = function
        return wrapper

    return finish


def _noting(function, keeping=False):
    if not isinstance(function, types.FunctionType):
        return _wraps(function)(_core._compiled(function, keeping))
    # With code of its own, by which it is known on the stack (`runs_compiled`).
    code = function.__code__.replace()
    copy = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    _core._compile_function(_wraps(function)(copy), keeping)
    return copy


def runs_compiled(frame):
    """Whether the frame is part of the call of a compiled function; one that rests is called as any function is, so its code tells."""
    if _core._is_noting():
        return True
    resting = _core._resting_codes()
    while resting and frame is not None and frame.f_code is not _at_once_code:
        if id(frame.f_code) in resting:
            return True
        frame = frame.f_back
    return False


def _forwarding(function):
    @_wraps(function)
    def compiled(*args, **kwargs):
        return function(*args, **kwargs)

    return compiled


class OptimizedModule(Module):
    """What `compile(module)` returns: it holds the module as `_orig_mod`, shares its parameters, and calls it in a compiled region.
    Attributes are those of the module; the keys of its state dict begin with `_orig_mod.`.

    >>> import wisp
    >>> layer = wisp.compile(wisp.nn.Linear(2, 3))
    >>> list(layer.state_dict()), layer.out_features
    (['_orig_mod.weight', '_orig_mod.bias'], 3)
    """

    _own = frozenset(("_orig_mod", "_noting", "_keeping", "forward", "dynamo_ctx", "__dict__", "__class__"))
    dynamo_ctx = None  # by which libraries know a compiled module

    def __init__(self, mod, noting=True, keeping=False):
        super().__init__()
        super().__setattr__("_orig_mod", mod)
        state = self.__dict__
        del state["training"]  # the module's is meant
        state["_noting"], state["_keeping"] = noting, keeping
        state["forward"] = _noting(mod, keeping) if noting else _forwarding(mod)
        if noting:
            state["_has_hooks"] = state["forward"]  # a shorter way to it, for as long as it has no hooks of its own (module_call.cpp)

    @property
    def training(self):
        return self._orig_mod.training

    @training.setter
    def training(self, mode):
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            self._orig_mod.training = mode

    def __reduce__(self):
        return type(self), (self._orig_mod, self._noting, self._keeping)

    def __getattr__(self, name):
        if name == "_orig_mod":
            return super().__getattr__(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._orig_mod, name)

    def __setattr__(self, name, value):
        if name == "training" or name in self._own or "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)
            if name == "forward":
                self.__dict__.pop("_has_hooks", None)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name):
        if name in self._own:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self):
        return len(self._orig_mod)

    def __getitem__(self, index):
        return self._orig_mod[index]

    def __iter__(self):
        return iter(self._orig_mod)

    def __contains__(self, item):
        return item in self._orig_mod

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


def disable(fn=None, recursive=True, *, reason=None):
    """The function with its operators run at once, even when it is called in a compiled region; also as a decorator with arguments.

    >>> import wisp
    >>> @wisp.compiler.disable
    ... def double(x):
    ...     return x * 2
    >>> double(2)
    4
    """
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    if isinstance(fn, Module):
        fn.forward = disable(fn.forward)
        return fn
    if inspect.isclass(fn):
        return fn
    if isinstance(fn, types.FunctionType) and getattr(fn, "_torchdynamo_disable", False):
        return fn

    at_once = _wraps(fn)(_at_once(fn))
    at_once._torchdynamo_disable = True
    return at_once


def _at_once(fn):
    def at_once(*args, **kwargs):
        return _core._call_at_once(fn, args, kwargs)

    return at_once


_at_once_code = _at_once(None).__code__
