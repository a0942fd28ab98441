"""Graph modules as folders of Python text."""

import os
import pathlib
import textwrap
import types

import wisp
from wisp import nn

_SHORT = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # what their text makes again


def _import(name, value):
    """The line that brings an object under a name."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if value is type(None):
        return f"{name} = type(None)"
    if isinstance(value, float):
        return f"{name} = float({str(value)!r})"
    if not module or not path.isidentifier():
        raise RuntimeError(f"to_folder: {value!r} ({name} in the text of the graph) is no object that a file could import")
    return f"from {module.replace('torch', 'wisp', 1) if module.startswith('torch') else module} import {path} as {name}"


def write(module, folder, name):
    """Write `folder/__init__.py`, `folder/module.py` and the files of what the module holds."""
    folder = pathlib.Path(folder)
    os.makedirs(folder, exist_ok=True)
    wisp.save(module.state_dict(), folder / "state_dict.pt")
    lines = []
    for child, value in module.named_children():
        text = repr(value)
        if type(value) not in _SHORT:
            wisp.save(value, folder / f"{child}.pt")
            text = f"torch.load(_HERE / {child + '.pt'!r}, weights_only=False)"
        lines.append(f"self.add_module({child!r}, {text})")
    for kind, held in (
        ("self.register_buffer({}, {})", module._buffers),
        ("self.register_parameter({}, Parameter({}, {}))", module._parameters),
    ):
        for key, value in held.items():
            if value is not None:
                empty = f"torch.empty({list(value.shape)}, dtype={value.dtype})"
                lines.append(kind.format(repr(key), empty, value.requires_grad))
    lines.append("self.load_state_dict(torch.load(_HERE / 'state_dict.pt'))")
    made = module.graph.python_code("self")
    named = [_import(key, value) for key, value in made.globals.items() if key not in ("torch", "__builtins__")]
    head = [
        "import pathlib",
        "",
        "import wisp as torch",
        "from wisp.nn import *",
        *named,
        "",
        "_HERE = pathlib.Path(__file__).parent",
        "",
        "",
    ]
    body = ["def __init__(self):", "    super().__init__()", *("    " + line for line in lines)]
    text = "\n".join([*head, f"class {name}(torch.nn.Module):", textwrap.indent("\n".join(body), "    ")])
    (folder / "module.py").write_text(text + "\n" + textwrap.indent(made.src, "    "))
    (folder / "__init__.py").write_text(f"from .module import {name}  # noqa: F401\n")
