"""Derivatives of functions, on top of the backward graph.

A transform runs the function on tracked copies of its inputs. An input that an outer transform (or plain autograd)
already tracks stays connected to it, which is what makes transforms nest: an inner transform records its own
backward pass whenever somebody outside may differentiate it.
"""

import contextlib
import functools
import threading

import wisp
from wisp import _core
from wisp._tensor.dispatch import is_shell
from wisp._tensor.holder import Holder
from wisp.autograd import forward_ad
from wisp.autograd import grad as _autograd_grad
from wisp.autograd.function import transform
from wisp.autograd.graph import recording_transforms
from wisp.func import _batching
from wisp.func._vmap import vmap
from wisp.utils._pytree import tree_flatten, tree_map, tree_unflatten

_state = threading.local()


class _Level:
    """One transform that is running; `inside` says whether another one is around it."""

    def __enter__(self):
        recording_transforms(1)
        self.outer_mode = wisp.is_grad_enabled()
        _state.depth = getattr(_state, "depth", 0) + 1
        self.inside = _state.depth > 1
        self.normal = _normal_mode()
        self.normal.__enter__()
        self.transform = transform()
        self.transform.__enter__()
        self.enable = wisp.enable_grad()
        self.enable.__enter__()
        return self

    def __exit__(self, *error):
        _state.depth -= 1
        recording_transforms(-1)
        self.transform.__exit__(*error)
        self.enable.__exit__(*error)
        self.normal.__exit__(*error)

    def records(self, outputs, own):
        """Whether the derivatives of outputs may be differentiated from outside."""
        return self.outer_mode and self.reaches_others(outputs, own)

    def reaches_others(self, outputs, own):
        return self.inside or _reaches_others(outputs, own)


def _normal_mode():
    return wisp.inference_mode(False) if wisp.is_inference_mode_enabled() else contextlib.nullcontext()


def _reaches_others(outputs, own):
    """Whether the graph of the outputs has leaves that are not the transform's own."""
    own = {id(t._held if isinstance(t, Holder) else _batching.innermost(t)) for t in own}
    outputs = [_batching.innermost(t) for t in outputs]
    waiting = [t.grad_fn for t in outputs if t.grad_fn is not None]
    if any(t.grad_fn is None and t.requires_grad and id(t) not in own for t in outputs):
        return True
    seen = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in own:
            return True
        waiting.extend(following for following, _ in node.next_functions if following is not None)
    return False


def _differentiable(value):
    return isinstance(value, wisp.Tensor) and (value.is_floating_point() or value.is_complex())


def _dispatched(tensor):
    return hasattr(type(tensor), "__torch_dispatch__") and is_shell(tensor)


def _without_graph(tensor):
    """The tensor as a leaf that keeps its tangents; one of a class that dispatches, or a sparse one, remains of it."""
    return tensor.detach() if tensor.layout is not wisp.strided or _dispatched(tensor) else _core._without_graph(tensor)


def _track(tree):
    """The tree with its tensors as new points of the graph, and a list of these."""
    leaves, spec = tree_flatten(tree)
    tracked = []
    for i, leaf in enumerate(leaves):
        if _differentiable(leaf):
            leaf = leaf.clone() if leaf.is_inference() else leaf
            leaf = _batching.expanded(leaf)  # inside of vmap gradients are those of each sample
            leaves[i] = leaf.view_as(leaf) if leaf.requires_grad else _without_graph(leaf).requires_grad_()
            tracked.append(leaves[i])
        elif isinstance(leaf, wisp.Tensor):
            raise RuntimeError(f"only Tensors of floating point dtype can require gradients, got {leaf.dtype}")
    return tree_unflatten(leaves, spec), tracked, (leaves, spec)


def _own(tracked):
    return [t for t in tracked if t.grad_fn is None]


def _released(tree, keep):
    """Results as the caller sees them: cut off from a graph that only the transform knows."""
    return tree if keep else tree_map(lambda t: _without_graph(t) if isinstance(t, wisp.Tensor) else t, tree)


def _gradients(outputs, inputs, weights, create_graph, retain_graph=None):
    """Gradients with zeros where there is no dependence."""
    pairs = [(o, w) for o, w in zip(outputs, weights) if o.requires_grad]
    if not pairs:
        return [wisp.zeros_like(t) for t in inputs]
    found = _autograd_grad(
        [o for o, _ in pairs], inputs, [w for _, w in pairs], retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
    )
    return [wisp.zeros_like(t) if g is None else g for g, t in zip(found, inputs)]


def _argnums(argnums, count, name):
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"{name}: argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    chosen = (argnums,) if isinstance(argnums, int) else argnums
    if not chosen:
        raise RuntimeError("argnums must be non-empty")
    for n in chosen:
        if not isinstance(n, int):
            raise RuntimeError(f"{name}: argnums must be int or Tuple[int, ...], got: {argnums}: its elements must be int")
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    wrapped = tuple(n % count for n in chosen)
    if len(set(wrapped)) < len(wrapped):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return wrapped


def _replaced(args, argnums, values):
    args = list(args)
    for n, value in zip(argnums, values):
        args[n] = value
    return args


def slice_argnums(args, argnums, as_tuple=True):
    """The arguments with these numbers."""
    chosen = _argnums(argnums, len(args), "argnums")
    return tuple(args[n] for n in chosen) if as_tuple or not isinstance(argnums, int) else args[chosen[0]]


def _with_aux(result, has_aux, call):
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{call}: output of function f should be a tuple: (output, aux) if has_aux is True")
    for leaf in tree_flatten(result[1])[0]:
        if not isinstance(leaf, wisp.Tensor):
            raise RuntimeError(f"{call}: Expected tensors, got unsupported type {type(leaf)}")
    return result


def _tensors(tree, call):
    leaves, spec = tree_flatten(tree)
    if not leaves or tree is None:
        raise RuntimeError(f"{call}: Expected f to be a function that has non-empty output")
    for leaf in leaves:
        if not isinstance(leaf, wisp.Tensor):
            raise RuntimeError(f"{call}: expected f(*primals) to return only tensors, got unsupported type {type(leaf)}")
    return leaves, spec


def grad_and_value(func, argnums=0, has_aux=False):
    """A function of (gradient of func, value of func); with `has_aux` the value is (output, aux)."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen = _argnums(argnums, len(args), "grad")
        with _Level() as level:
            trees, tracked, _ = _track(tuple(args[n] for n in chosen))
            output, aux = _with_aux(func(*_replaced(args, chosen, trees), **kwargs), has_aux, "grad_and_value(f)(*args)")
            if not isinstance(output, wisp.Tensor):
                raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a tensor, got {type(output)}")
            if output.dim() != 0:
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got tensor with "
                    f"{output.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            keep = level.records([output], _own(tracked))
            found = iter(_gradients([output], tracked, [wisp.ones_like(output)], keep))
        gradients = tree_map(lambda t: next(found) if _differentiable(t) else t, trees)
        gradients = gradients[0] if isinstance(argnums, int) else gradients
        output, aux = _released(output, keep), _released(aux, keep)
        return _released(gradients, keep), (output, aux) if has_aux else output

    return wrapper


def grad(func, argnums=0, has_aux=False):
    """The function that computes the gradient of func, which returns one number, with respect to some arguments."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper


def vjp(func, *primals, has_aux=False):
    """-> (func(*primals), a function of cotangents that multiplies them with the Jacobian[, aux])."""
    with _Level() as level:
        trees, tracked, _ = _track(primals)
        output, aux = _with_aux(func(*trees), has_aux, "vjp(f, *primals)")
        outputs, spec = _tensors(output, "vjp(f, *primals)")
        others = level.reaches_others(outputs, _own(tracked))
        keep = level.outer_mode and others  # the grad mode of now is that of the outputs, the one of vjp_fn's call that of its results

    def vjp_fn(cotangents, retain_graph=True, create_graph=None):
        weights, given = tree_flatten(cotangents)
        if given != spec:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given}, primal output: {spec}"
            )
        create = others or any(w.requires_grad for w in weights) if create_graph is None else create_graph
        create = create and wisp.is_grad_enabled()
        found = iter(_gradients(outputs, tracked, weights, create, retain_graph))
        products = tree_map(lambda t: next(found) if _differentiable(t) else t, trees)
        return _released(products, create)

    output = _released(output, keep)
    return (output, vjp_fn, _released(aux, keep)) if has_aux else (output, vjp_fn)


def _forward(outputs, tracked):
    """A function of tangents that gives the Jacobian times them: the gradient of the gradient by its weights."""
    weights = [wisp.zeros_like(o, requires_grad=True) for o in outputs]
    gradients = _gradients(outputs, tracked, weights, True)

    def product(tangents, create_graph):
        return _gradients(gradients, weights, tangents, create_graph, True)

    return product


def _check_tangents(primals, tangents):
    for p, t in zip(primals, tangents):
        if p.shape != t.shape:
            raise RuntimeError(
                f"jvp: Expected tangents to have the same shape as primals, got {list(t.shape)} for a primal of shape {list(p.shape)}"
            )


def _flat_tensors(tree, what, name):
    leaves, spec = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, wisp.Tensor):
            raise RuntimeError(f"{name}: Expected {what} to only contain Tensors, got {type(leaf)}")
    if not leaves:
        raise RuntimeError(f"{name}: Expected {what} to contain at least one Tensor.")
    return leaves, spec


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """-> (func(*primals), the Jacobian times the tangents[, aux]), in one pass forward.

    >>> import wisp
    >>> wisp.func.jvp(wisp.sin, (wisp.tensor(0.0),), (wisp.tensor(2.0),))
    (tensor(0.), tensor(2.))
    """
    call = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{call}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    points, structure = _flat_tensors(primals, "primals", call)
    directions, given = tree_flatten(tangents)
    if given != structure:
        raise RuntimeError(
            f"{call}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {structure} and tangents with "
            f"structure {given}"
        )
    _flat_tensors(tangents, "tangents", call)
    try:
        return _pushed(func, points, directions, structure, strict, has_aux, call)
    except _batching.NotOneSample:
        level = max((t._level for t in directions if isinstance(t, _batching.BatchedTensor)), default=0)
        if not level or any(_batching.is_batched(p, level) for p in points):
            raise
    return _pushed_through_graph(func, points, directions, structure, level, strict, has_aux, call)


def _refuse_independent():
    raise RuntimeError(
        "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with strict=True."
    )


def _pushed(func, points, directions, structure, strict, has_aux, call):
    with _normal_mode(), forward_ad._set_fwd_grad_enabled(True), forward_ad.dual_level() as level, transform():
        points, directions = ([t.clone() if t.is_inference() else t for t in ts] for ts in (points, directions))
        directions = [t.clone() if t.requires_grad and t.is_leaf else t for t in directions]  # a Function's jvp may write to them
        duals = [forward_ad.make_dual(p, t, level=level) for p, t in zip(points, directions)]
        output, aux = _with_aux(func(*tree_unflatten(duals, structure)), has_aux, call)
        outputs, spec = _tensors(output, call)
        parts = [forward_ad.unpack_dual(out, level=level) for out in outputs]
        if strict and any(part.tangent is None for part in parts):
            _refuse_independent()
        products = [wisp.zeros_like(p) if t is None else t for p, t in parts]
        aux = tree_map(lambda t: forward_ad.unpack_dual(t, level=level).primal if isinstance(t, wisp.Tensor) else t, aux)
    result = tree_unflatten([part.primal for part in parts], spec), tree_unflatten(products, spec)
    return (*result, aux) if has_aux else result


def _pushed_through_graph(func, points, directions, structure, mapped, strict, has_aux, call):
    """The same where vmap goes over the tangents alone, and the function looks at values or writes to tensors of its own: it runs on the
    one primal that there is, and the tangents go through its graph."""
    with _Level() as level:
        with _batching.left_out(mapped):
            trees, tracked, _ = _track(tree_unflatten(points, structure))
            output, aux = _with_aux(func(*trees), has_aux, call)
        outputs, spec = _tensors(output, call)
        if strict and not all(out.requires_grad for out in outputs):
            _refuse_independent()
        keep = level.records(outputs, _own(tracked)) or any(t.requires_grad for t in directions)
        products = _forward(outputs, tracked)(directions, keep)
    result = _released(output, keep), _released(tree_unflatten(products, spec), keep)
    return (*result, _released(aux, keep)) if has_aux else result


def linearize(func, *primals):
    """-> (func(*primals), a function of tangents that gives the Jacobian at primals times them)."""
    with _Level() as level:
        trees, tracked, _ = _track(primals)
        output = func(*trees)
        outputs, spec = _tensors(output, "linearize(f, *primals)")
        keep = level.records(outputs, _own(tracked))
        product = _forward(outputs, tracked)

    def jvp_fn(*tangents):
        directions = tree_flatten(tangents)[0]
        _check_tangents(tracked, directions)
        return _released(tree_unflatten(product(directions, keep), spec), keep)

    return _released(output, keep), jvp_fn


def rows_of_jacobian(output, inputs, create_graph, chunk_size=None):
    """The derivatives of all elements of output: (*output.shape, *input.shape) for each input.

    A backward pass takes the gradients of many elements at once: `chunk_size`, or as many as fit into caches.
    """
    count, shapes = output.numel(), [[*output.shape, *t.shape] for t in inputs]
    if not count or not output.requires_grad:
        return [t.new_zeros(shape) for t, shape in zip(inputs, shapes)]
    if chunk_size is None:
        chunk_size = max(1, (1 << (18 if output.device.type == "cpu" else 24)) // max(count, *(t.numel() for t in inputs)))
    chunks = []
    for start in range(0, count, chunk_size):
        rows = min(chunk_size, count - start)
        weights = wisp.zeros(rows, count, dtype=output.dtype, device=output.device)
        weights.diagonal(start).fill_(1)
        weights = weights.reshape(rows, *output.shape)
        if any(map(_dispatched, (output, *inputs))):  # their operators are the class's, which knows no batches of gradients
            found = [
                _autograd_grad([output], inputs, [w], retain_graph=True, create_graph=create_graph, allow_unused=True) for w in weights
            ]
            chunks.append([None if grads[0] is None else wisp.stack(grads) for grads in zip(*found)])
        else:
            chunks.append(_core._grad_of_batch([output], [weights], inputs, True, create_graph, True))
    made = []
    for parts, t, shape in zip(zip(*chunks), inputs, shapes):
        whole = parts[0] if len(parts) == 1 or parts[0] is None else wisp.cat(parts)
        made.append(t.new_zeros(shape) if whole is None else whole.reshape(shape))
    return made


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """The function that computes the Jacobian of func: (*output.shape, *input.shape) for each pair."""
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen = _argnums(argnums, len(args), "jacrev")
        _real(tree_flatten(tuple(args[n] for n in chosen))[0], "jacrev", "inputs")
        with _Level() as level:
            trees, tracked, (leaves, structure) = _track(tuple(args[n] for n in chosen))
            output, aux = _with_aux(func(*_replaced(args, chosen, trees), **kwargs), has_aux, "vjp(f, *primals)")
            outputs, spec = _tensors(output, "vjp(f, *primals)")
            _real(outputs, "jacrev", "outputs")
            keep = level.records(outputs, _own(tracked))
            jacobians = []
            for out in outputs:
                blocks = iter(rows_of_jacobian(out, tracked, keep, chunk_size))
                tree = tree_unflatten([next(blocks) if _differentiable(t) else t for t in leaves], structure)
                jacobians.append(tree[0] if isinstance(argnums, int) else tree)
        result = _released(tree_unflatten(jacobians, spec), keep)
        return (result, _released(aux, keep)) if has_aux else result

    return wrapper


def _real(tensors, name, what):
    for tensor in tensors:
        if isinstance(tensor, wisp.Tensor) and tensor.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened {what[:-1]}: derivatives of complex "
                "values are no matrices of them"
            )


def _unit_vectors(points):
    """Tangents for each point: a batch over all elements of all points, one at its own element and zero elsewhere."""
    total, first, batches = sum(p.numel() for p in points), 0, []
    for point in points:
        batch = wisp.zeros(total, point.numel(), dtype=point.dtype, device=point.device)
        batch.diagonal(-first).fill_(1)
        batches.append(batch.reshape(total, *point.shape))
        first += point.numel()
    return batches


def jacfwd(func, argnums=0, has_aux=False, *, chunk_size=None, randomness="error"):
    """The function that computes the Jacobian of func, as `jacrev` does, by forward mode for all input elements at once.

    >>> import wisp
    >>> wisp.func.jacfwd(wisp.square)(wisp.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen = _argnums(argnums, len(args), "jacfwd")
        points, structure = _flat_tensors(tuple(args[n] for n in chosen), "its arguments", "jacfwd(f)")
        _real(points, "jacfwd", "inputs")

        def of_points(*values):
            return func(*_replaced(args, chosen, tree_unflatten(values, structure)), **kwargs)

        def push(*tangents):
            return jvp(of_points, tuple(points), tangents, has_aux=has_aux)[1:]

        if any(p.numel() for p in points):
            out_dims = (-1, 0) if has_aux else (-1,)
            result = vmap(push, 0, out_dims, randomness, chunk_size=chunk_size)(*_unit_vectors(points))
            columns, spec = tree_flatten(result[0])
            _real(columns, "jacfwd", "outputs")
            aux = tree_map(lambda t: t[0], result[1]) if has_aux else None  # all samples have the same
        else:
            output, aux = _with_aux(of_points(*points), has_aux, "jvp(f, primals, tangents)")
            columns, spec = tree_flatten(output)
            columns = [out.new_zeros([*out.shape, 0]) for out in columns]
        jacobians = []
        for column in columns:
            parts = column.split([p.numel() for p in points], -1)
            blocks = [part.reshape([*part.shape[:-1], *p.shape]) for part, p in zip(parts, points)]
            tree = tree_unflatten(blocks, structure)
            jacobians.append(tree[0] if isinstance(argnums, int) else tree)
        result = tree_unflatten(jacobians, spec)
        return (result, aux) if has_aux else result

    return wrapper


def hessian(func, argnums=0):
    """The function that computes the second derivatives of func: forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)
