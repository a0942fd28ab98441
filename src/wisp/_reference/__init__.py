"""What a user must know of every public name: its arguments, shapes, formula, what is particular.

The texts stand in the .txt files beside this one, and `help()`, `__doc__` and the pages of the reference are made from them when they are
read. A line `== nn.Conv2d nn.*Pool2d` begins an entry for the names that it lists; an entry explains arguments (`stride: ...`) and has
paragraphs with a title (`Shape:`, `Formula:`, `Returns:`, `Note:`). What is said of an exact name goes before what a pattern says, a
later pattern before an earlier one, and an entry for all (`== *`) comes last: so an argument that recurs is explained once, and again
only where it means something else. An entry may end in an example, for names whose docstring has none. A docstring in the code says what
a thing is, and its example runs; it is not repeated here.
"""

TITLES = ("Shape", "Formula", "Returns", "Note")
_Function, _HEAP = type(lambda: None), 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes that are made at run time, whose docstring can be set
_entries = None


def attach(space, members):
    """Let the docstrings of a module's (or class's) own functions and classes go on, when somebody reads them, with what the texts say."""
    space = space.removeprefix("wisp").removeprefix(".")
    for name, value in members.items():
        function = type(value) is _Function
        if name[0] != "_" and (function or isinstance(value, type) and value.__flags__ & _HEAP):
            doc = value.__doc__ if function else value.__dict__.get("__doc__")
            if type(doc) is str and value.__module__.startswith("wisp"):
                value.__doc__ = Text(doc, f"{space}.{name}" if space else name, value)


class Text(str):
    """A docstring that grows when it is read: a class's by `__get__`; a function's, which `help()` hands to `inspect.cleandoc`, by the
    first thing that is done to it there. Without a path it is the docstring of `value`, as it is."""

    def __new__(cls, doc, path, value):
        text = super().__new__(cls, doc)
        text.path, text.value = path, value
        return text

    def __get__(self, instance, owner):
        import inspect

        if self.path is None:
            return self.value.__doc__ or ""
        return explained(inspect.cleandoc(str(self)), self.path, parameters(self.value), called(self.path, self.value))

    def expandtabs(self, tabsize=8):
        return self.__get__(None, None)

    def __reduce__(self):
        return str, (str(self),)


def of_operator(doc, module, name):
    """The docstring of an operator of the core, which begins with its signatures."""
    space = module.removeprefix("wisp").removeprefix(".")
    return explained(doc, f"{space}.{name}" if space else name, list(signature(doc, name)))


def explained(doc, path, names, call=None):
    arguments, paragraphs = about(path, names)
    for title, told in (("Arguments", arguments), ("Arguments of a call", call)):
        if told:
            doc += f"\n\n{title}:\n" + "\n".join(_wrapped(f"{name}: {text}", 4) for name, text in told.items())
    for title, text in paragraphs.items():
        doc += f"\n\n{title}:\n" + "\n".join(_wrapped(line, 4) for line in text.splitlines())
    shown = example(path) if ">>> " not in doc else ""
    return doc + ("\n\nExample:\n    " + shown.replace("\n", "\n    ") if shown else "")


def example(path):
    """The example of a name whose docstring has none; `{name}` in one for several names stands for each of them."""
    found = next((entry["Example"] for entry, _ in _matching(path) if "Example" in entry), "")
    return found and ">>> import wisp\n" + found.replace("{name}", path.rpartition(".")[2])


def about(path, names):
    """-> {argument: explanation}, {title: paragraph}: `names` are the parameters; where they are `args` and `kwargs` alone, all that the
    entry of the name explains are shown."""
    found = _matching(path)
    names = [name.lstrip("*") for name in names or ()]
    if set(names) <= {"args", "kwargs"}:
        names = (
            list(dict.fromkeys(name for entry, general in found if not general for name in entry if name not in (*TITLES, "Example")))
            or names
        )
    arguments = {}
    for name in names:
        text = next((entry[name] for entry, _ in found if name in entry), None)
        if text is not None:
            arguments[name] = text
    texts = {title: [entry[title] for entry, _ in found if title in entry] for title in TITLES}
    return arguments, {title: "\n".join(lines) for title, lines in texts.items() if lines}


def called(path, value):
    """{argument: explanation} of what a module is called with, where its entry tells more than that it is a tensor."""
    if not path.startswith("nn.") or not hasattr(value, "forward"):
        return {}
    own = {name for entry, general in _matching(path) if not general for name in entry}
    names = [name for name in parameters(value.forward) if name != "self"]
    return about(path, names)[0] if own.intersection(names) else {}


def parameters(value):
    """The names of a Python function's or class's parameters; an enum is not called."""
    import enum
    import inspect

    if isinstance(value, enum.EnumMeta):
        return []
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []


def signature(doc, name):
    """The parameters in the signatures that the docstring of an operator begins with, with what they have as presets."""
    import re

    found = {}
    for line in doc.splitlines():
        if not line.startswith((name + "(", name + "_(")):
            break
        inside = line[line.index("(") + 1 :].rpartition(")")[0] if " -> " not in line else line[line.index("(") + 1 : line.rindex(") -> ")]
        for word in re.findall(r"((?:\*?\w+)(?:=(?:\([^)]*\)|\[[^]]*\]|'[^']*'|[^,]*))?)(?:, |$)", inside):
            key, _, preset = word.partition("=")
            found.setdefault(key, preset)
    return found


def _matching(path):
    """The entries for a name, nearest first, each with whether it is for all."""
    import fnmatch

    global _entries
    if _entries is None:
        _entries = _read()
    exact, patterns = _entries
    last = path.rpartition(".")[2]
    near = (path.rstrip("_"), last, last.rstrip("_"), "nn.functional." + last.rstrip("_"))
    own = exact.get(path, [])
    if not any(entry.keys() - {"Example"} for entry in own):  # what is said of the name elsewhere, or of the one that it is a form of
        own = own + next((exact[name] for name in near if name != path and name in exact), [])
    found = [(entry, False) for entry in own]
    for pattern, entry in patterns:
        if fnmatch.fnmatchcase(path, pattern) and all(entry is not other for other, _ in found):
            found.append((entry, pattern.endswith("*")))
    return found


def _read():
    import pathlib
    import re

    exact, patterns = {}, []
    for file in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
        for part in re.split(r"^== ", file.read_text(encoding="utf-8"), flags=re.M)[1:]:
            head, _, body = part.partition("\n")
            body, prompt, rest = body.partition(">>> ")
            entry, keys = {}, ()
            for line in body.splitlines():
                begin = re.match(r"([\w, ]+?): (.*)", line)
                if begin and not line.startswith(" "):
                    keys = begin[1].split(", ")
                    entry.update(dict.fromkeys(keys, begin[2]))
                elif line.strip():
                    for key in keys:
                        entry[key] += ("\n" if key in TITLES and line.startswith("    ") else " ") + line.strip()
            if prompt:
                entry["Example"] = (prompt + rest).rstrip()
            for pattern in head.split():
                if "*" in pattern or "?" in pattern:
                    patterns.insert(0, (pattern, entry))
                else:
                    exact.setdefault(pattern, []).append(entry)
    patterns.sort(key=lambda pair: (pair[0] == "*", pair[0].endswith(".*")))
    return exact, patterns


def _wrapped(text, indent):
    import textwrap

    return textwrap.fill(text, 110, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4), break_on_hyphens=False)
