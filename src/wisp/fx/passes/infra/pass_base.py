"""A pass over a graph: a callable that changes a GraphModule and says whether it did."""

import abc
from collections import namedtuple

__all__ = ["PassResult", "PassBase"]

PassResult = namedtuple("PassResult", ["graph_module", "modified"])


class PassBase(abc.ABC):
    """A pass as a class: `requires` checks the module before `call` changes it, `ensures` checks it afterwards.

    >>> class Nothing(PassBase):
    ...     def call(self, graph_module):
    ...         return PassResult(graph_module, False)
    >>> Nothing()(wisp.fx.symbolic_trace(wisp.nn.ReLU())).modified
    False
    """

    def __call__(self, graph_module):
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module):
        """Changes the module and returns a PassResult, or None."""

    def requires(self, graph_module):  # noqa: B027 - may be left out
        """Raises where the module is not one that the pass can take."""

    def ensures(self, graph_module):  # noqa: B027 - likewise
        """Raises where the pass has not done what it is for."""
