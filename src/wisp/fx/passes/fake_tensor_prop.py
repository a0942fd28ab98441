"""Notes what every step returns without computing it."""

import wisp
from wisp.fx._shapes import Shapes, without_data
from wisp.fx.interpreter import Interpreter
from wisp.fx.node import map_aggregate

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a graph on tensors without data, and leaves in `node.meta["val"]` what each step returns: tensors on the device "meta", numbers,
    and None for other things.

    >>> traced = wisp.fx.symbolic_trace(wisp.nn.Sequential(wisp.nn.Linear(2, 3)))
    >>> FakeTensorProp(traced).propagate(wisp.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, module, mode=None):
        super().__init__(module)
        self._shapes = Shapes()

    def get_attr(self, target, args, kwargs):
        """An attribute without its data."""
        return map_aggregate(super().get_attr(target, args, kwargs), without_data)

    def call_function(self, target, args, kwargs):
        """What a function returns."""
        return self._shapes.call(target, args, kwargs)

    def call_method(self, target, args, kwargs):
        """What a method returns."""
        return self._shapes.call(lambda value, *rest, **named: getattr(value, target)(*rest, **named), args, kwargs)

    def call_module(self, target, args, kwargs):
        """What a copy of a module returns."""
        return self._shapes.module(self.fetch_attr(target), args, kwargs)

    def run_node(self, n):
        """Run the step and note its result."""

        def value(part):
            return part.detach() if isinstance(part, wisp.Tensor) else part if isinstance(part, (int, float, bool)) else None

        result = super().run_node(n)
        n.meta["val"] = map_aggregate(result, value)
        return result

    def propagate(self, *args):
        """Run the graph on the shapes of these inputs."""
        return self.propagate_dont_convert_inputs(*map_aggregate(args, without_data))

    def propagate_dont_convert_inputs(self, *args):
        """Run the graph on inputs that have no data already."""
        return super().run(*args)
