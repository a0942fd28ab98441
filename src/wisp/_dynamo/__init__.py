"""Names of PyTorch's compiler front end that programs touch; Wisp runs eagerly."""

from wisp import _config
from wisp.compiler import allow_in_graph, assume_constant_result, disable, is_compiling, list_backends, reset  # noqa: F401

config = _config.make(__name__)


def optimize(backend="inductor", **options):
    """A decorator that returns the function as it is."""
    return lambda f: f


def graph_break(msg=""):
    """Nothing to break."""


def mark_dynamic(t, index, **options):
    """Nothing to mark."""


def mark_static(t, index=None):
    """Nothing to mark."""


def mark_static_address(t, guard=True):
    """Nothing to mark."""


class exc:
    """Errors of PyTorch's compiler; none is raised."""

    class TorchDynamoException(RuntimeError):
        """Not raised."""

    class BackendCompilerFailed(RuntimeError):
        """Not raised."""

    class Unsupported(RuntimeError):
        """Not raised."""


class OptimizedModule:
    """The class of compiled modules: none is one, `compile` returns the module itself."""


def explain(f, *args, **kwargs):
    """Not available: there is no compiler to ask."""
    raise NotImplementedError("_dynamo.explain: Wisp runs eagerly and has no compiler to ask")
