"""From a model and example inputs to the graph of an ONNX file."""

import inspect

import wisp
from wisp import _core
from wisp.onnx import ONNXProgram, _layers, _trace
from wisp.onnx._graph import Graph
from wisp.onnx._operators import RULES
from wisp.onnx._trace import Varying, leaves
from wisp.onnx.errors import UnsupportedOperatorError

assert _layers  # its rules are in RULES


def program_of(model, args, kwargs, input_names, output_names, dynamic_axes, dynamic_shapes):
    tensors = leaves((args, kwargs), _core.Tensor)
    names = _input_names(model, args, kwargs, input_names, len(tensors))
    axes = _axes(names, dynamic_axes, dynamic_shapes, model, args)
    recorder, inputs, outputs = _trace.run(model, args, kwargs, RULES)
    sizes, labels = [], {}
    if any(axes.values()):
        others, second = _other_sizes(tensors, names, axes)
        replacement = iter(others)
        again = _trace.map_tree(lambda leaf: next(replacement) if isinstance(leaf, _core.Tensor) else leaf, (args, kwargs))
        other, other_inputs, other_outputs = _trace.run(model, *again, RULES)
        _trace.merge(recorder, other)
        for value, changed in zip((*inputs, *outputs), (*other_inputs, *other_outputs)):
            _trace._merged(value, changed)
        for name, value in zip(names, inputs):
            for axis, label in axes[name].items():
                size = Varying(value.tensor.shape[axis], second[label])
                sizes.append((name, axis, size))
                labels[size] = label
    parameters = _parameter_names(model)
    graph = Graph(parameters, sizes)
    graph.names.update(zip(inputs, names))
    for call in recorder.calls:
        _translate(graph, call)
    output_names = list(output_names or ()) or (["output"] if len(outputs) == 1 else [f"output_{i}" for i in range(len(outputs))])
    if len(output_names) != len(outputs):
        raise ValueError(f"onnx.export: {len(output_names)} output_names for {len(outputs)} outputs")
    for place, (name, value) in enumerate(zip(output_names, outputs)):
        _name_output(graph, name, value, output_names[:place])
    nodes, constants = graph.pruned(output_names)

    def described(name, value):
        given = (dynamic_axes or {}).get(name) or {}
        given = given if isinstance(given, dict) else {axis: f"{name}_axis_{axis}" for axis in given}
        return (
            name,
            value.dtype,
            [
                labels.get(size) or given.get(i) or f"{name}_dim_{i}" if isinstance(size, Varying) else size
                for i, size in enumerate(value.shape)
            ],
        )

    return ONNXProgram(
        nodes, constants, [described(*pair) for pair in zip(names, inputs)], [described(*pair) for pair in zip(output_names, outputs)]
    )


def _input_names(model, args, kwargs, given, count):
    names = list(given or ())
    if len(names) > count:
        raise ValueError(f"onnx.export: {len(names)} input_names for {count} tensors among the inputs")
    forward = getattr(model, "forward", model)
    try:
        parameters = list(inspect.signature(forward).parameters)
    except (TypeError, ValueError):
        parameters = []
    found = []
    for place, arg in enumerate(args):
        own = parameters[place] if place < len(parameters) else f"input_{place}"
        inside = len(leaves(arg, _core.Tensor))
        found += [own] if inside == 1 else [f"{own}_{i}" for i in range(inside)]
    for key, arg in kwargs.items():
        found += [key] * len(leaves(arg, _core.Tensor))
    names += found[len(names) :]
    return [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names)]


def _axes(names, dynamic_axes, dynamic_shapes, model, args):
    """-> {input: {axis: name of its size}}."""
    result = {name: {} for name in names}
    for name, axes in (dynamic_axes or {}).items():
        if name in result:
            result[name] = dict(axes) if isinstance(axes, dict) else {axis: f"{name}_axis_{axis}" for axis in axes}
    if dynamic_shapes:
        shapes = list(dynamic_shapes.items()) if isinstance(dynamic_shapes, dict) else list(zip(names, dynamic_shapes))
        for position, (name, axes) in enumerate(shapes):
            name = name if name in result else names[position]
            axes = dict(enumerate(axes)) if isinstance(axes, (list, tuple)) else axes or {}
            for axis, dim in axes.items():
                label = getattr(dim, "__name__", None) or str(dim)
                if dim is not None and "STATIC" not in label:
                    result[name][axis] = f"{name}_axis_{axis}" if "DYNAMIC" in label or "AUTO" in label else label
    return result


def _other_sizes(tensors, names, axes):
    """Inputs whose varying sizes are others, the same for equal names; -> them and the sizes by name."""
    second, others = {}, []
    for name, tensor in zip(names, tensors):
        for axis, label in axes[name].items():
            # Steps that differ, so that a number tells which size it follows from.
            second.setdefault(label, tensor.shape[axis] + 1 + len(second))
    for name, tensor in zip(names, tensors):
        for axis, label in axes[name].items():
            extra = second[label] - tensor.shape[axis]
            index = wisp.arange(tensor.shape[axis] + extra, device=tensor.device) % tensor.shape[axis]
            tensor = tensor.detach().index_select(axis, index)
        others.append(tensor)
    return others, second


def _parameter_names(model):
    if not isinstance(model, wisp.nn.Module):
        return {}
    return {id(tensor): name for members in (model.named_buffers(), model.named_parameters()) for name, tensor in members}


def _translate(graph, call):
    if not any(value.traced or value.varies for value in call.results):
        return
    rule = RULES.get(call.name)
    if rule is None:
        raise UnsupportedOperatorError(f"onnx.export: the operator {call.name!r} has no translation to ONNX")
    graph.call = call
    names = rule(graph, *call.args, **{key: value for key, value in call.kwargs.items() if key != "out"})
    for value, name in zip(call.results, names if isinstance(names, list) else [names]):
        if name is not None:
            graph.names[value] = graph.name(name)


def _name_output(graph, name, value, taken):
    """Let the node that makes an output give it its name."""
    made = graph.name(value)
    for place, (kind, given, results, attributes) in enumerate(graph.nodes):
        if made in results and made not in taken:
            graph.nodes[place] = (kind, given, [name if result == made else result for result in results], attributes)
            graph.nodes = [(k, [name if n == made else n for n in i], r, a) for k, i, r, a in graph.nodes]
            graph.names = {key: name if old == made else old for key, old in graph.names.items()}
            return
    graph.nodes.append(("Identity", [made], [name], {}))
    graph.names[value] = name
