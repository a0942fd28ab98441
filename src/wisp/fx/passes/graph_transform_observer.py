"""Watches a pass: which steps it makes, erases and replaces."""

import os

from wisp.fx.passes.graph_drawer import FxGraphDrawer
from wisp.fx.traceback import NodeSource, NodeSourceAction

__all__ = ["GraphTransformObserver"]


class GraphTransformObserver:
    """Inside of `with GraphTransformObserver(gm, "name") as seen`, `seen.created_nodes` and `seen.erased_nodes` are the names of steps that
    are made and erased, and steps note in `meta["from_node"]` what they replace. With a folder `log_url`, pictures of the graph before
    and after are written there, with those steps in yellow.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.neg(x))
    >>> with GraphTransformObserver(traced, "to_relu") as seen:
    ...     _ = wisp.fx.replace_pattern(traced, lambda x: wisp.neg(x), lambda x: wisp.relu(x))
    >>> seen.created_nodes, seen.erased_nodes
    ({'relu'}, {'neg'})
    """

    _passes = 0

    def __init__(self, gm, passname, subsystem=None, log_url=None):
        self.gm, self.passname, self.subsystem, self.log_url, self.active = gm, passname, subsystem, log_url, True
        self.created_nodes, self.erased_nodes, self.name_to_node, self.copied_gms = set(), set(), {}, []
        self._hooks = (self._created, self._erased, self._replaced, self._copied)  # one object each, by which it is found again
        if log_url is not None:
            GraphTransformObserver._passes += 1
            self.input_dot_graph = self._drawn()

    @classmethod
    def get_current_pass_count(cls):
        """The number of passes that were drawn."""
        return cls._passes

    def apply_gm_pass(self, pass_fn):
        """Watch a function of the module."""
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn):
        """Watch a function of the graph."""
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self):
        for names in (self.created_nodes, self.erased_nodes, self.name_to_node, self.copied_gms):
            names.clear()
        self.name_to_node.update((node.name, node) for node in self.gm.graph.nodes)
        for hooks, hook in zip(self.gm._all_hooks(), self._hooks):
            hooks.append(hook)
        return self

    def __exit__(self, *details):
        for gm in (*self.copied_gms, self.gm):
            for hooks, hook in zip(gm._all_hooks(), self._hooks):
                hooks.remove(hook)
        if self.log_url is not None and (self.created_nodes or self.erased_nodes):
            self._write(self.input_dot_graph, self.erased_nodes, "input")
            self._write(self._drawn(), self.created_nodes, "output")

    def _drawn(self):
        return FxGraphDrawer(self.gm, self.passname, ignore_getattr=True, ignore_parameters_and_buffers=True).get_dot_graph()

    def _write(self, dot, names, which):
        for node in dot.get_node_list():
            node.obj_dict["attributes"]["fillcolor"] = "yellow" if node.get_name() in names else "grey"
        dot.write(os.path.join(self.log_url, f"pass_{self._passes}_{self.passname}_{which}_graph.dot"))

    def _created(self, node):
        self.created_nodes.add(node.name)
        self.name_to_node[node.name] = node
        node.meta["from_node"] = [*node.meta.get("from_node", ()), NodeSource(None, self.passname, NodeSourceAction.CREATE)]

    def _erased(self, node):
        self.erased_nodes.add(node.name)
        self.name_to_node.pop(node.name, None)

    def _replaced(self, old, new, user):
        made = self.name_to_node.get(new)
        known = () if made is None else made.meta.get("from_node", ())
        if made is None or any(source.name == old.name for source in known):  # called for each user
            return
        action = [NodeSourceAction.REPLACE] + ([NodeSourceAction.CREATE] if new in self.created_nodes else [])
        kept = [one for one in known if (one.pass_name, one.action) != (self.passname, [NodeSourceAction.CREATE])]
        made.meta["from_node"] = [*kept, NodeSource(old, self.passname, action)]

    def _copied(self, gm):
        self.copied_gms.append(gm)
