"""The language of Graphviz: nodes with attributes, and edges between them."""

import re
import shutil
import subprocess


def _quoted(text):
    text = str(text)
    if re.fullmatch(r'[A-Za-z_]\w*|".*"', text, re.S):
        return text
    return '"' + text.replace('"', '\\"') + '"'


class DotNode:
    """A node: its attributes are in `obj_dict`, where pydot's are too."""

    def __init__(self, name, attributes):
        self.name, self.obj_dict = name, {"attributes": attributes}

    def get_name(self):
        """The name."""
        return self.name


class Dot:
    """A directed graph as text: `to_string()`, `write_raw(path)`, and `write_svg(path)` and the like through the program `dot`.

    >>> dot = Dot("two")
    >>> dot.add("a", color="red")
    >>> dot.connect("a", "b.c")
    >>> print(dot.to_string())
    digraph two {
    rankdir=TB;
    a [color=red];
    a -> "b.c";
    }
    """

    def __init__(self, name):
        self.name, self.nodes, self.edges = name, [], []

    def add(self, name, **attributes):
        """Add a node."""
        self.nodes.append(DotNode(name, attributes))

    def connect(self, source, target):
        """Add an edge."""
        self.edges.append((source, target))

    def get_node_list(self):
        """The nodes."""
        return list(self.nodes)

    def drawn(self):
        """The graph as pydot's, or this one where pydot is not installed."""
        try:
            import pydot
        except ImportError:
            return self
        made = pydot.Dot(self.name, rankdir="TB")
        for node in self.nodes:
            made.add_node(pydot.Node(node.name, **node.obj_dict["attributes"]))
        for source, target in self.edges:
            made.add_edge(pydot.Edge(source, target))
        return made

    def to_string(self):
        """The text."""
        lines = [f"digraph {_quoted(self.name)} {{", "rankdir=TB;"]
        for node in self.nodes:
            attributes = ", ".join(f"{name}={_quoted(value)}" for name, value in node.obj_dict["attributes"].items())
            lines.append(f"{_quoted(node.name)} [{attributes}];")
        lines += [f"{_quoted(source)} -> {_quoted(target)};" for source, target in self.edges]
        return "\n".join([*lines, "}"])

    __str__ = to_string

    def create(self, format="ps", prog="dot"):
        """The picture as bytes, which Graphviz draws."""
        program = shutil.which(prog)
        if program is None:
            raise RuntimeError(f"to draw a graph as {format}, install Graphviz (its program {prog!r}); write_raw writes the text")
        return subprocess.run([program, f"-T{format}"], input=self.to_string().encode(), stdout=subprocess.PIPE, check=True).stdout

    def write(self, path, format="raw", prog="dot"):
        """Write the text, or a picture in a format of Graphviz's."""
        data = self.to_string().encode() if format in ("raw", "dot") else self.create(format, prog)
        with open(path, "wb") as file:
            file.write(data)
        return True

    def __getattr__(self, name):
        if name.startswith("write_"):
            return lambda path, prog="dot": self.write(path, name.removeprefix("write_"), prog)
        raise AttributeError(name)
