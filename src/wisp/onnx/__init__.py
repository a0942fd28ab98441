"""`torch.onnx`: write a model as an ONNX file, which other programs run.

The model runs once on example inputs while a mode notes the operators it calls (`_trace`); each is translated (`_operators`, `_layers`)
and the graph is written (`_proto`). No other package is needed. What the file holds is what was called: branches that were not taken
are not in it, as with PyTorch's tracing.
"""

import enum as _enum
import os as _os
import warnings as _warnings

import wisp as _wisp
from wisp import _reference
from wisp.onnx import _proto, errors
from wisp.onnx.errors import OnnxExporterError

__all__ = [
    "ExportOptions",
    "ONNXProgram",
    "OnnxExporterError",
    "OperatorExportTypes",
    "TrainingMode",
    "dynamo_export",
    "errors",
    "export",
    "is_in_onnx_export",
]

OPSET = 18
_LARGEST = 2_000_000_000  # bytes in one file: a message of Protocol Buffers ends at two gigabytes


class TrainingMode(_enum.Enum):
    """The mode in which a model is exported."""

    EVAL, PRESERVE, TRAINING = 0, 1, 2


class OperatorExportTypes(_enum.Enum):
    """How operators are exported; Wisp knows ONNX alone."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = 0, 1, 2, 3


class ExportOptions:
    """Options of `dynamo_export`."""

    def __init__(self, *, dynamic_shapes=None, **ignored):
        self.dynamic_shapes = dynamic_shapes


_exporting = False


def is_in_onnx_export():
    """Whether a model runs in order to be exported.

    >>> import wisp
    >>> wisp.onnx.is_in_onnx_export()
    False
    """
    return _exporting


class ONNXProgram:
    """An exported graph.

    >>> import wisp
    >>> program = wisp.onnx.export(wisp.nn.Linear(2, 1), (wisp.ones(1, 2),))
    >>> program.input_names, program.output_names, [node[0] for node in program.nodes]
    (['input'], ['output'], ['Gemm'])
    """

    def __init__(self, nodes, constants, inputs, outputs):
        self.nodes, self.constants, self._inputs, self._outputs = nodes, constants, inputs, outputs

    @property
    def input_names(self):
        return [name for name, *_ in self._inputs]

    @property
    def output_names(self):
        return [name for name, *_ in self._outputs]

    def _bytes(self, external=None, place=None):
        initializers, offset = [], 0
        for name, tensor in self.constants.items():
            size = tensor.numel() * tensor.element_size()
            if external is not None and size >= 1024:
                initializers.append(_proto.tensor(tensor, name, (place, offset, size)))
                external.write(_proto.raw_bytes(tensor))
                offset += size
            else:
                initializers.append(_proto.tensor(tensor, name))
        graph = _proto.message(
            (1, [_proto.node(*node) for node in self.nodes]),
            (2, "main_graph"),
            (5, initializers),
            (11, [_proto.value_info(*value) for value in self._inputs]),
            (12, [_proto.value_info(*value) for value in self._outputs]),
        )
        return _proto.model(graph, OPSET, _wisp.__version__)

    def save(self, destination, *, include_initializers=True, keep_initializers_as_inputs=False, external_data=None):
        """Write the file (a path or an open one). Models beyond two gigabytes keep their weights beside it, in `destination`.data."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in self.constants.values())
        if hasattr(destination, "write"):
            destination.write(self._bytes())
            return
        path = _os.fspath(destination)
        if size <= _LARGEST and not external_data:
            data = self._bytes()
        else:
            with open(path + ".data", "wb") as external:
                data = self._bytes(external, _os.path.basename(path) + ".data")
        with open(path, "wb") as file:
            file.write(data)


def export(
    model,
    args=(),
    f=None,
    *,
    kwargs=None,
    verbose=None,
    input_names=None,
    output_names=None,
    opset_version=None,
    dynamo=True,
    external_data=True,
    dynamic_shapes=None,
    custom_translation_table=None,
    report=False,
    optimize=True,
    verify=False,
    profile=False,
    dump_exported_program=False,
    artifacts_dir=".",
    export_params=True,
    keep_initializers_as_inputs=False,
    dynamic_axes=None,
    training=TrainingMode.EVAL,
    operator_export_type=OperatorExportTypes.ONNX,
    do_constant_folding=True,
    custom_opsets=None,
    export_modules_as_functions=False,
    autograd_inlining=True,
    **ignored,
):
    """Write a model as an ONNX file, and return the graph.

    `args` are example inputs, with which the model runs. `dynamic_axes={"input": {0: "batch"}}` (or `dynamic_shapes`) names the sizes that
    may differ later. The file is of opset 18.

    >>> import io, wisp
    >>> model = wisp.nn.Sequential(wisp.nn.Linear(4, 3), wisp.nn.ReLU())
    >>> file = io.BytesIO()
    >>> program = wisp.onnx.export(model, wisp.ones(2, 4), file, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
    >>> [node[0] for node in program.nodes], len(file.getvalue()) > 100
    (['Gemm', 'Relu'], True)
    """
    global _exporting
    from wisp.onnx import _export

    if custom_translation_table or custom_opsets:
        raise NotImplementedError("onnx.export: translations of the program's own are not supported")
    if opset_version not in (None, OPSET):
        _warnings.warn(
            f"onnx.export: asked for opset {opset_version}; the file is written with opset {OPSET}",
            errors.OnnxExporterWarning,
            stacklevel=2,
        )
    args, kwargs = (tuple(args) if isinstance(args, (list, tuple)) else (args,)), dict(kwargs or {})
    if len(args) > 0 and isinstance(args[-1], dict) and not kwargs:
        args, kwargs = args[:-1], args[-1]
    was_training = getattr(model, "training", None)
    try:
        _exporting = True
        if was_training is not None and training is not TrainingMode.PRESERVE and hasattr(model, "train"):
            model.train(getattr(training, "name", "EVAL") == "TRAINING")
        program = _export.program_of(model, args, kwargs, input_names, output_names, dynamic_axes, dynamic_shapes)
    finally:
        _exporting = False
        if was_training is not None and hasattr(model, "train"):
            model.train(was_training)
    if f is not None:
        program.save(f)
    if verbose:
        for kind, inputs, outputs, _ in program.nodes:
            print(f"{', '.join(outputs)} = {kind}({', '.join(inputs)})")
    return program


def dynamo_export(model, *args, export_options=None, **kwargs):
    """The graph of a model for example inputs; `.save(path)` writes it."""
    return export(model, args, kwargs=kwargs)


_reference.attach(__name__, globals())
