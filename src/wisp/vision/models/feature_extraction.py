"""The results of inner layers of a model, by the names of its modules."""

from collections import OrderedDict

from wisp import nn

__all__ = ["create_feature_extractor", "get_graph_node_names"]


class _Extractor(nn.Module):
    def __init__(self, model, wanted):
        super().__init__()
        self.model, self.wanted = model, wanted

    def forward(self, *inputs, **options):
        found = {}
        handles = [
            self.model.get_submodule(path).register_forward_hook(lambda module, given, result, path=path: found.__setitem__(path, result))
            for path in self.wanted
        ]
        try:
            self.model(*inputs, **options)
        finally:
            for handle in handles:
                handle.remove()
        return OrderedDict((name, found[path]) for path, name in self.wanted.items())


def create_feature_extractor(model, return_nodes=None, train_return_nodes=None, eval_return_nodes=None, **options):
    """A model that returns the results of the named modules as a dictionary.

    >>> import wisp
    >>> from wisp.vision.models import resnet18
    >>> from wisp.vision.models.feature_extraction import create_feature_extractor
    >>> create_feature_extractor(resnet18(), {"layer2": "x"})(wisp.rand(1, 3, 64, 64))["x"].shape
    torch.Size([1, 128, 8, 8])
    """
    nodes = return_nodes if return_nodes is not None else eval_return_nodes
    nodes = dict(nodes) if isinstance(nodes, dict) else {name: name for name in nodes}
    known, wanted = dict(model.named_modules()), {}
    for path, name in nodes.items():
        if path not in known:  # a node such as "flatten" has no module of its own
            raise ValueError(
                f"create_feature_extractor: the model has no module {path!r}; Wisp finds results by modules, and knows "
                f"{', '.join(list(known)[1:8])}, ..."
            )
        wanted[path] = name
    return _Extractor(model, wanted)


def get_graph_node_names(model, *args, **options):
    """The names of the modules, for training and for evaluation."""
    names = [name for name, _ in model.named_modules() if name]
    return names, list(names)
