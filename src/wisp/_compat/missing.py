"""What a PyTorch program asked for and Wisp lacks: the name, where it was used, what is closest."""

import difflib
import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_QUANTIZATION = "torch.ao.quantization has prepare, prepare_qat, convert and quantize_dynamic; not its modes for graphs."
# what Wisp does not have on purpose, and what to do instead
ADVICE = {
    "torch.onnx": "torch.onnx has export; translations of a program's own and the symbolic functions of opsets are not there.",
    "torch.quantization": _QUANTIZATION,
    "torch.ao": _QUANTIZATION,
    "torch.utils.cpp_extension": "PyTorch's C++ extensions do not load into Wisp: load_inline compiles kernels (see its documentation).",
    **dict.fromkeys(
        (f"torch.utils.data.dataloader._{kind}DataLoaderIter.next" for kind in ("SingleProcess", "MultiProcessing")),
        "PyTorch has not had it since 1.13 either: say next(iterator).",
    ),
    "torch.package": "Save the state_dict with torch.save and ship the source beside it.",
    "torchvision.models.detection": "There are Faster, Mask and Keypoint R-CNN and RetinaNet; SSD and FCOS are not there yet.",
    "torchvision.models.video": "There are the ResNets of films (r3d_18, mc3_18, r2plus1d_18); MViT, S3D and Swin are not there yet.",
    "torchvision.models.quantization": "Quantize the float model of the same name with torch.ao.quantization.",
}


def caller():
    """The first frame outside of Wisp and of the import system: the program's own line."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_PACKAGE, "<frozen")):
            return frame
        frame = frame.f_back
    return None


def place(frame):
    """file:line of a frame."""
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def advice(name):
    """A sentence about a name that is missing on purpose, or ""."""
    while name:
        if name in ADVICE:
            return ADVICE[name]
        name = name.rpartition(".")[0]
    return ""


def closest(name, owner, prefix=None):
    """Up to three public names of `owner` (a module or a class) that resemble `name`, with their owner's name."""
    names = {n.lower(): n for n in dir(owner) if not n.startswith("_")}
    found = [names[n] for n in difflib.get_close_matches(name.lower(), names, 3, 0.6)]
    return [f"{prefix}.{n}" if prefix else n for n in found]


def elsewhere(name):
    """Other places of the package that have the very name: torch.softplus -> torch.nn.functional.softplus."""
    import wisp

    places = {
        "torch": wisp,
        "torch.nn": wisp.nn,
        "torch.nn.functional": wisp.nn.functional,
        "torch.Tensor": wisp.Tensor,
        "torch.linalg": wisp.linalg,
        "torch.special": wisp.special,
        "torch.nn.init": wisp.nn.init,
        "torch.optim": wisp.optim,
        "torch.utils.data": wisp.utils.data,
    }
    return [f"{where}.{name}" for where, owner in places.items() if name in dir(owner)]


def describe(owner_name, name, owner=None, where=""):
    """The sentences of an error about the missing `owner_name.name`."""
    full = f"{owner_name}.{name}"
    text = f"Wisp has no {full}" + (f" (used in {where})" if where else "")
    near = elsewhere(name) + (closest(name, owner, owner_name) if owner is not None else [])
    if near:
        text += "; closest: " + ", ".join(dict.fromkeys(near))
    hint = advice(full)
    return text + (". " + hint if hint else "")


class _Missing:
    """The text is made when it is read: `hasattr` asks often, and needs none."""

    def _fill(self, owner, name, frame):
        from wisp._compat.alias import torch_name

        self._owner, self._name, self._place = owner, name, place(frame)
        self._owner_name = torch_name(owner.__name__)

    def __str__(self):
        if not hasattr(self, "_owner_name"):
            return str(self.args[0])
        return describe(self._owner_name, self._name, self._owner, self._place)


class MissingName(_Missing, AttributeError):
    """A module of Wisp lacks a name that PyTorch may have."""

    def __init__(self, owner, name=None, frame=None):
        if name is None:  # a copy with another text, as some libraries make
            AttributeError.__init__(self, owner)
            return
        AttributeError.__init__(self, name=name, obj=owner)
        self._fill(owner, name, frame)


class MissingImport(_Missing, ImportError):
    """`from torch... import name`, of a name that Wisp lacks."""

    def __init__(self, owner, name=None, frame=None):
        if name is None:
            ImportError.__init__(self, owner)
            return
        ImportError.__init__(self, name=owner.__name__)
        self._fill(owner, name, frame)


def no_module(name):
    """The error for `import torch.x.y` where Wisp has no such module."""
    owner, _, last = name.rpartition(".")
    where = place(caller())
    text = f"Wisp has no module {name}" + (f" (imported in {where})" if where else "")
    try:
        import importlib
        import pkgutil

        from wisp._compat import NAMES
        from wisp._compat.alias import own_name

        package = importlib.import_module(own_name(owner))
        names = [m.name for m in pkgutil.iter_modules(package.__path__)] + (list(NAMES) if owner == "torch" else [])
        names = [name for name in names if not name.startswith("_")]
        near = difflib.get_close_matches(last, names, 3, 0.6)
        if near:
            text += "; closest: " + ", ".join(f"{owner}.{n}" for n in near)
    except (ImportError, AttributeError):
        pass
    hint = advice(name)
    return ModuleNotFoundError(text + (". " + hint if hint else ""), name=name)


def explain(error):
    """One more line for an error that ended a program, where Wisp knows better than the error's own text; or ""."""
    import wisp

    if isinstance(error, AttributeError) and not isinstance(error, MissingName):
        owner = getattr(error, "obj", None)
        kind = owner if isinstance(owner, type) else type(owner)
        if isinstance(owner, wisp.Tensor) or (isinstance(owner, type) and issubclass(kind, wisp.Tensor)):
            return describe("torch.Tensor", error.name, wisp.Tensor)
        if kind.__module__.startswith(("wisp.", "torch.")) and error.name:
            from wisp._compat.alias import torch_name

            return describe(f"{torch_name(kind.__module__)}.{kind.__qualname__}", error.name, kind)
    return ""
