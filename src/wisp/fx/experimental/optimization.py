"""Convolutions with the batch normalisation that follows folded into them."""

import copy

from wisp import fx, nn
from wisp.nn.utils.fusion import fuse_conv_bn_eval

__all__ = ["fuse", "remove_dropout"]


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
    traced.recompile()
    return traced
