"""Hooks of mkdocs: pictures in the pages come from running their code, and the reference comes from the docstrings.

Nothing that is generated here lies in the source tree. See mkdocs.yml.
"""

import importlib
import inspect
import os
import pathlib
import re
import sys
import textwrap

from mkdocs.structure.files import File

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_docs  # noqa: E402

import wisp  # noqa: E402

# Module -> what its page is called; the order is that of the site.
MODULES = {
    "wisp": "Tensors and operators",
    "wisp.Tensor": "Methods of Tensor",
    "wisp.nn": "nn",
    "wisp.nn.functional": "nn.functional",
    "wisp.nn.init": "nn.init",
    "wisp.nn.utils": "nn.utils",
    "wisp.optim": "optim",
    "wisp.optim.lr_scheduler": "optim.lr_scheduler",
    "wisp.autograd": "autograd",
    "wisp.autograd.graph": "autograd.graph",
    "wisp.func": "func",
    "wisp.utils.data": "utils.data",
    "wisp.utils.checkpoint": "utils.checkpoint",
    "wisp.utils.tensorboard": "utils.tensorboard",
    "wisp.linalg": "linalg",
    "wisp.fft": "fft",
    "wisp.special": "special",
    "wisp.signal.windows": "signal.windows",
    "wisp.distributions": "distributions",
    "wisp.amp": "amp",
    "wisp.serialization": "serialization",
    "wisp.vision": "vision",
    "wisp.vision.datasets": "vision.datasets",
    "wisp.vision.transforms": "vision.transforms",
    "wisp.vision.models": "vision.models",
    "wisp.sparse": "sparse",
    "wisp.sklearn": "sklearn",
    "wisp.viz": "viz",
    "wisp.profiler": "profiler",
    "wisp.progress": "progress",
    "wisp.multiprocessing": "multiprocessing",
    "wisp.cuda": "cuda",
    "wisp.hub": "hub",
    "wisp.testing": "testing",
}
_pictures = {}  # path within the site -> content


# --- pages with pictures


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri.startswith("reference/"):
        return markdown
    path = pathlib.Path(config["docs_dir"]) / page.file.src_uri
    pieces, at = [], 0
    text = path.read_text(encoding="utf-8")
    up = "../" * page.url.count("/")
    for number, block in enumerate(run_docs.run(path)):
        pieces.append(text[at : block.start])
        pieces.append(f"```python\n{block.code}```\n")
        if block.picture is not None:
            pieces.append("\n" + _embedded(block.picture, f"{path.stem}-{number}", up) + "\n")
        elif block.shown:
            pieces.append(f"\n```text\n{block.shown}```\n")
        at = block.end
    return "".join(pieces) + text[at:]


def _embedded(picture, name, up):
    """A picture's place in a page: what can be folded and zoomed is a page of its own, the rest an image."""
    if hasattr(picture, "png"):
        _pictures[f"pictures/{name}.png"] = picture.png
        return f"<img src='{up}pictures/{name}.png' alt='{name}' width='{picture.width * 5}' style='image-rendering:pixelated'>\n"
    if type(picture).html is not type(picture).__mro__[1].html:
        _pictures[f"pictures/{name}.html"] = picture.html().encode()
        height = min(640, picture.height if type(picture).__name__ == "Timeline" else 560)
        return (
            f"<iframe src='{up}pictures/{name}.html' loading='lazy' title='{name}' "
            f"style='width:100%;height:{height}px;border:1px solid #8884;border-radius:6px'></iframe>\n"
        )
    _pictures[f"pictures/{name}.svg"] = picture.svg().encode()
    return f"<img src='{up}pictures/{name}.svg' alt='{name}' style='max-width:100%'>\n"


def on_post_build(config):
    for path, content in _pictures.items():
        target = pathlib.Path(config["site_dir"]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


# --- the reference


def on_files(files, config):
    made = []
    for path, title in MODULES.items():
        if path == "wisp.Tensor":
            text = _page(title, "", _members_of_tensor())
        else:
            try:
                module = importlib.import_module(path)
            except ModuleNotFoundError as error:
                if not (path + ".").startswith(error.name + "."):
                    raise
                continue
            except ImportError:
                continue  # an extra that is not installed
            text = _page(title, inspect.getdoc(module) or "", _members(module))
        name = f"reference/{path.removeprefix('wisp.')}.md"
        files.append(File.generated(config, name, content=text))
        made.append({title: name})
    for entry in config["nav"]:
        if "Reference" in entry:
            entry["Reference"] = made
    return files


def _members(module):
    """Public names of a module, with what they are."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in dir(module) if not name.startswith("_")]
    for name in sorted(set(names), key=str.lower):
        value = getattr(module, name, None)
        if inspect.ismodule(value) or not (callable(value) or isinstance(value, type)):
            continue
        if module is wisp and isinstance(value, type) and value.__module__ in ("builtins", "typing"):
            continue
        yield name, value


def _members_of_tensor():
    for name in sorted(dir(wisp.Tensor), key=str.lower):
        value = getattr(wisp.Tensor, name, None)
        if not name.startswith("_") and callable(value):
            yield name, value


def _page(title, doc, members):
    parts = [f"# {title}\n", _text(doc)]
    for name, value in members:
        parts.append(f"\n## {_escaped(name)}\n")
        doc = inspect.getdoc(value) or ""
        signatures, doc = _signatures(name, value, doc)
        if signatures:
            shown = "\n".join(textwrap.fill(line, 78, subsequent_indent="        ", break_on_hyphens=False) for line in signatures)
            parts.append(f"```python\n{shown}\n```\n")
        parts.append(_text(doc))
        if isinstance(value, type):
            parts += _methods(value)
    return "\n".join(parts)


def _signatures(name, value, doc):
    """Signatures, which for the core's operators are the first lines of the docstring, and the rest of it."""
    lines = doc.splitlines()
    found = []
    while lines and re.match(rf"{re.escape(name)}\(.*", lines[0]):
        found.append(lines.pop(0))
    if found:
        return found, "\n".join(lines).strip()
    try:
        return [("class " if isinstance(value, type) else "") + name + str(inspect.signature(value))], doc
    except (TypeError, ValueError):
        return [], doc


def _methods(cls):
    """The documented methods that a class adds itself."""
    parts = []
    for name, method in vars(cls).items():
        function = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
        doc = inspect.getdoc(function) if callable(function) else None
        if name.startswith("_") or not doc or not inspect.isfunction(function):
            continue
        parts.append(f"\n**`{name}{inspect.signature(function)}`**\n\n{_text(doc)}")
    return parts


def _escaped(text):
    return text.replace("_", r"\_").replace("*", r"\*")


def _text(doc):
    """A docstring as Markdown: examples and indented paragraphs become code, and what would be read as HTML or a link is
    made harmless."""
    out = []
    for paragraph in re.split(r"\n\s*\n", doc.strip("\n")):
        prose, example = paragraph, ""
        if ">>> " in paragraph:
            at = re.search(r"^[ ]*>>> ", paragraph, re.M).start()
            prose, example = paragraph[:at].rstrip("\n"), paragraph[at:]
        if prose.startswith("    "):
            out.append(f"```text\n{textwrap.dedent(prose)}\n```")
        elif prose:
            plain = "".join(
                part if part.startswith("`") else part.replace("<", "&lt;").replace("[", r"\[").replace("*", r"\*")
                for part in re.split(r"(`[^`]*`)", prose)
            )
            out.append(plain)
        if example:
            out.append(f"```pycon\n{textwrap.dedent(example)}\n```")
    return "\n\n".join(out) + "\n"
