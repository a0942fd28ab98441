"""Notes that steps of a graph keep while they are made: where they come from, and what a program says of them."""

import contextlib
import enum
import functools
import traceback

__all__ = [
    "NodeSource",
    "NodeSourceAction",
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
    "get_graph_provenance_json",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_current_replay_node",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]

current_meta, should_preserve_node_meta = {}, False
_replayed = None


class NodeSourceAction(enum.Enum):
    """What a pass did to make a step."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """Where a step comes from: the name, target and graph of another one, the pass and what it did; `from_node` are its own sources.

    >>> import wisp.fx
    >>> NodeSource(wisp.fx.Graph().placeholder("x"), "rename", NodeSourceAction.REPLACE).name
    'x'
    """

    def __init__(self, node, pass_name="", action=None):
        self.pass_name = pass_name
        self.action = [] if action is None else list(action) if isinstance(action, list) else [action]
        if not all(isinstance(one, NodeSourceAction) for one in self.action):
            raise AssertionError(f"NodeSource: expected actions, got {self.action}")
        self.name, self.target, self.graph_id, self.from_node = "", "", -1, []
        if node is not None:
            self.name, self.target, self.graph_id = node.name, str(node.target), id(node.graph)
            self.from_node = list(node.meta.get("from_node", ()))

    def _actions(self):
        return "+".join(one.name.lower() for one in self.action)

    def to_dict(self):
        """All of it as a dictionary."""
        sources = [source.to_dict() for source in self.from_node]
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._actions(),
            "from_node": sources,
        }

    @classmethod
    def _from_dict(cls, d):
        made = cls(None, d["pass_name"], [NodeSourceAction[name.upper()] for name in d["action"].split("+") if name])
        made.name, made.target, made.graph_id = d["name"], d["target"], d["graph_id"]
        made.from_node = [cls._from_dict(source) for source in d["from_node"]]
        return made

    def print_readable(self, indent=0):
        """The sources as lines of text, each under what comes from it."""
        line = f"(name={self.name}, pass_name={self.pass_name}, action={self._actions()}, graph_id={self.graph_id})"
        return " " * indent + line + "\n" + "".join(source.print_readable(indent + 4) for source in self.from_node)

    __repr__ = __str__ = print_readable

    def __eq__(self, other):
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self):
        return hash((self.name, self.target, self.graph_id, self.pass_name, self._actions(), tuple(self.from_node)))


@contextlib.contextmanager
def preserve_node_meta(enable=True):
    """Inside, steps that are made keep the notes of `get_current_meta()`."""
    global should_preserve_node_meta, current_meta
    before = should_preserve_node_meta, current_meta
    should_preserve_node_meta, current_meta = enable, dict(current_meta)
    try:
        yield
    finally:
        should_preserve_node_meta, current_meta = before


def has_preserved_node_meta():
    """Whether steps that are made keep notes."""
    return should_preserve_node_meta


def get_current_meta():
    """The notes that steps keep now."""
    return current_meta


@contextlib.contextmanager
def annotate(annotation_dict):
    """Inside, steps that are made keep these notes in `meta["custom"]`; inner notes are added to outer ones.

    >>> import wisp.fx
    >>> def f(x):
    ...     with annotate({"stage": 0}):
    ...         return wisp.relu(x)
    >>> wisp.fx.symbolic_trace(f).graph.nodes[1].meta["custom"]
    {'stage': 0}
    """
    with preserve_node_meta():
        current_meta["custom"] = {**current_meta.get("custom", {}), **annotation_dict}
        yield


def annotate_fn(annotation_dict):
    """A decorator: the steps of a function keep these notes.

    >>> annotate_fn({"stage": 0})(abs)(-1)
    1
    """

    def decorate(function):
        @functools.wraps(function)
        def annotated(*args, **kwargs):
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorate


@contextlib.contextmanager
def set_current_meta(node, pass_name=""):
    """Inside, steps that are made keep the notes of a node, if steps keep notes."""
    global current_meta
    before = current_meta
    if should_preserve_node_meta and node.meta:
        current_meta = {**before, **node.meta, "from_node": [NodeSource(node, pass_name, NodeSourceAction.CREATE)]}
    try:
        yield
    finally:
        current_meta = before


def set_stack_trace(stack):
    """Let steps keep these lines as where they were made."""
    if should_preserve_node_meta and stack:
        current_meta["stack_trace"] = "".join(stack)


def set_grad_fn_seq_nr(seq_nr):
    """Let steps keep the number of a node of autograd."""
    if should_preserve_node_meta:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", ()), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr():
    """Forget the number that was set last."""
    if should_preserve_node_meta and current_meta.get("in_grad_fn"):
        current_meta["in_grad_fn"] -= 1
        current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]


def format_stack():
    """Where the program is, or where the step whose notes are kept was made, as lines."""
    return [current_meta["stack_trace"]] if "stack_trace" in current_meta else traceback.format_list(traceback.extract_stack()[:-1])


@contextlib.contextmanager
def set_current_replay_node(node):
    """Inside, `get_current_replay_node()` is this step."""
    global _replayed
    before, _replayed = _replayed, node
    try:
        yield
    finally:
        _replayed = before


def get_current_replay_node():
    """The step that is run again now, or None."""
    return _replayed


def get_graph_provenance_json(graph):
    """The sources of all steps by name.

    >>> import wisp.fx
    >>> get_graph_provenance_json(wisp.fx.symbolic_trace(wisp.relu).graph)
    {'relu': []}
    """
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    return {node.name: [source.to_dict() for source in node.meta.get("from_node", ())] for node in calls}
