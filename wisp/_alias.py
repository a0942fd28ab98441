"""Wisp under PyTorch's name: after `install()`, `import torch` and `import torch.x.y` give Wisp's modules."""
import importlib
import importlib.abc
import importlib.machinery
import sys


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch.x.y where there is a wisp.x.y; both names share one module."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch" and not name.startswith("torch."):
            return None
        try:
            module = importlib.import_module("wisp" + name[5:])
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("wisp"):
                raise
            text = f"Wisp has no module {'wisp' + name[5:]} (asked for as {name})"
            raise ModuleNotFoundError(text, name=name) from None
        return importlib.machinery.ModuleSpec(name, self, origin=getattr(module, "__file__", None),
                                              is_package=hasattr(module, "__path__"))

    def create_module(self, spec):
        module = sys.modules["wisp" + spec.name[5:]]
        self._own = module.__dict__.get("__spec__"), module.__dict__.get("__loader__")
        return module

    def exec_module(self, module):
        # the import system has just described the module as torch's: it stays Wisp's
        module.__spec__, module.__loader__ = self._own


def install():
    """Let `torch` mean Wisp in this process, from now on."""
    if "torch" in sys.modules and sys.modules["torch"].__name__ != "wisp":
        raise RuntimeError("torch is already imported: _alias.install() must come first")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    import wisp
    sys.modules["torch"] = wisp
