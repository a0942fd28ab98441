"""The picture of a graph: cards for operators, boxes for modules, drawn once as SVG; graph.js folds and zooms it."""

import inspect
import sys

import wisp
from wisp.nn import Module
from wisp.viz._collect import _forward_name, collect, trace, unchanged
from wisp.viz._layout import HEADER, Box, Leaf, Route, layout
from wisp.viz._page import Picture, bytes_text, embed, escape, number_text, page, read, shape_text

__all__ = ["Graph", "graph"]

_VISIBLE = 60  # about as many cards as are shown at first
_KINDS = {  # of operators, by parts of their names
    "loss": "loss cross_entropy nll".split(),
    "norm": ["norm"],
    "product": "addmm mm bmm matmul linear conv attention embedding lstm gru rnn".split(),
    "activation": "relu elu gelu silu sigmoid tanh softmax softplus swish mish dropout glu".split(),
    "shape": """
        view reshape permute transpose expand slice select cat stack squeeze split unbind alias clone _to_copy index t chunk flatten
        as_strided""".split(),
    "reduce": "sum mean max min pool var std prod amax amin".split(),
}


def _kind(item):
    """The colour of an operator's card."""
    if item.kind == "leaf":
        return "leaf"
    name = _forward_name(item.backward)
    for kind, parts in _KINDS.items():
        if any(name == part or (len(part) > 2 and part in name) for part in parts):
            return kind
    return "other"


def _plural(count, noun):
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _type_text(dtype):
    return str(dtype)[6:]


def _path(points):
    """A line through points, straight within ranks and curved between them; graph.js draws the same."""
    (x, y), parts = points[0], []
    parts.append(f"M{x:.1f},{y:.1f}")
    for a, b in points[1:]:
        parts.append(f"L{a:.1f},{b:.1f}" if abs(a - x) < 0.5 else f"C{x:.1f},{(y + b) / 2:.1f} {a:.1f},{(y + b) / 2:.1f} {a:.1f},{b:.1f}")
        x, y = a, b
    return "".join(parts)


def _mixture(items):
    """What operators there are, the most frequent first: "Conv2d ×3 · BatchNorm2d ×3 · relu"."""
    counts = {}
    for item in [item for item in items if _kind(item) != "shape"] or items:
        name = item.module or _forward_name(item.backward)
        counts[name] = counts.get(name, 0) + 1
    most = sorted(counts.items(), key=lambda pair: -pair[1])
    return " · ".join(name + (f" ×{count}" if count > 1 else "") for name, count in most[:4]) + (" · …" if len(most) > 4 else "")


class Graph(Picture):
    """A drawn graph: `.svg()`, `.html()`, `.save("graph.html")`; shows itself in a notebook."""

    title, height = "graph", 640

    def __init__(self, items, edges, groups, depth=None):
        self.items, self.edges, self.groups = items, edges, groups
        self._root = Box("root")
        boxes = {}
        for group in groups:
            parent = boxes[group.parent] if group.parent is not None else self._root
            boxes[group] = box = Box(group.id, 7.4 * len(group.name + group.kind) + 70, 63, parent)
            parent.children.append(box)
        self._leaves = {}
        self._texts = {item: self._lines(item) for item in items}
        for item in items:
            parent = boxes[item.group] if item.group is not None else self._root
            lines = self._texts[item]
            title = 7.6 * len(item.title) + 6.8 * len(item.module) + 8 * len(item.name) + 40
            width = max(title, *(6.3 * len(text) + 24 for text, _ in lines))
            self._leaves[item] = leaf = Leaf(item.id, max(110, width), 27 + 15 * len(lines), parent)
            parent.children.append(leaf)
        self._boxes = boxes
        self._routes = [Route(self._leaves[edge.source], self._leaves[edge.target]) for edge in edges]
        self._fold(depth)
        for box in boxes.values():
            box.width = box.least = max(box.least, 6.3 * max(map(len, self._summary(box))) + 30)
        layout(self._root, self._routes)

    def _lines(self, item):
        """The lines of a card below its title, with their classes."""
        lines = []
        for shape, dtype in item.outputs[:3]:
            lines.append((f"{shape_text(shape)} {_type_text(dtype)}", "shape"))
        for name, shape, _, norm, _ in item.parameters[:6]:
            text = f"{name.rsplit('.', 1)[-1]} {shape_text(shape)}"
            lines.append((text + (f"  |g| {number_text(norm)}" if norm is not None else ""), "parameter"))
        back = item.backward
        if item.saved_bytes:
            back += f" · saves {bytes_text(item.saved_bytes)}"
        if back:
            lines.append((back, "back"))
        last = ([f"|g| {number_text(item.norm)}"] if item.norm is not None else []) + ([item.source] if item.source else [])
        if last:
            lines.append(("  ".join(last), "note"))
        return lines

    def _fold(self, depth):
        """Fold what lies deeper than `depth`; without one, at the depth at which the picture as a whole can still be read."""
        levels = {}
        for box in self._boxes.values():  # outer ones come first
            levels[box] = levels.get(box.parent, -1) + 1
        if depth is None:
            depth = max(levels.values(), default=0) + 1
            while depth > 1 and self._visible(levels, depth) > _VISIBLE:
                depth -= 1
        for box, level in levels.items():
            box.folded = level >= depth

    def _visible(self, levels, depth):
        """How many cards there are when modules are open to a depth."""
        things = [*self._leaves.values(), *(box for box, level in levels.items() if level >= depth)]
        return sum(levels.get(thing.parent, -1) < depth for thing in things)

    def _members(self, box):
        for item, leaf in self._leaves.items():
            around = leaf.parent
            while around is not None and around is not box:
                around = around.parent
            if around is box:
                yield item

    def _summary(self, box):
        group = next(group for group, b in self._boxes.items() if b is box)
        inside = list(self._members(box))
        within = set(inside)
        sources = dict.fromkeys(shape_text(edge.shape) for edge in self.edges if edge.target in within and edge.source not in within)
        results = dict.fromkeys(shape_text(edge.shape) for edge in self.edges if edge.source in within and edge.target not in within)
        if not results:  # the end of the graph
            results = dict.fromkeys(shape_text(shape) for item in inside[-1:] for shape, _ in item.outputs)
        saved = sum(item.saved_bytes for item in inside)
        first = _plural(len(inside), "operator") + (f" · {_plural(group.count, 'parameter')}" if group.count else "")
        ways = " → ".join(" ".join(shapes) for shapes in (sources, results) if shapes)
        return [first, ways + (f" · saves {bytes_text(saved)}" if saved else ""), _mixture(inside)]

    # --- drawing
    def _hidden(self, leaf):
        """Whether something lies in a folded box."""
        around = leaf.parent
        while around is not None:
            if around.folded:
                return True
            around = around.parent
        return False

    def _shown(self, leaf):
        """What stands for a leaf: itself, or the outermost folded box around it."""
        found, around = leaf, leaf.parent
        while around is not None:
            if around.folded:
                found = around
            around = around.parent
        return found

    def _points(self, route):
        source, target = self._shown(route.source), self._shown(route.target)
        if source is target:
            return None
        tall = source.height if not isinstance(source, Box) or source.folded else source.tall
        points = [(source.x + (route.out_shift if source is route.source else 0), source.y + tall)]
        for bend in route.bends:
            if not (bend.box.folded or self._hidden(bend.box)):
                top, bottom = bend.box.tops[bend.rank]
                points += [(bend.x, top), (bend.x, bottom)]
        points.append((target.x + (route.in_shift if target is route.target else 0), target.y))
        return points

    def _card(self, item):
        leaf, kind = self._leaves[item], _kind(item)
        w, h = leaf.width, leaf.height
        hidden = " style='display:none'" if self._hidden(leaf) else ""
        parts = [
            f"<g class='item {kind}' id='{item.id}' transform='translate({leaf.x - w / 2:.1f},{leaf.y:.1f})'{hidden}>"
            f"<title>{escape(self._tooltip(item))}</title>"
            f"<rect class='card' width='{w:.1f}' height='{h}' rx='7'/><rect class='stripe' width='5' height='{h}' rx='2.5'/>"
            f"<text class='name' x='14' y='18'>{escape(item.title)}"
            + (f" <tspan class='class'>{escape(item.module)}</tspan>" if item.module else "")
            + "</text>"
        ]
        if item.name:
            parts.append(f"<text class='variable' x='{w - 10:.1f}' y='18'>{escape(item.name)}</text>")
        for i, (text, style) in enumerate(self._texts[item]):
            parts.append(f"<text class='{style}' x='14' y='{34 + 15 * i}'>{escape(text)}</text>")
        return "".join(parts) + "</g>"

    def _tooltip(self, item):
        lines = [" ".join(filter(None, (item.title, item.module))) + (f" → {item.name}" if item.name else "")]
        if item.source:
            lines.append(f"{item.source}  {item.line}")
        lines += [f"result {i}: {shape_text(shape)} {_type_text(dtype)}" for i, (shape, dtype) in enumerate(item.outputs)]
        for name, shape, dtype, norm, _ in item.parameters:
            note = f", gradient norm {number_text(norm)}" if norm is not None else ""
            lines.append(f"parameter {name} {shape_text(shape)} {_type_text(dtype)}{note}")
        lines.append(f"backward: {item.backward}, saves {item.saved_bytes:,} bytes" if item.backward else "needs no gradient")
        lines += [f"    {text}" for text in item.saved]
        if item.norm is not None:
            lines.append(f"norm of the gradient of its result: {item.norm:.6g}")
        return "\n".join(lines)

    def _frame(self, group):
        """The open box of a module."""
        box = self._boxes[group]
        hidden = " style='display:none'" if box.folded or self._hidden(box) else ""
        depth, around = 0, box.parent
        while around is not None:
            depth, around = depth + 1, around.parent
        return (
            f"<g class='box depth{depth % 3}' id='{group.id}' data-label='{escape(group.name)}' "
            f"transform='translate({box.x - box.width / 2:.1f},{box.y:.1f})'{hidden}>"
            f"<rect class='frame' width='{box.width:.1f}' height='{box.tall or HEADER:.1f}' rx='9'/>"
            f"<g class='fold' role='button'><title>{escape(group.kind)}({escape(group.extra)}): click to fold</title>"
            f"<rect class='handle' width='{box.width:.1f}' height='22' rx='9'/>"
            f"<text class='label' x='11' y='16'>▾ {escape(group.name)} <tspan class='class'>{escape(group.kind)}</tspan></text>"
            "</g></g>"
        )

    def _folded_card(self, group):
        box = self._boxes[group]
        visible = box.folded and not self._hidden(box)
        first, second, third = self._summary(box)
        w = box.least
        hidden = "" if visible else " style='display:none'"
        return (
            f"<g class='folded' id='{group.id}-folded' data-width='{w:.1f}' role='button' "
            f"transform='translate({box.x - w / 2:.1f},{box.y:.1f})'{hidden}><title>click to open</title>"
            f"<rect class='shadow' x='4' y='4' width='{w:.1f}' height='{box.height}' rx='7'/>"
            f"<rect class='card' width='{w:.1f}' height='{box.height}' rx='7'/>"
            f"<text class='label' x='12' y='16'>▸ {escape(group.name)} <tspan class='class'>{escape(group.kind)}</tspan></text>"
            f"<text class='shape' x='12' y='30'>{escape(second)}</text><text class='note' x='12' y='43'>{escape(first)}</text>"
            f"<text class='note inside' x='12' y='56'>{escape(third)}</text></g>"
        )

    def _edge(self, number, edge, route):
        points = self._points(route)
        hidden = " style='display:none'" if points is None else ""
        text = f"{edge.source.title} → {edge.target.title}: {shape_text(edge.shape)}" + (f" {_type_text(edge.dtype)}" if edge.dtype else "")
        return f"<path class='edge' id='e{number}' d='{_path(points) if points else ''}'{hidden}><title>{escape(text)}</title></path>"

    def svg(self):
        """The picture as the text of an SVG, boxes folded as at first."""
        width, height = self._root.width + 40, self._root.tall + 20
        arrow = "<path d='M0,0L8,4L0,8z' fill='{}'/>"
        return "".join(
            [
                f"<svg xmlns='http://www.w3.org/2000/svg' class='wisp-graph' width='{width:.0f}' height='{height:.0f}' "
                f"viewBox='-20 -10 {width:.0f} {height:.0f}'><style>{read('graph.css')}</style><defs>",
                *(
                    f"<marker id='{name}' viewBox='0 0 8 8' refX='{x}' refY='4' markerWidth='6' markerHeight='6' orient='{turn}'>"
                    f"{arrow.format(colour)}</marker>"
                    for name, x, turn, colour in (("down", 7, "auto", "#71717a"), ("up", 7, "auto-start-reverse", "#be123c"))
                ),
                f"</defs><rect class='ground' x='-20' y='-10' width='{width:.0f}' height='{height:.0f}'/><g id='world'>",
                *map(self._frame, self.groups),
                *(self._edge(i, edge, route) for i, (edge, route) in enumerate(zip(self.edges, self._routes))),
                *map(self._card, self.items),
                *map(self._folded_card, self.groups),
                "</g></svg>",
            ]
        )

    def _data(self):
        """What graph.js needs to place things again."""

        def rank(leaves):
            return [leaf.id for leaf in leaves if isinstance(leaf, Leaf)]

        boxes = {
            box.id: {
                "x": box.x,
                "w": box.width,
                "h": box.height,
                "least": box.least,
                "folded": box.folded,
                "parent": box.parent.id if box.parent else None,
                "ranks": [rank(leaves) for leaves in box.ranks],
            }
            for box in [self._root, *self._boxes.values()]
        }
        leaves = {leaf.id: {"x": leaf.x, "w": leaf.width, "h": leaf.height, "parent": leaf.parent.id} for leaf in self._leaves.values()}
        routes = [
            {
                "from": route.source.id,
                "to": route.target.id,
                "out": route.out_shift,
                "in": route.in_shift,
                "bends": [[bend.box.id, bend.rank, bend.x] for bend in route.bends],
            }
            for route in self._routes
        ]
        return {"boxes": boxes, "leaves": leaves, "routes": routes}

    def html(self):
        """The picture as a page on which one can fold (click a module's title), zoom (wheel) and pan (drag)."""
        saved = sum(item.saved_bytes for item in self.items)
        facts = f"{_plural(sum(item.kind == 'op' for item in self.items), 'operator')} · {bytes_text(saved)} saved for backward"
        body = (
            read("graph.html")
            .replace("{{bar}}", read("bar.css"))
            .replace("{{svg}}", self.svg())
            .replace("{{data}}", embed(self._data()))
            .replace("{{facts}}", escape(facts))
            .replace("{{script}}", read("graph.js"))
        )
        return page(self.title, body)

    def __repr__(self):
        return f"Graph({len(self.items)} items, {len(self.edges)} edges, {len(self.groups)} modules)"


def graph(target, *inputs, model=None, gradients=True, depth=None):
    """The graph behind a tensor: what was computed, what backward will do, what is saved for it.

    `target` is a tensor (or several) with a history. `graph(loss, model)` adds boxes for the modules; they are exact with a `viz.trace` of
    the model and found from the parameters without one. `graph(model, x, y)` calls the model with these inputs and shows the result.
    For a scalar, a backward pass that changes nothing finds the norms of all gradients (`gradients=False` leaves it out).
    `depth` is how deep modules are open at first.

    >>> x = wisp.ones(2, 3, requires_grad=True)
    >>> y = (x * 2).sum()
    >>> picture = graph(y)
    >>> picture
    Graph(3 items, 2 edges, 0 modules)
    >>> [item.title for item in picture.items]
    ['mul', 'sum', 'x']
    >>> "[2, 3] float32" in picture.svg()
    True
    """
    frame, names, shown, indices = sys._getframe(1), {}, set(), ()
    if isinstance(target, Module):
        inputs = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (tuple, list)) else inputs
        # An input without gradient is made a leaf, to be seen; its card says no more than that.
        copies = [x.detach().requires_grad_() if isinstance(x, wisp.Tensor) and x.is_floating_point() else x for x in inputs]
        shown = {id(new) for old, new in zip(inputs, copies) if isinstance(old, wisp.Tensor) and not old.requires_grad}
        with wisp.enable_grad(), unchanged(target), trace(target) as calls:
            result = target(*copies)
        names = dict(zip(map(id, copies), _argument_names(target, len(copies))))
        indices = [x for x in copies if type(x) is wisp.Tensor and not x.requires_grad]
        model, target = calls, _tensors(result)
    elif inputs:
        (model,) = inputs
    tensors = [t for t in _tensors(target) if t.requires_grad]
    if not tensors:
        raise ValueError(
            "viz.graph(): nothing here requires grad, so no graph was recorded; make an input with requires_grad=True "
            "and compute outside of no_grad()"
        )
    return Graph(*collect(tensors, model, gradients, frame, names, shown, indices), depth=depth)


def _argument_names(model, count):
    """What `forward` calls its arguments."""
    try:
        names = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    return names[:count] + [f"input {i}" for i in range(len(names), count)]


def _tensors(value):
    """The tensors in a tensor, list, tuple or dict."""
    if isinstance(value, wisp.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        if value is None or isinstance(value, (str, int, float)):
            return []
        raise TypeError(f"viz.graph(): expected a tensor, several tensors or a Module, got {type(value).__name__}")
    return [t for part in value for t in _tensors(part)]
