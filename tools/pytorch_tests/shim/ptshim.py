"""Lets PyTorch's own test suite import its harness (torch.testing._internal) on top of Wisp.

Installed by sitecustomize.py; nothing happens until `torch`, `functorch` or `torchgen` is imported. Then:
  * `torch` means Wisp, exactly as `wisp run` does it;
  * torch.testing._internal, _comparison, _creation, _utils, torch._vendor, torchgen, ... are PyTorch's own Python files
    (REAL below), taken from $WISP_PYTORCH_TESTS;
  * internals that only the harness touches at import (dynamo, inductor, _refs, _prims, TorchScript, ...) are stubs that
    raise HarnessStub when a test really uses them: such tests are reported as "out of scope (stub)".
Nothing public is added to Wisp.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
import types

SRC, WHEEL = (os.path.join(os.environ["WISP_PYTORCH_TESTS"], folder) for folder in ("src", "whl"))

# modules of PyTorch that are loaded as they are: pure Python, part of the harness
REAL = {
    "torch.testing._internal": SRC,
    "torch.testing._comparison": SRC,
    "torch.testing._creation": SRC,
    "torch.testing._utils": SRC,
    "torch._vendor": WHEEL,
    "torchgen": WHEEL,
    "torch.utils._import_utils": WHEEL,
    "torch.utils._traceback": WHEEL,
}
# parts of REAL trees that are stubbed nevertheless (TorchScript, inductor, distributed, quantization, dynamo)
STUB = {
    "torch.testing._internal.jit_utils",
    "torch.testing._internal.jit_metaprogramming_utils",
    "torch.testing._internal.common_jit",
    "torch.testing._internal.inductor_utils",
    "torch.testing._internal.triton_utils",
    "torch.testing._internal.common_distributed",
    "torch.testing._internal.common_quantization",
    "torch.testing._internal.hop_db",
    "torch.testing._internal.optests",
    "torch.testing._internal.logging_utils",
    "torch.testing._internal.distributed",
    "torch.testing._internal.torchbind_impls",
    "torch.testing._internal.composite_compliance",
    "torch.testing._internal.hypothesis_utils",
    "torch.testing._internal.common_quantized",
    "torch._refs",
    "torch._prims",
    "torch._prims_common",
    "torch._decomp",
    "torch._meta_registrations",
    "torch._dynamo",
    "torch._inductor",
    "torch._lazy",
    "torch._native",
    "torch._utils_internal",
    "torch._logging",
    "torch._export",
    "torch._functorch",
    "torch._library",
    "torch._guards",
    "torch._custom_op",
    "torch._custom_ops",
    "torch._subclasses",
    "torch.jit._logging",
    "torch.jit.frontend",
    "torch.jit.quantized",
    "torch.jit.mobile",
    "torch.backends.xnnpack",
    "torch.backends.mkldnn",
    "torch.backends.python_native",
    "torch.backends.quantized",
    "torch.utils._triton",
    "torch.utils._mode_utils",
    "torch._higher_order_ops.flex_attention",
    "torch._higher_order_ops.inline_asm_elementwise",
    "torch._higher_order_ops.invoke_subgraph",
    "torch._higher_order_ops.register_hook",
    "torch.utils._sympy",
    "torch._C._profiler",
    "torch._C._autograd",
    "torch._C._distributed_c10d",
    "torch._C._dynamo",
    "torch._C._jit_tree_views",
    "torch.fx.experimental._config",
    "torch.fx.experimental.rewriter",
    "torch.nested._internal",
    "torch.utils._config_module",
    "torch.profiler._utils",
    "functorch.compile",
}


class HarnessStub(NotImplementedError):
    """A test used an internal of PyTorch's build that the harness only stubs."""


class _Meta(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return make(f"{cls._stub}.{name}")

    def __instancecheck__(cls, value):
        return type(value) is cls or cls in type(value).__mro__

    def __iter__(cls):
        return iter(())


class Stub(metaclass=_Meta):
    """A thing that can be named, decorated with, subclassed, but not really used."""

    _stub = "stub"

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return make(f"{self._stub}.{name}")

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Stub):
            return args[0]  # a decorator
        if not in_test():
            return self
        raise HarnessStub(f"{self._stub}() is a stub of the harness")

    def __enter__(self):
        if in_test():
            raise HarnessStub(f"{self._stub} is a stub of the harness")
        return self

    def __exit__(self, *args):
        return False

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __or__(self, other):
        return self

    __ror__ = __and__ = __rand__ = __or__

    def __hash__(self):
        return id(self)

    def __repr__(self):
        return f"<stub {self._stub}>"


_state = {"in_test": False}


def in_test():
    return _state["in_test"]


def make(name):
    last = name.rpartition(".")[2]
    cls = _Meta(last, (Stub,), {"_stub": name})
    if last[:1].isupper() or last[:2].lstrip("_")[:1].isupper():
        return cls
    return cls()


class StubModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        value = make(full)
        setattr(self, name, value)
        return value


class MissingModule(StubModule):
    """A module of PyTorch's that Wisp lacks, named in a test file's imports: the tests that use it fail, not the file."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        if in_test():
            raise AttributeError(f"MISSING API: {full}")
        import ptpatches

        return ptpatches.missing(full)


MISSING_MODULES = set()


def asked_by_harness():
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith("<frozen") and "importlib" not in name and name != __file__:
            return name.startswith(SRC)
        frame = frame.f_back
    return False


def _within(name, names):
    while name:
        if name in names:
            return name
        name = name.rpartition(".")[0]
    return None


class RealLoader(importlib.machinery.SourceFileLoader):
    """Loads a file of PyTorch's harness; dtypes that Wisp only names (quantised ones, bits) count as dtypes, so that their
    tests are collected (and fail)."""

    def source_to_code(self, data, path, *, _optimize=-1):
        if isinstance(data, bytes):
            data = data.decode()
        if b"torch.dtype" in data.encode():
            data = re.sub(
                r"isinstance\((\w+), torch\.dtype\)",
                r"isinstance(\1, (torch.dtype, __import__('wisp._compat.dtypes')._compat.dtypes.AbsentDtype))",
                data,
            )
        return super().source_to_code(data, path, _optimize=_optimize)

    def exec_module(self, module):
        super().exec_module(module)
        if module.__name__ in AFTER:
            AFTER[module.__name__](module)


AFTER = {}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if not name.startswith(("torch.", "torchgen", "functorch")) and name != "torch":
            return None
        boot()
        if name == "torch":
            sys.modules.pop("torch", None)  # Wisp's own finder enters it; found here, wisp/__init__.py would run twice
            return None
        if name in OVERLAY:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        stub, real = _within(name, STUB), _within(name, REAL)
        if stub and (not real or len(stub) > len(real)):
            if wisp_has(name):
                return None
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if real:
            base = os.path.join(REAL[real], *name.split("."))
            if os.path.isdir(base):
                file = os.path.join(base, "__init__.py")
                return importlib.util.spec_from_file_location(name, file, loader=RealLoader(name, file), submodule_search_locations=[base])
            if os.path.exists(base + ".py"):
                return importlib.util.spec_from_file_location(name, base + ".py", loader=RealLoader(name, base + ".py"))
            return None
        if not in_test() and name.startswith("torch.") and asked_by_harness() and not wisp_has(name):
            MISSING_MODULES.add(name)
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = (MissingModule if spec.name in MISSING_MODULES else StubModule)(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        OVERLAY.get(module.__name__, lambda m: None)(module)


def wisp_has(name):
    if not name.startswith("torch."):
        return False
    ours = "wisp." + name.partition(".")[2]
    if ours in sys.modules:
        return True
    try:
        importlib.import_module(ours)
        return True
    except ModuleNotFoundError as error:
        if error.name is not None and ours.startswith(error.name):
            return False
        raise
    except ImportError:
        return False


_booted = False


def boot():
    global _booted
    if _booted:
        return
    _booted = True
    from wisp._compat import alias

    alias.install()
    # our finder stays in front of Wisp's
    sys.meta_path.remove(FINDER)
    sys.meta_path.insert(0, FINDER)
    import ptpatches

    ptpatches.apply()


OVERLAY = {}
FINDER = Finder()


def install():
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
