"""`torch.export`: a module as a graph of its steps for given inputs, by `torch.fx`'s tracing.

The graph holds public functions and submodules, not the small set of operators of PyTorch's compiler, and files are the module's own.
"""

import functools
import inspect

import wisp
from wisp import _reference
from wisp import fx as _fx
from wisp.fx.node import _draws

__all__ = [
    "Constraint",
    "Dim",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "FlatArgsAdapter",
    "ShapesCollection",
    "UnflattenedModule",
    "dims",
    "export",
    "export_for_training",
    "load",
    "save",
    "unflatten",
]


class Dim:
    """A size that may differ from the example's: every size may, here."""

    AUTO = DYNAMIC = STATIC = None

    def __init__(self, name, *, min=None, max=None):
        self.__name__, self.min, self.max = name, min, max

    def __mul__(self, other):
        return Dim(f"{other}*{self.__name__}")

    __rmul__ = __mul__

    def __add__(self, other):
        return Dim(f"{self.__name__} + {other}")

    def __repr__(self):
        return f"Dim({self.__name__!r})"


Dim.AUTO, Dim.DYNAMIC, Dim.STATIC = Dim("AUTO"), Dim("DYNAMIC"), Dim("STATIC")
Constraint = Dim


def dims(*names, min=None, max=None):
    """Several `Dim`s."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection(dict):
    """Which sizes of which tensors may differ."""


class ExportGraphSignature:
    """The names of what goes into a graph and comes out."""

    def __init__(self, graph, module):
        self.user_inputs = tuple(node.name for node in graph.nodes if node.op == "placeholder")
        self.user_outputs = tuple(str(node) for node in graph.output_node().all_input_nodes)
        self.parameters = tuple(name for name, _ in module.named_parameters())
        self.buffers = tuple(name for name, _ in module.named_buffers())


class ExportBackwardSignature:
    """Not made: graphs hold the forward pass."""


class FlatArgsAdapter:
    """What would fit inputs to another module."""


class ExportedProgram:
    """An exported module: `graph_module`, `state_dict`, and `module()` that runs it."""

    def __init__(self, root, graph_module, args, kwargs, dynamic_shapes):
        self.graph_module, self._root = graph_module, root
        self.example_inputs = (args, kwargs)
        self.dynamic_shapes, self.range_constraints = dynamic_shapes, {}
        self.graph_signature = ExportGraphSignature(graph_module.graph, root)
        self.constants = {}

    @property
    def graph(self):
        """The steps."""
        return self.graph_module.graph

    @property
    def state_dict(self):
        """The parameters and buffers."""
        return self._root.state_dict()

    def named_parameters(self):
        """The parameters with their names."""
        return self._root.named_parameters()

    def parameters(self):
        """The parameters."""
        return self._root.parameters()

    def named_buffers(self):
        """The buffers with their names."""
        return self._root.named_buffers()

    def buffers(self):
        """The buffers."""
        return self._root.buffers()

    def module(self, check_guards=True):
        """A module that runs the graph."""
        return self.graph_module

    def run_decompositions(self, decomp_table=None):
        """The same program: there is no smaller set of operators."""
        return self

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def __str__(self):
        return f"ExportedProgram:\n{self.graph_module.print_readable(print_output=False)}\nGraph signature: {vars(self.graph_signature)}\n"

    __repr__ = __str__


class _Tracer(_fx.Tracer):
    """Numbers that are drawn are drawn again by each call, though they depend on no input, and buffers are read and written again."""

    proxy_buffer_attributes = True

    def _wrap_functions(self, patches, program=None):
        super()._wrap_functions(patches, program)
        for name, function in list(vars(wisp).items()):
            if callable(function) and not name.startswith("_") and _draws(getattr(function, "__wrapped__", function)):
                patches.put(vars(wisp), name, functools.partial(self._drawn, function))

    def _drawn(self, function, *args, **kwargs):
        return self.create_proxy("call_function", function, args, kwargs)


def _symbolic_trace(mod, concrete_args=None):
    tracer = _Tracer()
    graph = tracer.trace(mod, concrete_args)
    return _fx.GraphModule(tracer.root, graph, type(mod).__name__)


def _traced(mod, args):
    """The graph of a module; of one that takes nothing but *args, for so many."""
    code = getattr(inspect.unwrap(type(mod).forward), "__code__", None)
    varies = code is not None and code.co_flags & inspect.CO_VARARGS and code.co_argcount == 1 and not code.co_kwonlyargcount
    return _symbolic_trace(mod, tuple(_fx.PH for _ in args) if varies else None)


def export(
    mod,
    args=(),
    kwargs=None,
    *,
    dynamic_shapes=None,
    strict=False,
    preserve_module_call_signature=(),
    prefer_deferred_runtime_asserts=False,
):
    """Trace a module and check the graph on the example inputs.

    >>> import wisp
    >>> program = wisp.export.export(wisp.nn.Sequential(wisp.nn.Linear(2, 1), wisp.nn.ReLU()), (wisp.ones(1, 2),))
    >>> program.module()(wisp.ones(3, 2)).shape
    torch.Size([3, 1])
    """
    if not isinstance(mod, wisp.nn.Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    kwargs = kwargs or {}
    try:
        traced = _traced(mod, args)
    except _fx.proxy.TraceError as error:
        raise RuntimeError(
            f"export: what {type(mod).__name__}.forward does depends on values ({error}); Wisp's export follows one path "
            "through the program. Keep the Python source of the model, or write the choice with torch.where."
        ) from error
    with wisp.no_grad():
        traced(*args, **kwargs)
    return ExportedProgram(mod, traced, args, kwargs, dynamic_shapes)


export_for_training = export


def save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Write an exported program; Wisp reads it, PyTorch does not. The file holds the module, by its class, of which `load` makes the graph
    anew: files never bring code of their own.

    >>> import io, wisp
    >>> file = io.BytesIO()
    >>> wisp.export.save(wisp.export.export(wisp.nn.ReLU(), (wisp.ones(2),)), file)
    >>> wisp.export.load(io.BytesIO(file.getvalue())).module()(wisp.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    if _traced(ep._root, ep.example_inputs[0]).code != ep.graph_module.code:
        raise RuntimeError(
            f"export.save: the graph of {type(ep._root).__name__} was changed after the export, and files hold modules, not graphs. "
            "Change the module's forward and export it again, or keep `program.state_dict` with wisp.save."
        )
    wisp.save((ep._root, ep.example_inputs, ep.dynamic_shapes), f)


def load(f, *, extra_files=None, expected_opset_version=None):
    """Read what `save` wrote; the program must have imported the module's class.

    >>> import io, wisp
    >>> file = io.BytesIO()
    >>> wisp.export.save(wisp.export.export(wisp.nn.Linear(2, 1), (wisp.ones(1, 2),)), file)
    >>> list(wisp.export.load(io.BytesIO(file.getvalue())).state_dict)
    ['weight', 'bias']
    """
    with wisp.serialization.safe_globals([Dim]):
        root, (args, kwargs), shapes = wisp.load(f, weights_only=False)
    return export(root, args, kwargs, dynamic_shapes=shapes)


class UnflattenedModule(wisp.nn.Module):
    """Not made: an exported module keeps its submodules."""


def unflatten(module, flat_args_adapter=None):
    """The module of an exported program, which keeps its submodules."""
    return module.module()


def register_dataclass(cls, *, serialized_type_name=None):
    """Let instances of a dataclass be inputs of exported modules."""
    return cls


_reference.attach(__name__, globals())
