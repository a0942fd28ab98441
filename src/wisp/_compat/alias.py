"""Wisp under PyTorch's name: after `install()`, `import torch` and `import torchvision` give Wisp's own modules.

Three things make it hold: a finder for the import system, modules that say what they lack and who asked for it,
and a folder on the path of child processes, in which `torch` is found as well.
"""

import dis
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types

from wisp._compat import RENAMED, Finder, missing

# the release of PyTorch whose names and behaviour Wisp follows, and that of torchvision
VERSIONS = {"torch": "2.13.0", "torchvision": "0.28.0"}
_ROOTS = {"torch": "wisp", "torchvision": "wisp.vision", "functorch": "wisp.functorch"}
_SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim")
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def own_name(name):
    """The module of Wisp behind a module of PyTorch ("torch.nn" -> "wisp.nn"), or None."""
    root, dot, rest = name.partition(".")
    return _ROOTS[root] + dot + rest if root in _ROOTS else None


def torch_name(name):
    """The other way round: "wisp.vision.models" -> "torchvision.models"."""
    for theirs, ours in (("torchvision", "wisp.vision"), ("torch", "wisp")):
        if name == ours or name.startswith(ours + "."):
            return theirs + name[len(ours) :]
    return name


class _Asked(types.ModuleType):
    """A module that explains what it lacks: what, where it was used, what is closest."""

    def __getattr__(self, name):
        if name in ("__config__", "__future__") and self.__name__ in ("wisp", "torch"):
            return importlib.import_module(f"wisp.{name}")
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        if "__path__" in vars(self):  # PyTorch imports most of its parts at once, so programs use them without importing
            ours = own_name(self.__name__) or self.__name__
            if importlib.util.find_spec(f"{ours}.{name}") is not None:
                return importlib.import_module(f"{ours}.{name}")
        # `from torch import x` asks like `torch.x` does, and drops the text of an AttributeError: only the instruction tells which it is.
        frame = missing.caller()
        code = frame.f_code.co_code if frame is not None else b""
        importing = frame is not None and frame.f_lasti >= 0 and code[frame.f_lasti] == _IMPORT_FROM
        if importing and f"{self.__name__}.{name}" not in sys.modules:
            raise missing.MissingImport(self, name, frame)
        raise missing.MissingName(self, name, frame)


class _Torch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch.x.y where there is a wisp.x.y; both names share one module."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("wisp."):
            return _explained(importlib.machinery.PathFinder.find_spec(name, path, target) or Finder.find_spec(name))
        ours = own_name(name)
        if ours is None:
            return _then(importlib.machinery.PathFinder.find_spec(name, path, target), _tell_optree) if name == "optree" else None
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if error.name is None or not ours.startswith(error.name):
                raise
            raise missing.no_module(name) from None
        if name == "torchvision":
            _import_pillow()
        sys.modules.pop(name, None)  # entered just now: found there, the import system would run the module again
        return importlib.machinery.ModuleSpec(name, self, origin=getattr(module, "__file__", None), is_package=hasattr(module, "__path__"))

    def create_module(self, spec):
        module = sys.modules[own_name(spec.name)]
        self._own = module.__dict__.get("__spec__"), module.__dict__.get("__loader__")
        return module

    def exec_module(self, module):
        # the import system has just described the module as torch's: it stays Wisp's
        module.__spec__, module.__loader__ = self._own
        _explain(module)

    def find_distributions(self, context=None):
        """What `importlib.metadata.version("torch")` asks, as many libraries do."""
        name = getattr(context, "name", None)
        return [_Distribution(name)] if name in VERSIONS else []


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name):
        self._name = name

    def read_text(self, filename):
        return f"Name: {self._name}\nVersion: {VERSIONS[self._name]}\n" if filename == "METADATA" else None

    def locate_file(self, path):
        return path


def _explained(spec):
    """The spec of a module of Wisp that will explain what it lacks once it is loaded."""
    return _then(spec, _explain)


def _then(spec, work):
    """The spec of a module with which something is to be done once it is loaded."""
    if spec is not None and spec.loader is not None:
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            work(module)

        spec.loader.exec_module = exec_module
    return spec


def _import_pillow():
    """Programs that `import PIL` and say `PIL.Image` count on torchvision, which has these imported; Wisp's waits for need."""
    for part in ("Image", "ImageColor", "ImageDraw", "ImageEnhance", "ImageFont", "ImageOps"):
        try:
            importlib.import_module(f"PIL.{part}")
        except ImportError:
            return


def _tell_optree(optree):
    """To optree a dict is a tree only if it is of that very class: `module._parameters` is a tree as well, with its names in order."""
    from wisp.nn.modules.registry import Registry

    def flatten(registry):
        names = sorted(registry)
        return [registry[name] for name in names], names, names

    optree.register_pytree_node(
        Registry, flatten, lambda names, values: dict(zip(names, values)), namespace=vars(optree.registry)["__GLOBAL_NAMESPACE"]
    )


def _rename_classes(module):
    """Libraries tell layers and parameters of PyTorch by the names of their modules: brevitas and nni when they trace, and autoray."""
    from wisp import Tensor

    for kind in list(vars(module).values()):
        ours = isinstance(kind, type) and kind.__module__ == module.__name__ and not kind.__name__.startswith("_")
        if ours and (issubclass(kind, Tensor) or hasattr(kind, "register_parameter")) and kind.__name__ != "MultiheadAttention":
            RENAMED[kind] = module.__name__
            kind.__module__ = torch_name(module.__name__)  # PyTorch has the one left out in another module: see _pickler.py


def _explain(module):
    # Entered under both names, it is not imported a second time as torch's, which would put the module into its package once more,
    # over a function that has its name there (autograd.gradcheck).
    sys.modules.setdefault(torch_name(module.__name__), module)
    if type(module) is types.ModuleType:
        module.__class__ = _Asked
    if module.__name__.startswith(("wisp.nn.modules.", "wisp.nn.parameter")):
        _rename_classes(module)
    if module.__name__ == "wisp.jit":  # Hummingbird calls a backend by it
        module.__name__ = "torch.jit"


def install():
    """Let `torch` and `torchvision` mean Wisp in this process and in those it starts, from now on."""
    if any(isinstance(finder, _Torch) for finder in sys.meta_path):
        return
    for root in _ROOTS:
        module = sys.modules.get(root)
        if module is not None and not module.__name__.startswith("wisp") and not str(module.__file__).startswith(_SHIM):
            raise RuntimeError(f"{root} is already imported: `import wisp.as_torch` (or `wisp run`) must come first")
    import wisp
    from wisp.torch_version import TorchVersion

    sys.meta_path.insert(0, _Torch())
    sys.modules["torch"] = wisp.torch = wisp  # `torch.torch` is torch
    for name, module in list(sys.modules.items()):
        if name == "wisp" or name.startswith("wisp."):
            _explain(module)
    wisp.__name__ = "torch"  # libraries compare it with the name that they import
    wisp.__version__ = wisp.version.__version__ = TorchVersion(f"{VERSIONS['torch']}+wisp{wisp.__version__}")
    # a process started from here finds `torch` in this folder, which calls install() again
    if _SHIM not in sys.path:
        sys.path.insert(1, _SHIM)
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _SHIM not in folders:
        parent = os.path.dirname(os.path.dirname(os.path.dirname(_SHIM)))
        os.environ["PYTHONPATH"] = os.pathsep.join([_SHIM, parent, *filter(None, folders)])
