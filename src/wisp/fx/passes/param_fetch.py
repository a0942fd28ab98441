"""What a back end needs to know of layers, put on the steps that call them."""

from wisp import nn
from wisp.fx.graph_module import GraphModule
from wisp.fx.passes.tools_common import get_acc_ops_name

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


def default_matching(name, target_version):
    """The name of an attribute in another version of its layer: the same."""
    return name


_WINDOW = ["kernel_size", "stride", "padding", "dilation"]
# the version of the layer, the attributes to fetch, and their names in another version
module_fetch_book = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (1, ["weight", "bias", *_WINDOW, "groups", "padding_mode"], default_matching),
    nn.BatchNorm2d: (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.MaxPool2d: (1, [*_WINDOW, "return_indices", "ceil_mode"], default_matching),
    nn.ReLU: (1, ["inplace"], default_matching),
}


def extract_attrs_for_lowering(mod):
    """The attributes of a layer that `module_fetch_book` knows.

    >>> extract_attrs_for_lowering(wisp.nn.ReLU())
    {'name': 'torch.nn.modules.activation.ReLU', 'inplace': False}
    """
    name = get_acc_ops_name(type(mod))
    if type(mod) not in module_fetch_book:
        raise RuntimeError(f"{name} is not in the module_fetch_book yet: add it there")
    version, wanted, matching = module_fetch_book[type(mod)]
    given = getattr(mod, "_version", 1)
    if version < given:
        raise RuntimeError(f"module_fetch_book knows version {version} of {name}, which is of version {given}")
    return {"name": name, **{attribute: getattr(mod, matching(attribute, given)) for attribute in wanted}}


def lift_lowering_attrs_to_nodes(fx_module):
    """Set `attrs_for_lowering` on every step that calls a layer, in graphs inside too."""
    for node in fx_module.graph.nodes:
        if node.op == "call_module":
            inner = fx_module.get_submodule(node.target)
            if isinstance(inner, GraphModule):
                lift_lowering_attrs_to_nodes(inner)
            else:
                node.attrs_for_lowering = extract_attrs_for_lowering(inner)
