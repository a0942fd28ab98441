"""Jacobians, Hessians and their products with vectors, of functions from tensors to tensors."""

import wisp
from wisp import _core, _reference
from wisp._tensor import has_shells
from wisp.autograd import function as _function

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _construct_standard_basis_for(tensors, tensor_numels):
    """The rows of the identity matrix of all elements, cut into one matrix for each tensor."""
    chunks, start = [], 0
    for tensor, count in zip(tensors, tensor_numels):
        chunk = tensor.new_zeros(sum(tensor_numels), count)
        chunk.diagonal(start).fill_(1)
        chunks.append(chunk)
        start -= count
    return tuple(chunks)


def _as_tuple(value, what, function):
    """-> (was it a tuple, the tuple)."""
    values = value if isinstance(value, tuple) else (value,)
    if what == "inputs" and (_function.transforms_active() or any(type(item) is _function._BatchedTensor for item in values)):
        raise RuntimeError(
            f"torch.autograd.functional.{function} was called inside of a function that torch.func transforms (vmap, grad, ...), which is "
            "not supported. Use torch.func.jacrev, jacfwd, vjp, jvp or hessian there."
        )
    for i, item in enumerate(values):
        if not isinstance(item, wisp.Tensor):
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but the "
                f"value at index {i} has type {type(item)}."
            )
    return isinstance(value, tuple), values


def _fresh(inputs, create_graph):
    """Inputs as the starts of a new graph; with `create_graph` it stays connected to the old one."""
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in inputs)


def _finish(values, create_graph):
    return values if create_graph else tuple(value.detach() for value in values)


def _run(func, inputs, create_graph, function):
    was_tuple, inputs = _as_tuple(inputs, "inputs", function)
    inputs = _fresh(inputs, create_graph)
    outputs = func(*inputs)
    outputs_tuple, outputs = _as_tuple(outputs, "outputs of the user-provided function", function)
    return was_tuple, inputs, outputs_tuple, outputs


def _check_strict(outputs, strict):
    for i, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must "
                "be computed in a differentiable manner from the input when running in strict mode."
            )


_OUTPUT = "The output of the user-provided function"
_JACOBIAN = "The jacobian of the user-provided function"


def _gradients(outputs, inputs, weights, create_graph, strict=False, what=_OUTPUT):
    """Gradients of outputs, weighted; zeros where there is no dependence (an error about `what`, if `strict`)."""
    pairs = [(output, weight) for output, weight in zip(outputs, weights) if output.requires_grad]
    if not pairs:
        return tuple(wisp.zeros_like(x) for x in inputs)
    results = wisp.autograd.grad(
        [output for output, _ in pairs],
        inputs,
        [weight for _, weight in pairs],
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )
    for i, result in enumerate(results):
        if strict and result is None:
            raise RuntimeError(f"{what} is independent of input {i}. This is not allowed in strict mode.")
    return tuple(wisp.zeros_like(x) if result is None else result for result, x in zip(results, inputs))


def _vectors(v, likes, likes_tuple, of_input, name):
    if v is None:
        if len(likes) != 1 or likes[0].numel() != 1:
            source = "input to the user-provided function is" if of_input else "user-provided function returns"
            raise RuntimeError(f"The vector v can only be None if the {source} a single Tensor with a single element ({name}).")
        return tuple(wisp.ones_like(x) for x in likes)
    _, v = _as_tuple(v, "v", name)
    if len(v) != len(likes):
        if not likes_tuple:
            raise RuntimeError("The given v should contain a single Tensor.")
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(likes)} but got {len(v)}.")
    for i, (vector, like) in enumerate(zip(v, likes)):
        if vector.shape != like.shape:
            entry = f"Entry {i} in " if likes_tuple else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {like.shape} but got {vector.shape}.")
    return v


def _check_dependence(gradients, strict):
    for i, gradient in enumerate(gradients):
        if strict and not gradient.requires_grad:
            raise RuntimeError(f"{_JACOBIAN} with respect to input {i} is independent of the input. This is not allowed in strict mode.")


def _check_jacobian(results, create_graph, strict):
    """Strict and to be differentiated again: the gradients must depend on the inputs."""
    for i, result in enumerate(results):
        if strict and create_graph and not result.requires_grad:
            raise RuntimeError(f"{_JACOBIAN} is independent of input {i}. This is not allowed in strict mode when create_graph=True.")


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """-> (outputs of func, the vector v times its Jacobian)."""
    with wisp.enable_grad():
        was_tuple, inputs, outputs_tuple, outputs = _run(func, inputs, create_graph, "vjp")
        _check_strict(outputs, strict)
        v = _vectors(v, outputs, outputs_tuple, False, "vjp")
        results = _gradients(outputs, inputs, v, create_graph, strict)
        _check_jacobian(results, create_graph, strict)
    outputs, results = _finish(outputs, create_graph), _finish(results, create_graph)
    return outputs if outputs_tuple else outputs[0], results if was_tuple else results[0]


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """-> (outputs of func, its Jacobian times the vector v), by differentiating twice backward."""
    with wisp.enable_grad():
        was_tuple, inputs, outputs_tuple, outputs = _run(func, inputs, create_graph, "jvp")
        _check_strict(outputs, strict)
        v = _vectors(v, inputs, was_tuple, True, "jvp")
        # the gradient is linear in its weights; its own gradient with respect to them is the product
        weights = tuple(wisp.zeros_like(output, requires_grad=True) for output in outputs)
        gradients = _gradients(outputs, inputs, weights, True, strict)
        results = _gradients(gradients, weights, v, create_graph)
        _check_jacobian(results, create_graph, strict)
    outputs, results = _finish(outputs, create_graph), _finish(results, create_graph)
    return outputs if outputs_tuple else outputs[0], results if outputs_tuple else results[0]


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian: for each output and input a tensor of shape (*output.shape, *input.shape)."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. "
            "Please either set `strict=False` or `vectorize=False`."
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                "torch.autograd.functional.jacobian: `create_graph=True` and "
                '`strategy="forward-mode"` are not supported together (yet). Please either set '
                '`create_graph=False` or `strategy="reverse-mode"`.'
            )
        if not has_shells([inputs] if isinstance(inputs, wisp.Tensor) else inputs):
            return _forward_jacobian(func, inputs, strict)
        # what holds its values in other tensors cannot carry a batch of tangents; backward has the same result
    from wisp.func._derivatives import rows_of_jacobian

    with wisp.enable_grad():
        was_tuple, inputs, outputs_tuple, outputs = _run(func, inputs, create_graph, "jacobian")
        _check_strict(outputs, strict)
        rows = []
        for number, output in enumerate(outputs):
            if strict and output.numel():  # all elements of an output have the same graph
                what = f"Output {number} of the user-provided function"
                parts = _gradients([output], inputs, [wisp.ones_like(output)], create_graph, strict, what)
                _check_jacobian(parts, create_graph, strict)
            rows.append(tuple(rows_of_jacobian(output, inputs, create_graph)))
    rows = [_finish(row, create_graph) for row in rows]
    rows = tuple(row if was_tuple else row[0] for row in rows)
    return rows if outputs_tuple else rows[0]


def _forward_jacobian(func, inputs, strict):
    if strict:
        raise RuntimeError(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not '
            "supported together (yet). Please either set `strict=False` or "
            '`strategy="reverse-mode"`.'
        )
    was_tuple, inputs = _as_tuple(inputs, "inputs", "jacobian")
    outputs_tuple = True

    def checked(*points):
        nonlocal outputs_tuple
        outputs_tuple, outputs = _as_tuple(func(*points), "outputs of the user-provided function", "jacobian")
        return outputs

    rows = wisp.func.jacfwd(checked, tuple(range(len(inputs))))(*[x.detach() for x in inputs])
    rows = tuple(_finish(row if was_tuple else row[:1], False) for row in rows)
    rows = rows if was_tuple else tuple(row[0] for row in rows)
    return rows if outputs_tuple else rows[0]


def _scalar(func, name):
    def scalar(*inputs):
        output = func(*inputs)
        was_tuple, outputs = _as_tuple(output, "outputs of the user-provided function", name)
        if was_tuple:
            raise RuntimeError(f"The function given to {name} should return a single Tensor")
        if output.numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
        return output.view(())

    return scalar


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The Hessian of a function with a single number as output: for each pair of inputs a tensor."""
    was_tuple, inputs = _as_tuple(inputs, "inputs", "hessian")
    scalar = _scalar(func, "hessian")

    def gradient(*points):
        # in forward mode the points carry tangents but start no graph
        points = tuple(x if x.requires_grad else _core._without_graph(x).requires_grad_() for x in points)
        output = scalar(*points)
        _check_strict([output], strict)
        results = _gradients([output], points, [wisp.ones((), dtype=points[0].dtype, device=points[0].device)], True)
        _check_dependence(results, strict)
        return results

    rows = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return rows if was_tuple else rows[0][0]


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """-> (output of func, the vector v times its Hessian)."""
    with wisp.enable_grad():
        was_tuple, inputs, _, outputs = _run(_scalar(func, "vhp"), inputs, create_graph, "vhp")
        _check_strict(outputs, strict)
        v = _vectors(v, inputs, was_tuple, True, "vhp")
        gradients = _gradients(outputs, inputs, [wisp.ones_like(outputs[0])], True, strict)
        _check_dependence(gradients, strict)
        results = _gradients(gradients, inputs, v, create_graph, strict)
    outputs, results = _finish(outputs, create_graph), _finish(results, create_graph)
    return outputs[0], results if was_tuple else results[0]


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """-> (output of func, its Hessian times the vector v). The Hessian is symmetric: `vhp` is the same and cheaper."""
    with wisp.enable_grad():
        was_tuple, inputs, _, outputs = _run(_scalar(func, "hvp"), inputs, create_graph, "hvp")
        _check_strict(outputs, strict)
        v = _vectors(v, inputs, was_tuple, True, "hvp")
        gradients = _gradients(outputs, inputs, [wisp.ones_like(outputs[0])], True, strict)
        _check_dependence(gradients, strict)
        weights = tuple(wisp.zeros_like(x, requires_grad=True) for x in inputs)
        doubled = _gradients(gradients, inputs, weights, True, strict)
        results = _gradients(doubled, weights, v, create_graph)
    outputs, results = _finish(outputs, create_graph), _finish(results, create_graph)
    return outputs[0], results if was_tuple else results[0]


_reference.attach(__name__, globals())
