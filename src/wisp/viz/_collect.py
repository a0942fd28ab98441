"""Reads the recorded graph of tensors: operators, leaves, what they save, whose module they belong to."""

import contextlib
import linecache
import os
import re

import wisp
from wisp import _core
from wisp.nn import Module, Parameter

__all__ = ["Edge", "Group", "Item", "collect", "dense", "trace", "unchanged"]


class Item:
    """An operator or a leaf of the graph."""

    def __init__(self, number, kind, title):
        self.id, self.kind, self.title = f"n{number}", kind, title
        self.name = ""  # the user's variable that holds the result
        self.module = ""  # class of the module, if this is all that a call of it did
        self.backward = ""  # name of the backward node
        self.outputs = []  # (shape, dtype)
        self.saved_bytes = 0
        self.saved = []  # texts about what is saved
        self.source = self.line = ""
        self.norm = None  # of the gradient that arrives here
        self.parameters = []  # (name, shape, dtype, norm of its gradient, how many elements)
        self.group = None
        self.sequence = -1


class Edge:
    """The result `output` of one item goes into another."""

    def __init__(self, source, target, shape, dtype):
        self.source, self.target, self.shape, self.dtype = source, target, shape, dtype


class Group:
    """One call of a module: a box around the items it made."""

    def __init__(self, number, name, module, parent):
        self.id, self.name, self.parent = f"b{number}", name, parent
        self.kind = type(module).__name__ if parent is not None else ""
        self.count = sum(p.numel() for p in module.parameters())
        self.extra = module.extra_repr()


class trace:
    """Remembers which module made which part of the graph: give it to `graph` for exact boxes.

    >>> from wisp import nn, viz
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    >>> with viz.trace(model) as calls:
    ...     loss = model(wisp.ones(1, 4)).sum()
    >>> [call.name for call in calls.calls]
    ['Sequential', '0', '1']
    >>> picture = viz.graph(loss, calls)
    """

    class Call:
        """One call of a module, and the numbers of the nodes that were made in it: first <= number < last."""

        def __init__(self, name, module, parent):
            self.name, self.module, self.parent = name, module, parent
            self.first = self.last = _core._upcoming_sequence()

    def __init__(self, model):
        if not isinstance(model, Module):
            raise TypeError(f"viz.trace(): expected a Module, got {type(model).__name__}")
        self.model = model
        self.calls = []
        self._open = []
        self._handles = []

    def __enter__(self):
        for name, module in self.model.named_modules():
            label = name.rsplit(".", 1)[-1] or type(self.model).__name__

            def before(module, args, label=label):
                self._open.append(self.Call(label, module, self._open[-1] if self._open else None))
                self.calls.append(self._open[-1])

            def after(module, args, result):
                self._open.pop().last = _core._upcoming_sequence()

            self._handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after, always_call=True)]
        return self

    def __exit__(self, *_):
        for handle in self._handles:
            handle.remove()
        self._handles = []


@contextlib.contextmanager
def unchanged(model):
    """Calls of the model inside leave its buffers (running statistics) as they were."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with wisp.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _forward_name(backward):
    """MulBackward0 -> mul, NativeLayerNormBackward0 -> native_layer_norm."""
    name = re.sub(r"Backward\d*$", "", backward)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() or backward
    return "lstm" if name == "mkldnn_rnn_layer" else name


def _of_a_layer(item):
    """The layer of a recurrent network that an operator is, by the parameters that it uses: " layer 1 reversed"."""
    found = next((match for p in item.parameters if (match := re.search(r"weight_ih_l(\d+)(_reverse)?$", p[0]))), None)
    return f" layer {found[1]}{' reversed' if found[2] else ''}" if found else ""


def dense(tensor):
    """A gradient without history, as a dense tensor."""
    return tensor.detach() if tensor.layout == wisp.strided else tensor.detach().to_dense()


def _size(tensor):
    return tensor.numel() * tensor.element_size()


def _users_names(frame):
    """What the caller calls its tensors: by the tensor, and by the node and output that made it."""
    leaves, results = {}, {}
    if frame is not None:
        for scope in (frame.f_globals, frame.f_locals):
            for name, value in list(scope.items()):
                if isinstance(value, wisp.Tensor) and not name.startswith("_"):
                    if value.grad_fn is None:
                        leaves[id(value)] = name
                    else:
                        results[value.grad_fn] = name
    return leaves, results


def _walk(roots):
    """All nodes that the roots lead to."""
    found, stack = dict.fromkeys(roots), list(roots)
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None and node not in found:
                found[node] = None
                stack.append(node)
    return list(found)


def _gradient_norms(roots, tensors, nodes):
    """The norm of the gradient at every node, by a backward pass that changes no `.grad`; none where that cannot be."""
    norms = {}
    leaves = [node for node in nodes if hasattr(node, "variable")]
    if any(t.numel() != 1 or t.is_complex() for t in tensors) or not leaves:
        return norms

    def watch(node):
        def hook(gradients):
            with wisp.no_grad():
                parts = [dense(g).abs().double().square().sum().item() for g in gradients if g is not None]
            norms[node] = sum(parts) ** 0.5 if parts else None

        return node.register_prehook(hook)

    handles = [watch(node) for node in nodes]
    try:
        gradients = wisp.autograd.grad(tensors, [node.variable for node in leaves], retain_graph=True, allow_unused=True)
        for node, g in zip(leaves, gradients):
            if g is not None:
                norms[node] = dense(g).abs().double().norm().item()
    except RuntimeError:  # the graph was freed by a backward pass
        norms = {}
    finally:
        for handle in handles:
            handle.remove()
    return norms


_ALSO = {"Flatten": "view reshape unsafe_view", "AdaptiveAvgPool2d": "mean", "SiLU": "silu swish"}


def _made_by(module, item):
    """Whether an operator looks like the work of a module without parameters, by their names."""
    operator = re.sub(r"[\W_]|native", "", _forward_name(item.backward))
    kind = type(module).__name__
    return operator.startswith(kind.lower()) or operator in _ALSO.get(kind, "").split()


def _guess_groups(model, items, consumers):
    """Without a trace: an item belongs to the module whose parameters it uses. One between two such items, in the order of
    the program, belongs to a module without parameters that is defined between those two if it looks like its work, and
    else to the module that holds both."""
    owners = {}
    for name, module in model.named_modules():
        for p in module.parameters(recurse=False):
            owners.setdefault(id(p), name)
    paths = {}
    for item in items:
        used = [owners[id(p)] for p in consumers.get(item.id, ()) if id(p) in owners]
        if used:
            paths[item.id] = used[0].split(".") if used[0] else []
    known = [item for item in items if item.id in paths]
    if not known:
        return {}
    at = 0
    names = [name for name, _ in model.named_modules()]
    candidates, before = [], None
    for item in items:
        if item.id in paths or item.kind != "op":
            continue
        while at < len(known) and known[at].sequence < item.sequence:
            at += 1
        if at != before:  # modules defined between the two known ones, in order
            before = at
            first = names.index(".".join(paths[known[at - 1].id])) + 1 if at else 1
            last = names.index(".".join(paths[known[at].id])) if at < len(known) else len(names)
            candidates = [name for name in names[first:last] if not list(model.get_submodule(name).parameters())]
        found = next((name for name in candidates if _made_by(model.get_submodule(name), item)), None)
        if found is not None:
            candidates = candidates[candidates.index(found) + 1 :]
            paths[item.id] = found.split(".")
        elif 0 < at < len(known):
            a, b = paths[known[at - 1].id], paths[known[at].id]
            shared = 0
            while shared < min(len(a), len(b)) and a[shared] == b[shared]:
                shared += 1
            paths[item.id] = a[:shared]
    modules = dict(model.named_modules())
    root = (type(model).__name__, "")
    return {
        key: [(root[0], modules[""]), *((part, modules[".".join(path[: i + 1])]) for i, part in enumerate(path))]
        for key, path in paths.items()
    }


def _traced_groups(calls, items):
    """With a trace: the innermost call in which the node was made, and the calls around it."""
    chains = {}
    ordered = sorted(calls, key=lambda call: (call.first, -call.last))
    for item in items:
        innermost = None
        for call in ordered:
            if call.first > item.sequence:
                break
            if item.sequence < call.last:
                innermost = call
        chain = []
        while innermost is not None:
            chain.append((innermost.name, innermost.module, innermost))
            innermost = innermost.parent
        if chain:
            chains[item.id] = chain[::-1]
    return chains


def _saved(node):
    try:
        return [t for t in _core._node_saved_tensors(node) if t is not None]
    except (RuntimeError, AttributeError):
        return []  # freed, or changed since


def collect(tensors, model=None, gradients=True, frame=None, names=(), shown=(), indices=()):
    """-> items, edges and groups of the graph of some tensors. `names` are those of leaves, by id; those in `shown` are inputs of which
    nobody wants the gradient. Inputs that have none, `indices`, are found where operators saved them."""
    calls = model if isinstance(model, trace) else None
    model = calls.model if calls else model
    roots = [wisp.autograd.graph._gradient_node(t) for t in tensors]
    nodes = _walk(roots)
    norms = _gradient_norms(roots, tensors, nodes) if gradients else {}
    leaf_names, result_names = _users_names(frame)
    leaf_names.update(names)
    parameter_names = {id(p): name for name, p in model.named_parameters(remove_duplicate=False)} if model is not None else {}

    def norm_of(node):
        if node in norms:
            return norms[node]
        if hasattr(node, "variable") and node.variable.grad is not None:
            return dense(node.variable.grad).abs().double().norm().item()
        return None

    items, by_node, inside, users = [], {}, {}, {}
    nodes = sorted(nodes, key=lambda n: n._sequence_nr())
    saved = {node: _saved(node) for node in nodes}
    for index in indices:
        places = index.untyped_storage().data_ptr()
        using = [node for node in nodes if any(t.dtype == index.dtype and t.untyped_storage().data_ptr() == places for t in saved[node])]
        if using:
            item = Item(len(items), "leaf", leaf_names[id(index)])
            item.outputs, item.module = [(tuple(index.shape), index.dtype)], "input"
            items.append(item)
            users[item] = using
    for node in nodes:
        leaf = getattr(node, "variable", None)
        if leaf is not None and isinstance(leaf, Parameter) and node not in roots:
            inside[node] = leaf  # shown within the operators that use it
            continue
        item = by_node[node] = Item(len(items), "leaf" if leaf is not None else "op", "")
        items.append(item)
        item.backward = type(node).__name__
        item.norm = norm_of(node)
        if leaf is not None:
            item.title = parameter_names.get(id(leaf)) or leaf_names.get(id(leaf)) or "leaf"
            item.outputs = [(tuple(leaf.shape), leaf.dtype)]
            if id(leaf) in shown:
                item.backward, item.norm, item.module = "", None, "input"
            continue
        item.sequence = node._sequence_nr()
        item.title = _forward_name(node.name())
        item.name = result_names.get(node, "")
        item.outputs = [(tuple(shape), dtype) for shape, dtype in node._outputs]
        item.saved_bytes = node._bytes_saved
        item.saved = [f"{list(t.shape)} {str(t.dtype)[6:]}, {_size(t):,} bytes" for t in saved[node]]
        source, _, number = node._source.rpartition(":")
        if source:
            item.source = f"{os.path.basename(source)}:{number}"
            item.line = linecache.getline(source, int(number)).strip()

    edges, consumers = [], {}
    for node, item in by_node.items():
        for following, number in node.next_functions:
            if following in inside:
                p = inside[following]
                full = parameter_names.get(id(p)) or leaf_names.get(id(p)) or "parameter"
                item.parameters.append((full, tuple(p.shape), p.dtype, norm_of(following), p.numel()))
                consumers.setdefault(item.id, []).append(p)
            elif following is not None:
                source = by_node[following]
                shape, dtype = source.outputs[number] if number < len(source.outputs) else ((), None)
                edges.append(Edge(source, item, shape, dtype))
    edges += [Edge(item, by_node[node], *item.outputs[0]) for item, using in users.items() for node in using]
    for item in items:
        item.title += _of_a_layer(item)
    groups = {}
    if model is not None:
        _make_groups(_traced_groups(calls.calls, items) if calls else _guess_groups(model, items, consumers), items, groups)
    return items, edges, _merge_single(items, list(groups.values()))


def _merge_single(items, groups):
    """A call that made one item needs no box: the item takes its name."""
    members = {group: [] for group in groups}
    for item in items:
        if item.group is not None:
            members[item.group].append(item)
    boxes = {group.parent for group in groups}
    for group in groups:
        if len(members[group]) == 1 and group not in boxes and group.parent is not None:
            (item,) = members[group]
            item.group, item.title, item.module = group.parent, group.name, group.kind
    return [group for group in groups if len(members[group]) != 1 or group in boxes or group.parent is None]


def _make_groups(chains, items, groups):
    """Boxes: one per call in a trace; else one per module and unbroken run of items."""
    before, number = [], 0
    open_groups = []
    for item in items:
        chain = chains.get(item.id)
        if chain is None:
            continue
        keys = [entry[2] if len(entry) > 2 else entry[0] for entry in chain]
        shared = 0
        while shared < min(len(keys), len(before)) and keys[shared] == before[shared]:
            shared += 1
        open_groups = open_groups[:shared]
        for depth in range(shared, len(chain)):
            key = (keys[depth] if len(chain[depth]) > 2 else number, depth)
            if key not in groups:
                groups[key] = Group(len(groups), chain[depth][0], chain[depth][1], open_groups[-1] if open_groups else None)
            open_groups.append(groups[key])
            number += 1
        item.group = open_groups[-1] if open_groups else None
        before = keys
