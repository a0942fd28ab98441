"""The results of inner steps of a model, by the names of its modules and of the operators between them."""

import re

from wisp import fx
from wisp.fx.graph_module import _copy_attribute

__all__ = ["create_feature_extractor", "get_graph_node_names"]


class _Tracer(fx.Tracer):
    def __init__(self, leaf_modules=(), **options):
        super().__init__(**options)
        self._leaves = tuple(leaf_modules)

    def is_leaf_module(self, m, module_qualified_name):
        """Layers of wisp.vision.ops are whole, too."""
        ours = type(m).__module__.startswith(("wisp.vision.ops", "torchvision.ops"))
        return ours or isinstance(m, self._leaves) or super().is_leaf_module(m, module_qualified_name)


def _trace(model, training, options):
    """The graph of the model in that mode, and the names of its nodes in their order."""
    before = model.training
    try:
        graph = _Tracer(**(options or {})).trace(model.train(training))
    finally:
        model.train(before)
    names, seen = {}, {}
    # A module's path, or that of the module which calls an operator, and the operator; repeats are counted. The last node is the output.
    for node in list(graph.nodes)[:-1]:
        inside = list(node.meta.get("nn_module_stack", ()))[-1:]
        name = node.target if node.op == "call_module" else ".".join([*inside, re.sub(r"_\d+$", "", node.name)])
        count = seen[name] = seen.get(name, -1) + 1
        names[node] = f"{name}_{count}" if count else name
    return graph, names


def _keep(model, training, wanted, options):
    """The graph of the model in that mode that ends with the wanted nodes and does nothing else."""
    graph, names = _trace(model, training, options)
    results = {}
    for path, key in wanted.items():
        found = [n for n, name in names.items() if name == path or name.startswith(path + ".")]
        if not found:
            raise ValueError(
                f"create_feature_extractor: the model has no node {path!r}; get_graph_node_names lists them: "
                f"{', '.join(list(names.values())[:8])}, ..."
            )
        results[key] = found[-1]  # the last step of a module is its result
    (old,) = (node for node in graph.nodes if node.op == "output")
    graph.erase_node(old)
    order = {node: i for i, node in enumerate(graph.nodes)}
    graph.output(dict(sorted(results.items(), key=lambda item: order[item[1]])))  # in the order in which they are computed
    graph.eliminate_dead_code()
    return graph


class _Extractor(fx.GraphModule):
    """A module with a graph for training and another for evaluation."""

    def __init__(self, root, graphs):
        super().__init__(root, graphs[root.training], type(root).__name__)
        for node in graphs[not root.training].nodes:
            if node.op in ("get_attr", "call_module"):
                _copy_attribute(root, self, node.target)
        self._graphs = graphs

    def train(self, mode=True):
        """Training or evaluation, each with its graph."""
        super().train(mode)
        self.graph = self._graphs[mode]
        return self


def create_feature_extractor(
    model,
    return_nodes=None,
    train_return_nodes=None,
    eval_return_nodes=None,
    tracer_kwargs=None,
    suppress_diff_warning=False,
    concrete_args=None,
):
    """A model that returns the results of the named modules and operators as a dictionary, and computes no more than they need.

    >>> import wisp
    >>> from wisp.vision.models import resnet18
    >>> from wisp.vision.models.feature_extraction import create_feature_extractor
    >>> create_feature_extractor(resnet18(), {"layer2": "x"})(wisp.rand(1, 3, 64, 64))["x"].shape
    torch.Size([1, 128, 8, 8])
    """
    if (return_nodes is None) == (train_return_nodes is None) or (train_return_nodes is None) != (eval_return_nodes is None):
        raise ValueError("create_feature_extractor: give return_nodes, or both of train_return_nodes and eval_return_nodes")
    graphs = {}
    for training, nodes in ((True, train_return_nodes), (False, eval_return_nodes)):
        nodes = return_nodes if nodes is None else nodes
        wanted = {str(k): str(v) for k, v in nodes.items()} if isinstance(nodes, dict) else {str(name): str(name) for name in nodes}
        graphs[training] = _keep(model, training, wanted, tracer_kwargs)
    return _Extractor(model, graphs)


def get_graph_node_names(model, tracer_kwargs=None, suppress_diff_warning=False, concrete_args=None):
    """The names of the steps, in training and in evaluation."""
    return tuple(list(_trace(model, training, tracer_kwargs)[1].values()) for training in (True, False))
