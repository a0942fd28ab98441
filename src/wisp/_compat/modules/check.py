"""`wisp check path/`: reads PyTorch programs without running them and lists the names that Wisp lacks.

The source is parsed, the names that `import torch...` binds are followed through attribute chains, and each
chain is looked up in Wisp. Methods of tensors are judged by their name alone, and only where no other class has it.
"""

import ast
import importlib
import importlib.metadata
import json
import os
import re
import sys
import warnings

from wisp._compat import alias, missing

# methods of PyTorch's tensors that Wisp's may lack; no common class has them, so the name alone tells
TENSOR_METHODS = """
    to_sparse to_sparse_csr to_sparse_coo to_mkldnn dequantize int_repr q_scale q_zero_point sparse_mask sparse_resize_ sspaddmm
    crow_indices col_indices is_coalesced coalesce to_padded_tensor align_to align_as refine_names rename_""".split()


class Finding:
    """A name that is missing: where, what, what comes closest, and whether the program guards against its absence."""

    def __init__(self, path, line, name, near, guarded):
        self.path, self.line, self.name, self.near, self.guarded = path, line, name, near, guarded

    def __str__(self):
        text = f"{self.path}:{self.line}: {self.name}"
        if self.near:
            text += f"  ({self.near})"
        return text + ("  [guarded by the program]" if self.guarded else "")


def lookup(name):
    """Whether the dotted name ("torch.nn.Linear") exists in Wisp: None if so, otherwise what is closest."""
    root, *rest = name.split(".")
    while root == "torch" and rest[:1] == ["torch"]:  # `torch.torch` is torch
        del rest[0]
    path = alias.own_name(root)
    owner, theirs = importlib.import_module(path), root
    for part in rest:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = getattr(owner, part)
        except (AttributeError, RuntimeError):  # the latter from classes of libraries that are not loaded
            try:
                found = importlib.import_module(f"{path}.{part}")
            except ImportError:
                if not isinstance(owner, (type, type(sys))):
                    return None  # an object's attribute: not known without running the program
                text = missing.describe(theirs, part, owner)
                return text.partition("; ")[2] or text.partition(". ")[2] or "nothing close"
        owner, path, theirs = found, f"{path}.{part}", f"{theirs}.{part}"
    return None


def _locals(function):
    """The names that a function gives values of its own: they hide what the file imports by the same name."""
    given = function.args
    names = {argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if argument}
    shared, todo = set(), [function.body] if isinstance(function, ast.Lambda) else list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            shared.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            todo += ast.iter_child_nodes(node)
    return names - shared


class _Reader(ast.NodeVisitor):
    """Collects the dotted names of torch and torchvision that one file uses, with their lines."""

    def __init__(self):
        self.bound, self.used, self.methods, self.guards = {}, [], [], 0
        self.made = set()  # what the program itself adds to PyTorch's modules
        self.others, self.stars = [], []  # what may use PyTorch too: modules of others, and names that are not told

    def visit_Import(self, node):
        for item in node.names:
            if alias.own_name(item.name) is None:
                self.others.append((node.lineno, item.name.partition(".")[0]))
                continue
            self._use(node, item.name)
            if item.asname:
                self.bound[item.asname] = item.name
            else:
                root = item.name.partition(".")[0]
                self.bound[root] = root

    def visit_ImportFrom(self, node):
        if node.level:
            return
        if alias.own_name(node.module) is None:
            self.others.append((node.lineno, node.module.partition(".")[0]))
            return
        self._use(node, node.module)
        for item in node.names:
            if item.name == "*":
                self.stars.append((node.lineno, f"from {node.module} import *"))
            else:
                name = f"{node.module}.{item.name}"
                self.bound[item.asname or item.name] = name
                self._use(node, name)

    def visit_Attribute(self, node):
        chain, here = [], node
        while isinstance(here, ast.Attribute):
            chain.append(here.attr)
            here = here.value
        if isinstance(here, ast.Name) and here.id in self.bound:
            name = ".".join([self.bound[here.id], *reversed(chain)])
            if isinstance(node.ctx, ast.Load):
                self._use(node, name)
            else:
                self.made.add(name)
            return
        if node.attr in TENSOR_METHODS:
            self.methods.append((node.lineno, node.attr, bool(self.guards)))
        self.generic_visit(node)

    def visit_FunctionDef(self, node):
        outside, hidden = self.bound, _locals(node)
        self.bound = {name: value for name, value in outside.items() if name not in hidden}
        before = set(self.bound)
        self.generic_visit(node)
        self.bound = {**outside, **{name: value for name, value in self.bound.items() if name not in before}}

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_For(self, node):
        self.visit(node.iter)
        for part in ast.walk(node.target):  # `for data in loader` after `from torch.utils import data`
            if isinstance(part, ast.Name):
                self.bound.pop(part.id, None)
        for part in (node.target, *node.body, *node.orelse):
            self.visit(part)

    def visit_Try(self, node):
        caught = {
            getattr(kind, "id", getattr(kind, "attr", ""))
            for handler in node.handlers
            for kind in (handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type])
        }
        guard = bool(caught & {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", ""})
        self.guards += guard
        for part in node.body:
            self.visit(part)
        self.guards -= guard
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    def visit_If(self, node):
        guard = any(isinstance(part, ast.Call) and getattr(part.func, "id", "") == "hasattr" for part in ast.walk(node.test))
        self.visit(node.test)
        self.guards += guard
        for part in node.body:
            self.visit(part)
        self.guards -= guard
        for part in node.orelse:
            self.visit(part)

    def _use(self, node, name):
        self.used.append((node.lineno, name, bool(self.guards)))


def _sources(path):
    """The text of a Python file, or of the code cells of a notebook (magic lines left out)."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if not path.endswith(".ipynb"):
        return text
    cells = ["".join(cell["source"]) for cell in json.loads(text).get("cells", []) if cell.get("cell_type") == "code"]
    lines = "\n".join(cells).split("\n")
    return "\n".join("pass" if line.startswith(("!", "%")) else line for line in lines)


def _files(path):
    if os.path.isfile(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")) and name != "node_modules")
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith((".py", ".ipynb"))]
    return found


def _of_the_project(name, file, root):
    """Whether a program can import the module from its own folders."""
    folder = os.path.dirname(os.path.abspath(file))
    last = os.path.dirname(os.path.abspath(root))
    while True:
        if os.path.isfile(os.path.join(folder, name + ".py")) or os.path.isdir(os.path.join(folder, name)):
            return True
        if folder in (last, os.path.dirname(folder)):
            return False
        folder = os.path.dirname(folder)


def _uses_pytorch(name, owners):
    """Whether a module that is not the program's may use PyTorch: it asks for it, or is not installed and can't be asked."""
    if name in sys.stdlib_module_names:
        return False
    needed = [line for owner in owners.get(name, ()) for line in importlib.metadata.requires(owner) or ()]
    return any(re.match(r"torch(vision)?\b(?!.*extra ==)", line) for line in needed) if name in owners else True


def not_followed(path, files):
    """Imports of modules outside of `path` that may use PyTorch, whose names are not looked up: {what: place of the first}."""
    owners, found = importlib.metadata.packages_distributions(), {}
    for file, others, stars in files:
        for line, name in others:
            if name not in found and not _of_the_project(name, file, path) and _uses_pytorch(name, owners):
                found[name] = f"{file}:{line}"
        for line, text in stars:
            found.setdefault(text, f"{file}:{line}")
    return found


def check(path):
    """Read a file or a folder; returns (findings, names used, files read, files that could not be read, modules not followed)."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"wisp check: there is no {path!r} in {os.getcwd()}")
    import wisp

    known, findings, names, read, unread, imports = {}, [], set(), 0, [], []
    for file in _files(path):
        reader = _Reader()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader.visit(ast.parse(_sources(file), file))
        except (SyntaxError, ValueError, RecursionError) as error:
            unread.append(f"{file}: {error}")
            continue
        read += bool(reader.used)
        imports.append((file, reader.others, reader.stars))
        seen = set()
        for line, name, guarded in reader.used:
            if any(name == made or name.startswith(made + ".") for made in reader.made):
                continue
            names.add(name)
            if name not in known:
                known[name] = lookup(name)
            # a missing module is told once, not once for each of its names
            if known[name] is not None:
                if (line, name.rpartition(".")[0]) not in seen:
                    findings.append(Finding(file, line, name, known[name], guarded))
                seen.add((line, name))
        if reader.used:
            findings += [
                Finding(file, line, f"torch.Tensor.{method}", "", guarded)
                for line, method, guarded in reader.methods
                if not hasattr(wisp.Tensor, method)
            ]
    return findings, names, read, unread, not_followed(path, imports)


def main(arguments):
    """List the names of PyTorch that a project uses and Wisp lacks: wisp check path/."""
    from wisp.cli._options import Options

    parser = Options(prog="wisp check", description=main.__doc__)
    parser.add_argument("paths", nargs="+", metavar="path", help="Python files, notebooks, or folders of them")
    options = parser.parse_args(arguments)
    findings, names, read, unread, outside = [], set(), 0, [], {}
    for path in options.paths:
        try:
            some, used, files, failed, others = check(path)
        except FileNotFoundError as error:
            raise SystemExit(str(error)) from None
        findings, names, read = findings + some, names | used, read + files
        unread, outside = unread + failed, {**others, **outside}
    for text in unread:
        print(f"not read: {text}")
    for finding in findings:
        print(finding)
    for what, place in outside.items():
        print(f"not followed: {what}  ({place})")
    missing = {finding.name for finding in findings}
    certain = {finding.name for finding in findings if not finding.guarded}
    print(
        f"{read} {'file uses' if read == 1 else 'files use'} {len(names | missing)} names of PyTorch: "
        f"{len(missing)} missing"
        + (f" ({len(missing - certain)} of them guarded)" if missing - certain else "")
        + (f"; {len(unread)} could not be read" if unread else "")
        + (f"; {len(outside)} imports were not followed" if outside else "")
        + "."
    )
    raise SystemExit(1 if certain or unread else 0)
