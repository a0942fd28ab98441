"""Convolutions with the batch normalisation that follows folded into them."""

import copy

from wisp import fx, nn
from wisp.nn.utils.fusion import fuse_conv_bn_eval

__all__ = ["extract_subgraph", "fuse", "matches_module_pattern", "optimize_for_inference", "remove_dropout", "replace_node_module"]


def matches_module_pattern(pattern, node, modules):
    """Whether a step calls a module of the second class on what one of the first class returned."""
    return bool(node.args) and all(
        isinstance(n, fx.Node) and _module(n, modules, (kind,)) for kind, n in zip(pattern, (node.args[0], node))
    )


def replace_node_module(node, modules, new_module):
    """Let a step call another module under the same name; `modules` are those of the root by name."""
    _replace(modules, node.target, new_module)


def extract_subgraph(orig_module, nodes, inputs, outputs):
    """A module of these steps alone, with what `inputs` are as its inputs and what `outputs` are as its results.

    >>> import wisp
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x + 1) * 2)
    >>> x, add, relu, mul, _ = traced.graph.nodes
    >>> extract_subgraph(traced, [relu, mul], [add], [mul])(wisp.tensor([-1.0, 3.0]))
    (tensor([0., 6.]),)
    """
    graph, made = fx.Graph(), {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in outputs))
    graph.lint()
    return fx.GraphModule(orig_module, graph)


def optimize_for_inference(model, pass_config=None, tracer=fx.Tracer):
    """The model in evaluation mode, traced, with batch normalisations folded into convolutions and without dropouts.

    `pass_config` may hold False for "conv_bn_fuse" or "remove_dropout". PyTorch's layout for MKL-DNN ("mkldnn_layout_optimize") has
    nothing to do here.

    >>> import wisp
    >>> model = wisp.nn.Sequential(wisp.nn.Conv2d(1, 1, 1), wisp.nn.BatchNorm2d(1), wisp.nn.Dropout()).eval()
    >>> [type(m).__name__ for m in optimize_for_inference(model).children()]
    ['Conv2d']
    """
    wanted = {"conv_bn_fuse": True, "remove_dropout": True, **(pass_config or {})}
    if wanted["conv_bn_fuse"]:
        model = fuse(model)
    if wanted["remove_dropout"]:
        model = remove_dropout(model)
    return fx.GraphModule(model, tracer().trace(model))


def _module(node, modules, kinds):
    return node.op == "call_module" and type(modules.get(node.target)) in kinds


def _replace(modules, name, new):
    *owner, last = name.rsplit(".", 1)
    setattr(modules[owner[0] if owner else ""], last, new)
    modules[name] = new


def fuse(model, inplace=False, no_trace=False):
    """The model in evaluation mode with its batch normalisations folded into the convolutions before them.

    >>> import wisp
    >>> from wisp.fx.experimental.optimization import fuse
    >>> model = wisp.nn.Sequential(wisp.nn.Conv2d(1, 1, 1), wisp.nn.BatchNorm2d(1)).eval()
    >>> [type(m).__name__ for m in fuse(model).children()]
    ['Conv2d']
    """
    traced = model if no_trace and isinstance(model, fx.GraphModule) else fx.symbolic_trace(model if inplace else copy.deepcopy(model))
    modules = dict(traced.named_modules())
    pairs = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}
    for node in list(traced.graph.nodes):
        if not _module(node, modules, tuple(pairs.values())) or not _module(node.args[0], modules, tuple(pairs)):
            continue
        before, norm = modules[node.args[0].target], modules[node.target]
        if pairs[type(before)] is not type(norm) or len(node.args[0].users) > 1 or not norm.track_running_stats:
            continue
        _replace(modules, node.args[0].target, fuse_conv_bn_eval(before, norm))
        node.replace_all_uses_with(node.args[0])
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def remove_dropout(model):
    """The model without its dropouts."""
    traced = fx.symbolic_trace(model)
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(traced.get_submodule(node.target), nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced
