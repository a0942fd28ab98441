"""Notes what every step returns without computing it."""

import copy

import wisp
from wisp.fx.interpreter import Interpreter
from wisp.fx.node import map_aggregate

__all__ = ["FakeTensorProp"]


def _without_data(value):
    return value.to("meta") if isinstance(value, wisp.Tensor) else value


class FakeTensorProp(Interpreter):
    """Runs a graph on tensors without data, and leaves in `node.meta["val"]` what each step returns: tensors on the device "meta", numbers,
    and None for other things.

    >>> traced = wisp.fx.symbolic_trace(wisp.nn.Sequential(wisp.nn.Linear(2, 3)))
    >>> FakeTensorProp(traced).propagate(wisp.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, module, mode=None):
        super().__init__(module)
        self._modules = {}

    def get_attr(self, target, args, kwargs):
        """An attribute without its data."""
        return map_aggregate(super().get_attr(target, args, kwargs), _without_data)

    def call_module(self, target, args, kwargs):
        """What a copy of the module without data returns."""
        if target not in self._modules:
            with wisp.device("meta"):
                self._modules[target] = copy.deepcopy(self.fetch_attr(target)).to("meta")
        return self._modules[target](*args, **kwargs)

    def run_node(self, n):
        """Run the step and note its result."""

        def value(part):
            return part.detach() if isinstance(part, wisp.Tensor) else part if isinstance(part, (int, float, bool)) else None

        result = super().run_node(n)
        n.meta["val"] = map_aggregate(result, value)
        return result

    def propagate(self, *args):
        """Run the graph on the shapes of these inputs."""
        return self.propagate_dont_convert_inputs(*map(_without_data, args))

    def propagate_dont_convert_inputs(self, *args):
        """Run the graph on inputs that have no data already."""
        with wisp.device("meta"):
            return super().run(*args)
