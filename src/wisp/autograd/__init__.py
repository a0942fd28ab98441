"""Automatic differentiation."""

import wisp
from wisp import _core, _reference
from wisp.autograd import graph
from wisp.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from wisp.autograd.function import Function, NestedIOFunction
from wisp.autograd.grad_mode import (  # noqa: F401
    _force_original_view_tracking,
    _unsafe_preserve_version_counter,
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    is_multithreading_enabled,
    is_view_replay_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from wisp.autograd.gradcheck import gradcheck, gradgradcheck
from wisp.autograd.variable import Variable

__all__ = [
    "Function",
    "NestedIOFunction",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "enforce_grad_layout_policy",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def __getattr__(name):
    import importlib

    if name == "torch":
        return wisp
    if name == "kineto_available":
        return importlib.import_module("wisp.profiler").kineto_available
    if name == "SavedTensor":
        return importlib.import_module("wisp.autograd._inner").SavedTensor
    if name in ("forward_ad", "functional", "profiler"):
        return importlib.import_module("wisp.autograd." + name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _calculate_shape(output, grad, is_grads_batched):
    """The shapes of an output and its gradient, for messages; of nested tensors those of their parts."""
    if output.is_nested or grad.is_nested:
        if is_grads_batched:
            raise RuntimeError("Batched grads are not supported with Nested Tensor.")
        return tuple(wisp.tensor([list(part.shape) for part in t.unbind()]) if t.is_nested else t.shape for t in (output, grad))
    return output.shape, grad.shape if not is_grads_batched else grad.shape[1:]


def _listed(value):
    if value is None:
        return []
    if isinstance(value, dict):
        return list(value.values())
    return [value] if isinstance(value, (wisp.Tensor, graph.GradientEdge)) else list(value)


def _at_edges(values):
    """Tensors, those that stand for edges among them."""
    return [_core._tensor_at(value.node, value.output_nr) if isinstance(value, graph.GradientEdge) else value for value in values]


def _dense(tensors, gradients=None):
    """Sparse tensors stand for their values, which carry the gradient; their gradients likewise."""
    if gradients is None:
        return [getattr(tensor, "_held", tensor) for tensor in tensors]
    return [
        tensor._gradient_of_values(gradient) if gradient is not None and hasattr(tensor, "_held") else gradient
        for tensor, gradient in zip(tensors, gradients)
    ]


def _start_gradients(outputs, given, batched=False):
    """The gradients that backward starts with: those given, or 1 for a scalar."""
    given = _listed(given) or [None] * len(outputs)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    for i, (output, gradient) in enumerate(zip(outputs, given)):
        if not isinstance(output, wisp.Tensor):
            continue
        if gradient is None:
            if output.requires_grad and (output.numel() != 1 or output.layout is not wisp.strided):
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
        elif not isinstance(gradient, wisp.Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
        elif output.is_nested and output.layout is wisp.strided:  # no single shape: the parts' are compared where the gradient is taken
            continue
        else:
            shape = tuple(gradient.shape[1:] if batched else gradient.shape)
            if batched and shape != tuple(output.shape):
                raise RuntimeError(
                    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of "
                    "the remaining dimensions are expected to match the shape of corresponding output, but a mismatch was detected: "
                    f"grad_output[{i}] has a shape of {gradient.shape} and output[{i}] has a shape of {output.shape}."
                )
            if shape != tuple(output.shape):
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {gradient.shape} and output[{i}] has a shape of {output.shape}."
                )
            if gradient.is_complex() != output.is_complex():
                raise RuntimeError(
                    "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                    f"grad_output[{i}] has a dtype of {gradient.dtype} and output[{i}] has a dtype of {output.dtype}."
                )
    return given


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Add the gradients of `tensors` to the `.grad` of the leaves they depend on (or of `inputs`).

    `grad_tensors` are the gradients to start with; a scalar may do without. The graph is freed unless `retain_graph`;
    with `create_graph` the gradients can be differentiated again.
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _at_edges(_listed(inputs))
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    tensors = _at_edges(_listed(tensors))
    gradients = _start_gradients(tensors, grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph
    _core._backward(_dense(tensors), _dense(tensors, gradients), keep, create_graph, None if inputs is None else _dense(inputs))


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """The gradients of `outputs` with respect to `inputs`, as a tuple; `.grad` stays as it is.

    An input that the outputs do not depend on is an error, None with `allow_unused`, zeros with `materialize_grads`.
    A dict of inputs gives a dict of gradients. With `is_grads_batched` the gradients to start with have a first dimension of
    independent runs.
    """
    if grad_outputs is None and not (materialize_grads or is_grads_batched) and type(outputs) is _core.Tensor and outputs.numel() == 1:
        # What nearly all programs ask for, without looking at what they could have given instead.
        listed = [inputs] if isinstance(inputs, _core.Tensor) else inputs
        if type(listed) in (list, tuple) and listed and all(isinstance(x, _core.Tensor) and not hasattr(x, "_held") for x in listed):
            keep = create_graph if retain_graph is None else retain_graph
            return _core._grad([outputs], [None], list(listed), keep, create_graph, bool(allow_unused))
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    names = None
    if not isinstance(inputs, (wisp.Tensor, tuple, list)) and hasattr(inputs, "keys"):
        if type(inputs) is not dict:
            raise TypeError(f"inputs with names must be a dict, got {type(inputs).__name__}")
        names = list(inputs)
        if not names:
            raise RuntimeError("grad: the dict of inputs cannot be empty")
    outputs, given = _at_edges(_listed(outputs)), _listed(inputs)
    if not given:
        raise RuntimeError("grad: the inputs cannot be empty")
    inputs = _at_edges(given)
    gradients = _dense(outputs, _start_gradients(outputs, grad_outputs, is_grads_batched))
    keep = create_graph if retain_graph is None else retain_graph
    sources, outputs, inputs = inputs, _dense(outputs), _dense(inputs)
    if is_grads_batched:
        count = next(gradient.size(0) for gradient in gradients if gradient is not None)
        gradients = [output.new_ones(count, *output.shape) if g is None else g for output, g in zip(outputs, gradients)]
        results = (_core._grad_of_batch if count else _core._grad)(outputs, gradients, inputs, keep, create_graph, allow_unused)
    else:
        results = _core._grad(outputs, gradients, inputs, keep, create_graph, allow_unused)
    results = tuple(
        source._with(result) if result is not None and hasattr(source, "_held") else result for source, result in zip(sources, results)
    )
    if materialize_grads:
        if any(result is None and not isinstance(source, wisp.Tensor) for result, source in zip(results, given)):
            raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
        results = tuple(
            wisp.zeros_like(source, requires_grad=create_graph) if result is None else result for result, source in zip(results, sources)
        )
    return results if names is None else dict(zip(names, results))


_reference.attach(__name__, globals())


def _is_checkpoint_valid():
    """True: a checkpoint works under `grad` too."""
    return True


def _disable_profiler():
    """Nothing: a profiler ends with its context."""


def _profiler_enabled():
    """Whether a profiler is recording."""
    return _core._operators[""]["_profiler_enabled"]()
