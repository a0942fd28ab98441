"""A model cut off after some of its children, whose results are returned by name."""

from collections import OrderedDict

from wisp import nn
from wisp.vision.models._api import make_divisible as _make_divisible  # noqa: F401


class IntermediateLayerGetter(nn.ModuleDict):
    """The children of a model up to the last one named; calling it returns the results of those in `return_layers`.

    >>> import wisp
    >>> from wisp.vision.models import resnet18
    >>> from wisp.vision.models._utils import IntermediateLayerGetter
    >>> part = IntermediateLayerGetter(resnet18(), {"layer1": "low", "layer3": "high"})
    >>> [(name, tuple(value.shape)) for name, value in part(wisp.rand(1, 3, 64, 64)).items()]
    [('low', (1, 64, 16, 16)), ('high', (1, 256, 4, 4))]
    """

    def __init__(self, model, return_layers):
        names = [name for name, _ in model.named_children()]
        if not set(return_layers).issubset(names):
            raise ValueError(f"return_layers are not present in model: {sorted(set(return_layers) - set(names))}")
        last = max(names.index(name) for name in return_layers)
        super().__init__(OrderedDict(list(model.named_children())[: last + 1]))
        self.return_layers = {str(key): str(value) for key, value in return_layers.items()}

    def forward(self, x):
        found = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                found[self.return_layers[name]] = x
        return found
