"""The picture of a graph: cards for operators, boxes for modules, drawn once as SVG; graph.js folds and zooms it."""

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


class Graph(Picture):
    """A drawn graph: `.svg()`, `.html()`, `.save("graph.html")`; shows itself in a notebook."""

    title, height = "graph", 640

    def __init__(self, items, edges, groups, depth=None):
        self.items, self.edges, self.groups = items, edges, groups
        self._root = Box("root")
        boxes = {}
        for group in groups:
            parent = boxes[group.parent] if group.parent is not None else self._root
            boxes[group] = box = Box(group.id, 7.4 * len(group.name + group.kind) + 70, 48, parent)
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
        lines.append((back, "back"))
        last = ([f"|g| {number_text(item.norm)}"] if item.norm is not None else []) + ([item.source] if item.source else [])
        if last:
            lines.append(("  ".join(last), "note"))
        return lines

    def _fold(self, depth):
        """Fold what lies deeper than `depth`; without one, open boxes from the outside while the picture stays readable."""
        if depth is not None:
            for box in self._boxes.values():
                level, around = 0, box.parent
                while around is not None and around is not self._root:
                    level, around = level + 1, around.parent
                box.folded = level >= depth
            return
        for box in self._boxes.values():
            box.folded = True
        shown = len(self._root.children)
        queue = [child for child in self._root.children if isinstance(child, Box)]
        while queue:
            box = queue.pop(0)
            if shown + len(box.children) > _VISIBLE and shown > 1:
                continue
            box.folded = False
            shown += len(box.children)
            queue += [child for child in box.children if isinstance(child, Box)]

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
        results = {shape_text(edge.shape) for edge in self.edges if edge.source in inside and edge.target not in inside}
        saved = sum(item.saved_bytes for item in inside)
        first = _plural(len(inside), "operator") + (f" · {_plural(group.count, 'parameter')}" if group.count else "")
        return [first, " ".join(sorted(results)) + (f" · saves {bytes_text(saved)}" if saved else "")]

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
        lines.append(f"backward: {item.backward}, saves {item.saved_bytes:,} bytes")
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
        first, second = self._summary(box)
        w = box.least
        hidden = "" if visible else " style='display:none'"
        return (
            f"<g class='folded' id='{group.id}-folded' data-width='{w:.1f}' role='button' "
            f"transform='translate({box.x - w / 2:.1f},{box.y:.1f})'{hidden}><title>click to open</title>"
            f"<rect class='shadow' x='4' y='4' width='{w:.1f}' height='{box.height}' rx='7'/>"
            f"<rect class='card' width='{w:.1f}' height='{box.height}' rx='7'/>"
            f"<text class='label' x='12' y='16'>▸ {escape(group.name)} <tspan class='class'>{escape(group.kind)}</tspan></text>"
            f"<text class='shape' x='12' y='30'>{escape(second)}</text><text class='note' x='12' y='43'>{escape(first)}</text></g>"
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
            .replace("{{svg}}", self.svg())
            .replace("{{data}}", embed(self._data()))
            .replace("{{facts}}", escape(facts))
            .replace("{{script}}", read("graph.js"))
        )
        return page(self.title, body)

    def __repr__(self):
        return f"Graph({len(self.items)} items, {len(self.edges)} edges, {len(self.groups)} modules)"


def graph(target, model=None, *, gradients=True, depth=None):
    """The graph behind a tensor: what was computed, what backward will do, what is saved for it.

    `target` is a tensor (or several) with a history. With `model` there are boxes for its modules; they are exact with a
    `viz.trace` of it and found from the parameters without one. `graph(model, x)` calls the model and shows the result.
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
    frame = sys._getframe(1)
    if isinstance(target, Module):
        inputs = model if isinstance(model, (tuple, list)) else (model,)
        inputs = [x.detach().requires_grad_() if isinstance(x, wisp.Tensor) and x.is_floating_point() else x for x in inputs]
        with wisp.enable_grad(), unchanged(target), trace(target) as calls:
            result = target(*inputs)
        names = {id(x): "input" for x in inputs}
        model, target = calls, _tensors(result)
    else:
        names = {}
    tensors = [t for t in _tensors(target) if t.requires_grad]
    if not tensors:
        raise ValueError(
            "viz.graph(): nothing here requires grad, so no graph was recorded; make an input with requires_grad=True "
            "and compute outside of no_grad()"
        )
    return Graph(*collect(tensors, model, gradients, frame, names), depth=depth)


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
