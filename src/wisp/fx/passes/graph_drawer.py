"""Graphs as pictures, in the language of Graphviz."""

import zlib

import wisp
from wisp.fx._text import qualified_name
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import _format_arg
from wisp.fx.passes._dot import Dot
from wisp.fx.passes.shape_prop import TensorMetadata
from wisp.fx.passes.tools_common import get_acc_ops_name

__all__ = ["FxGraphDrawer"]

_COLORS = {"placeholder": "AliceBlue", "call_module": "LemonChiffon1", "get_attr": "LightGrey", "output": "PowderBlue"}
_FUNCTION_COLORS = (
    "CadetBlue1 Coral DarkOliveGreen1 DarkSeaGreen1 GhostWhite Khaki1 LavenderBlush1 LightSkyBlue MistyRose1 PaleTurquoise2 PeachPuff1 "
    "Thistle1 Wheat1"
).split()


def _escaped(text):
    """Text that stands in a field of a record."""
    return "".join("\\" + letter if letter in "{}|<>" else letter for letter in str(text))


class FxGraphDrawer:
    """Draws the graph of a `GraphModule`, and those of the ones that it calls: `get_dot_graph().write_svg("graph.svg")`.

    What is drawn is an object of `pydot` if that is installed, otherwise one of ours with `to_string` and `write_raw`, `write_svg`,
    `write_png`, `write_pdf`, which but for the first call Graphviz's program `dot`. `ignore_getattr` leaves reads of attributes
    out, `ignore_parameters_and_buffers` what layers hold; `skip_node_names_in_args=False` shows arguments that are steps;
    `parse_stack_trace` shows the line of the program; `normalize_args` shows arguments by their names.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x))
    >>> print(FxGraphDrawer(traced, "relu").get_dot_graph().to_string().splitlines()[-3])
    x -> relu;
    """

    def __init__(
        self,
        graph_module,
        name,
        ignore_getattr=False,
        ignore_parameters_and_buffers=False,
        skip_node_names_in_args=True,
        parse_stack_trace=False,
        dot_graph_shape=None,
        normalize_args=False,
    ):
        self._name, self.dot_graph_shape, self.normalize_args = name, dot_graph_shape or "record", normalize_args
        options = (ignore_getattr, ignore_parameters_and_buffers, skip_node_names_in_args, parse_stack_trace)
        self._dot_graphs = {name: self._to_dot(graph_module, name, *options)}
        for node in graph_module.graph.nodes:
            inner = graph_module.get_submodule(node.target) if node.op == "call_module" else None
            if isinstance(inner, GraphModule):
                self._dot_graphs[f"{name}_{node.target}"] = self._to_dot(inner, f"{name}_{node.target}", *options)

    def get_dot_graph(self, submod_name=None):
        """The picture of the module, or of one of its submodules."""
        return self.get_main_dot_graph() if submod_name is None else self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self):
        """The picture of the module."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name):
        """The picture of a submodule."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self):
        """All pictures by name."""
        return self._dot_graphs

    def _get_node_style(self, node):
        color = _COLORS.get(node.op) or _FUNCTION_COLORS[zlib.crc32(node._pretty_target().encode()) % len(_FUNCTION_COLORS)]
        return {"shape": self.dot_graph_shape, "fillcolor": color, "style": '"filled,rounded"', "fontcolor": "#000000"}

    def _arguments(self, node):
        if not self.normalize_args:
            return node.args, node.kwargs
        from wisp.fx.operator_schemas import normalize_function

        found = (
            normalize_function(node.target, node.args, node.kwargs, normalize_to_only_use_kwargs=True)
            if node.op == "call_function"
            else None
        )
        return found or (node.args, node.kwargs)

    def _get_node_label(self, module, node, skip_node_names_in_args, parse_stack_trace):
        fields = [f"name=%{node.name}", f"op_code={node.op}"]
        if node.op == "call_module":
            layer = module.get_submodule(node.target)
            fields.append(_escaped(get_acc_ops_name(type(layer))))
            fields.append(r"\n".join(_escaped(f"{name}: {getattr(layer, name, None)}") for name in getattr(layer, "__constants__", ())))
        else:
            fields.append("target=" + _escaped(node.target if isinstance(node.target, str) else qualified_name(node.target)))
            args, kwargs = self._arguments(node)
            for title, texts in (
                ("args", [_format_arg(a) for a in args]),
                ("kwargs", [f"{k}: {_format_arg(a)}" for k, a in kwargs.items()]),
            ):
                texts = [text for text in texts if not (skip_node_names_in_args and "%" in text)]
                if texts:
                    fields.append(f"{title}=" + _escaped(f"({', '.join(texts)})" if title == "args" else f"{{{', '.join(texts)}}}"))
            fields.append(f"num_users={len(node.users)}")
        fields += self._tensor_fields(node.meta.get("tensor_meta"))
        if parse_stack_trace and node.stack_trace:
            place = [line.strip() for line in node.stack_trace.splitlines() if line.strip().startswith("File ")]
            fields += [_escaped(place[-1])] if place else []
        return "{" + "|".join(fields) + "}"

    def _tensor_fields(self, known):
        if isinstance(known, TensorMetadata):
            shown = ("dtype", known.dtype), ("shape", tuple(known.shape)), ("requires_grad", known.requires_grad), ("stride", known.stride)
            return [f"{name}={value}" for name, value in shown]
        inner = known.values() if isinstance(known, dict) else known if isinstance(known, (list, tuple)) else ()
        return [field for one in inner for field in self._tensor_fields(one)]

    def _to_dot(self, graph_module, name, ignore_getattr, ignore_parameters_and_buffers, skip_node_names_in_args, parse_stack_trace):
        dot, nodes = Dot(name), [node for node in graph_module.graph.nodes if not (ignore_getattr and node.op == "get_attr")]
        for node in nodes:
            label = self._get_node_label(graph_module, node, skip_node_names_in_args, parse_stack_trace)
            dot.add(node.name, label=label, **self._get_node_style(node))
            layer = graph_module.get_submodule(node.target) if node.op == "call_module" else None
            if layer is None or ignore_parameters_and_buffers or isinstance(layer, GraphModule):
                continue
            for held, tensor in [*layer.named_parameters(), *layer.named_buffers()]:
                kind = "parameter" if isinstance(tensor, wisp.nn.Parameter) else "buffer"
                label = f"{{{node.name}.{held}|op_code=get_{kind}|{tensor.dtype}{list(tensor.shape)}}}"
                style = {"fillcolor": "Salmon", "style": '"filled,rounded"', "fontcolor": "#000000"}
                dot.add(f"{node.name}.{held}", label=label, shape=self.dot_graph_shape, **style)
                dot.connect(f"{node.name}.{held}", node.name)
        for node in nodes:
            for user in node.users:
                dot.connect(node.name, user.name)
        return dot.drawn()
