"""The pages of the reference: one for each public class and function, an index for each module, and one of all modules.

Pages are made from signatures, docstrings and the texts of `wisp._reference`; tools/docs_site.py hands them to mkdocs.
"""

import enum
import importlib
import inspect
import re
import textwrap

import wisp
from wisp import _reference

# Module -> what it holds; the order is that of the site.
MODULES = {
    "wisp": "tensors and operators",
    "wisp.Tensor": "methods of tensors",
    "wisp.nn": "layers and losses",
    "wisp.nn.functional": "the same as functions",
    "wisp.nn.init": "initial values of parameters",
    "wisp.nn.utils": "gradients' norms, fusing, parametrizations",
    "wisp.nn.utils.rnn": "sequences of different lengths",
    "wisp.nn.utils.parametrize": "parameters computed from others",
    "wisp.nn.utils.parametrizations": "ready parametrizations",
    "wisp.nn.utils.prune": "removing weights",
    "wisp.nn.parallel": "one model on several devices",
    "wisp.optim": "optimizers",
    "wisp.optim.lr_scheduler": "schedules of learning rates",
    "wisp.optim.swa_utils": "averages of weights",
    "wisp.autograd": "derivatives",
    "wisp.autograd.graph": "the graph and its hooks",
    "wisp.autograd.functional": "Jacobians and Hessians",
    "wisp.func": "functions of functions: grad, vmap, jvp",
    "wisp.utils.data": "datasets and loaders",
    "wisp.utils.checkpoint": "computing again instead of keeping",
    "wisp.utils.cpp_extension": "kernels of your own",
    "wisp.utils.tensorboard": "files for TensorBoard",
    "wisp.linalg": "linear algebra",
    "wisp.fft": "Fourier transforms",
    "wisp.special": "special functions",
    "wisp.signal.windows": "windows",
    "wisp.distributions": "probability distributions",
    "wisp.sparse": "sparse tensors",
    "wisp.nested": "tensors of different lengths in one",
    "wisp.masked": "tensors with gaps",
    "wisp.amp": "mixed precision",
    "wisp.cuda": "GPUs",
    "wisp.random": "random numbers",
    "wisp.serialization": "files",
    "wisp.distributed": "several processes",
    "wisp.distributed.fsdp": "models cut into shards",
    "wisp.distributed.tensor": "tensors over several ranks",
    "wisp.distributed.checkpoint": "files of many ranks",
    "wisp.multiprocessing": "processes that share tensors",
    "wisp.vision": "images",
    "wisp.vision.datasets": "datasets of images",
    "wisp.vision.transforms": "transforms of images",
    "wisp.vision.models": "networks for images",
    "wisp.vision.ops": "boxes and regions",
    "wisp.vision.utils": "grids and drawings",
    "wisp.vision.io": "image files",
    "wisp.sklearn": "estimators for scikit-learn",
    "wisp.viz": "pictures",
    "wisp.profiler": "where time goes",
    "wisp.progress": "progress bars",
    "wisp.hub": "models from repositories",
    "wisp.onnx": "files for other programs",
    "wisp.export": "programs as graphs",
    "wisp.fx": "graphs of modules",
    "wisp.jit": "scripted modules",
    "wisp.library": "operators of your own",
    "wisp.testing": "comparing tensors",
}
LARGEST = 100_000  # bytes of a page of the reference


def pages():
    """-> [(title, path of the index)] and {path: Markdown}."""
    found, modules = {}, []
    for path, about in MODULES.items():
        if path == "wisp.Tensor":
            modules.append((path, about, list(_methods_of_tensor()), ""))
            continue
        try:
            module = importlib.import_module(path)
        except ImportError:
            continue  # an extra that is not installed
        modules.append((path, about, list(_members(module)), inspect.getdoc(module) or ""))
    homes = {}  # what has a page -> where: under its own name if it has several
    for path, _, members, _ in modules:
        for name, value in sorted(members, key=lambda member: member[0] != getattr(member[1], "__name__", "")):
            homes.setdefault(_key(value), (_short(path), name))
    for path, _, members, _ in modules:
        if path in ("wisp", "wisp.Tensor", "wisp.nn.functional"):
            for name, value in members:  # methods and in-place forms stand with the function
                plain = _function(name, path)
                if plain is not None and homes[_key(value)][0] == _short(path):
                    homes[_key(value)] = homes[_key(plain)]
    partners = _partners(modules, homes)
    made, index = (
        [],
        ["# Reference\n", "One page for each class and function: arguments, shapes, formula, example. The search above finds names.\n"],
    )
    for path, about, members, doc in modules:
        short = _short(path)
        where = f"reference/{short}/index.md"
        made.append((short, where))
        index.append(f"- [**{_escaped(short)}**]({short}/index.md), {about}: {len(members)} names")
        groups = _groups(path, members)
        body = [f"# {_escaped(short)}\n", text(doc)]
        for title, group in groups.items():
            rows = "\n".join(f"| {_link(name, value, homes)} | {_sentence(name, value)} |" for name, value in group)
            names = " · ".join(f"[{_escaped(name)}](../{'/'.join(homes[_key(value)])}.md)" for name, value in group)
            table = f"\n| name | what it does |\n|---|---|\n{rows}\n"
            if len(groups) == 1:
                body.append(table)
            else:
                file = re.sub(r"\W+", "-", title.lower())
                found[f"reference/{short}/{file}.md"] = f"# {_escaped(short)}: {title.lower()}\n\n[All of {short}](index.md)\n{table}"
                body.append(f"\n## [{title}]({file}.md)\n\n{names}\n")
        found[where] = "\n".join(body)
        for name, value in members:
            if homes[_key(value)] == (short, name):
                found[f"reference/{short}/{name}.md"] = _page(short, name, value, partners)
    found["reference/index.md"] = "\n".join(index) + "\n"
    return [("Index", "reference/index.md"), *made], found


def _short(path):
    return "wisp" if path == "wisp" else path.removeprefix("wisp.")


def _key(value):
    return id(value.__func__ if inspect.ismethod(value) else value)


def _members(module):
    """Public names of a module, with what they are."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in dir(module) if not name.startswith("_")]
    for name in sorted(set(names) - (wisp._SUBMODULES if module is wisp else set()), key=str.lower):
        value = getattr(module, name, None)
        if inspect.ismodule(value) or not (callable(value) or isinstance(value, type)):
            continue
        if module is wisp and isinstance(value, type) and value.__module__ in ("builtins", "typing"):
            continue
        yield name, value


def _methods_of_tensor():
    for name in sorted(dir(wisp.Tensor), key=str.lower):
        value = getattr(wisp.Tensor, name, None)
        if not name.startswith("_") and callable(value):
            yield name, value


def _groups(path, members):
    """Long lists in parts that a reader can take in."""
    if path not in ("wisp", "wisp.Tensor"):
        return {"All": members}
    groups = dict.fromkeys(
        (
            "By element",
            "Along dimensions",
            "Shapes, views, indexing",
            "Random numbers",
            "Further operators",
            "Types, settings, composites",
            "In place",
        )
    )
    groups = {title: [] for title in groups}
    for name, value in members:
        facts = getattr(value, "_facts", ())
        if name.endswith("_"):
            title = "In place"
        elif "elementwise" in facts:
            title = "By element"
        elif "reduces" in facts or "along_dim" in facts:
            title = "Along dimensions"
        elif "draws" in facts:
            title = "Random numbers"
        elif "makes_view" in facts or "shape_only" in facts:
            title = "Shapes, views, indexing"
        else:
            title = "Further operators" if type(value).__name__.startswith("builtin_") else "Types, settings, composites"
        groups[title].append((name, value))
    return groups


def _function(name, path):
    """The function of which a method, or an in-place form, is another form; what nn.functional makes of an operator is its own."""
    for space in (wisp.nn.functional, wisp) if path == "wisp.nn.functional" else (wisp, wisp.nn.functional):
        found = getattr(space, name.rstrip("_"), None)
        if type(found).__name__ in ("builtin_function", "function"):
            return found


def _link(name, value, homes):
    home, as_name = homes[_key(value)]
    return f"[`{name}`](../{home}/{as_name}.md)"


def _own(name, value):
    """The docstring as it stands in the code, without what the texts add."""
    raw = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    if isinstance(raw, _reference.Text):
        return inspect.cleandoc(str(raw))
    doc = inspect.getdoc(value) or ""
    return re.split(r"\n\n(?:Arguments|Arguments of a call|Shape|Formula|Returns|Note):\n", doc)[0]


def _sentence(name, value):
    """The first sentence, for an index."""
    doc = signatures(name, value, _own(name, value))[1].split("\n\n")
    first = doc[1] if doc[0].startswith("Like the following") and len(doc) > 1 else doc[0]
    first = " ".join(first.partition(">>>")[0].split())
    first = re.split(r"(?<=[a-z)`\]])[.:] ", first)[0].rstrip(".:")
    return ("in place: " if doc[0].startswith("Like the following") else "") + harmless(first.replace("|", r"\|"))


def _partners(modules, homes):
    """nn.Conv2d <-> nn.functional.conv2d, as (space, name)."""

    def word(name):
        return re.sub(r"(_|loss$)", "", name.lower())

    spaces = {path: {word(name): homes[_key(value)] for name, value in members} for path, _, members, _ in modules}
    layers, functions = spaces["wisp.nn"], spaces["wisp.nn.functional"]
    both = {word for word in layers if word in functions}
    return {layers[w]: functions[w] for w in both} | {functions[w]: layers[w] for w in both}


def _page(short, name, value, partners):
    shown, doc = signatures(name, value, _own(name, value))
    path = name if short == "wisp" else f"{short}.{name}"
    parts = [f"# {_escaped(name)}\n", f"[{_escaped(short)}](index.md)\n"]
    if shown:
        lines = "\n".join(map(_filled, shown))
        parts.append(f"```python\n{lines}\n```\n")
    example = re.search(r"^[ ]*>>> ", doc, re.M)
    prose, example = (doc[: example.start()], doc[example.start() :]) if example else (doc, _reference.example(path))
    parts.append(text(prose))
    presets = _reference.signature("\n".join(shown), name) or _presets(value)
    arguments, paragraphs = _reference.about(path, list(presets))
    kinds = _kinds(value)
    if arguments:
        parts.append("## Arguments\n")
        for word, told in arguments.items():
            preset = presets.get(word) or presets.get("*" + word)
            kind = f" *{kinds[word]}*" if kinds.get(word) else ""
            parts.append(f"- **`{word}`**{kind}" + (f" `= {preset}`" if preset else "") + f": {harmless(told)}")
    call = _reference.called(path, value)
    if call:
        parts += [f"\n## Arguments of a call\n\n```python\n{_shown_call(value)}\n```\n"]
        parts += [f"- **`{word}`**: {harmless(told)}" for word, told in call.items()]
    for title, told in paragraphs.items():
        lines = [harmless(line) for line in told.splitlines()]
        parts.append(f"\n## {title}\n\n" + "\n\n".join(line[:1].upper() + line[1:] for line in lines))
    if example.strip():
        parts.append("\n## Example\n\n" + text(example))
    if (short, name) in partners:
        space, partner = partners[short, name]
        parts.append(f"\nSee also [{space}.{_escaped(partner)}](../{space}/{partner}.md).\n")
    if value is wisp.Tensor:
        parts.append("\nIts methods have [pages of their own](../Tensor/index.md).\n")
    elif isinstance(value, type):
        parts += _methods(value)
    return "\n".join(parts) + "\n"


def _shown_call(cls):
    found = inspect.signature(cls.forward)
    return _filled("layer" + str(found.replace(parameters=list(found.parameters.values())[1:], return_annotation=found.empty)))


def _filled(line):
    return textwrap.fill(line, 74, subsequent_indent="        ", break_on_hyphens=False)


# How the types of registered signatures are told.
_TOLD = {
    "Operand": "Tensor or number",
    "int[]": "int or ints",
    "Number": "number",
    "Tensor[]": "Tensors",
    "format": "memory format",
    "any": "",
}


def _kinds(value):
    """The types of an operator's parameters, from the signatures that it was registered with."""
    found = {}
    for signature in getattr(value, "_signatures", ()):
        for kind, name in re.findall(r"([\w\[\]]+\??(?:\[\])?)!? (\w+)(?=[,=)])", signature):
            plain = kind.rstrip("?")
            told = _TOLD.get(plain, plain)
            if told not in found.setdefault(name, []):
                found[name].append(told)
    return {name: ", ".join(filter(None, kinds)) for name, kinds in found.items()}


def _plain(text):
    """Signatures and presets with the names of functions, classes and members, not with their addresses and modules."""
    text = re.sub(r"<function [^ ]*<lambda> at 0x\w+>", "<lambda>", text)
    text = re.sub(r"<(?:built-in )?(?:function|class|module) '?(?:\w+\.)*(\w+)[^<>]*>", r"\1", text)
    return re.sub(r"<(\w+\.\w+): [^<>]+>", r"\1", text)


def _presets(value):
    if isinstance(value, enum.EnumMeta):
        return {}
    try:
        found = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return {}
    return {name: "" if p.default is p.empty else _plain(repr(p.default)) for name, p in found.items()}


def signatures(name, value, doc):
    """Signatures, which for the core's operators are the first lines of the docstring, and the rest of it."""
    lines = doc.splitlines()
    found = []
    own = getattr(value, "__name__", name)  # that of an operator with several names
    while lines and lines[0].startswith((name + "(", own + "(")):
        found.append(lines.pop(0))
    if found:
        return found, "\n".join(lines).strip()
    if isinstance(value, enum.EnumMeta):
        return [f"{name}.{member}" for member in value.__members__], doc
    try:
        return [("class " if isinstance(value, type) else "") + name + _plain(str(inspect.signature(value)))], doc
    except (TypeError, ValueError):
        return [], doc


def _methods(cls):
    """The documented methods that a class adds itself."""
    parts = []
    for name, method in vars(cls).items():
        function = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
        doc = inspect.getdoc(function) if callable(function) and function.__doc__ else None  # not that of the method it replaces
        inherited = isinstance(getattr(function, "__doc__", None), _reference.Text) and function.__doc__.path is None
        if name.startswith("_") or not doc or inherited or not inspect.isfunction(function):
            continue
        parts.append(f"\n**`{name}{_plain(str(inspect.signature(function)))}`**\n\n{text(doc)}")
    return ["\n## Methods\n", *parts] if parts else []


def _escaped(text):
    return text.replace("_", r"\_").replace("*", r"\*")


def harmless(prose):
    """Prose in which nothing would be read as HTML, a link or emphasis, code aside."""
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;").replace("[", r"\[").replace("*", r"\*")
        for part in re.split(r"(`[^`]*`)", prose)
    )


def text(doc):
    """A docstring as Markdown: examples and indented paragraphs become code."""
    out = []
    for paragraph in re.split(r"\n\s*\n", doc.strip("\n")):
        prose, example = paragraph, ""
        if ">>> " in paragraph:
            at = re.search(r"^[ ]*>>> ", paragraph, re.M).start()
            prose, example = paragraph[:at].rstrip("\n"), paragraph[at:]
        if prose.startswith("    "):
            out.append(f"```text\n{textwrap.dedent(prose)}\n```")
        elif prose:
            out.append(harmless(prose))
        if example:
            out.append(f"```pycon\n{textwrap.dedent(example)}\n```")
    return "\n\n".join(out) + "\n"
