"""vmap: a function of one sample applied to a whole batch. See _batching.py for what happens inside."""

import functools
import threading

import wisp
from wisp.func import _batching
from wisp.utils import _pytree
from wisp.utils._pytree import tree_unflatten

_RANDOMNESS = ("error", "different", "same")


def is_whole(value):
    """Whether a value is mapped by methods of its own, with all tensors in it (a TensorDict), and not part by part."""
    return hasattr(type(value), "_add_batch_dim") and hasattr(type(value), "_maybe_remove_batch_dim")


def tree_flatten(tree, is_leaf=is_whole):
    return _pytree.tree_flatten(tree, is_leaf=is_leaf)


def add_batch_dim(tensor, in_dim, level):
    """A tensor as one sample of the vmap with this number, its batch being `in_dim`."""
    sample = _batching.wrapped(tensor if in_dim == 0 else tensor.movedim(in_dim, 0), level)
    sample._given = tensor, in_dim % tensor.dim(), sample._physical
    return sample


def remove_batch_dim(tensor, level, batch_size, out_dim):
    """All samples of the vmap with this number, the batch at `out_dim`."""
    physical = _batching.physical_of(tensor, _batching.levels()[level - 1])
    given = tensor._given if _batching.is_batched(tensor, level) else None
    if given and out_dim in (given[1], given[1] - given[0].dim()) and given[2] is physical:  # what was given is returned as it is
        return given[0]
    return physical.movedim(0, out_dim) if out_dim else physical


def maybe_remove_batch_dim(name, output, level, batch_size, out_dim):
    """All samples of what a function returned; with `out_dim` None, what is the same for all of them."""
    if out_dim is None:
        if _batching.is_batched(output, level):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return output
    if not isinstance(output, wisp.Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(output)}. "
            "Did you mean to set out_dims= to None for output?"
        )
    return remove_batch_dim(output, level, batch_size, out_dim)


def _spread(dims, tree, where):
    """`dims` (a number, None, or a tree of these that begins like `tree`) for each leaf of `tree`."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree_flatten(tree)[0])
    alike = isinstance(dims, (list, tuple)) and isinstance(tree, (list, tuple)) and isinstance(dims, list) == isinstance(tree, list)
    if alike and len(dims) == len(tree):
        return [d for part, branch in zip(dims, tree) for d in _spread(part, branch, where)]
    if isinstance(dims, dict) and isinstance(tree, dict) and dims.keys() == tree.keys():
        return [d for key in tree for d in _spread(dims[key], tree[key], where)]
    raise ValueError(where())


def _name(func):
    return getattr(func, "__name__", repr(func))


def _inputs(func, in_dims, args):
    """Leaves of the arguments, their structure, their dims, and the size of the batch."""
    call = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if isinstance(in_dims, bool) or not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"{call}: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no "
            "inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    dims = _spread(
        in_dims,
        args,
        lambda: (
            f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        ),
    )
    sizes = []
    for i, (leaf, dim) in enumerate(zip(leaves, dims)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None.")
        if not (isinstance(leaf, wisp.Tensor) or is_whole(leaf)):
            raise ValueError(
                f"{call}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -leaf.dim() <= dim < leaf.dim():
            raise ValueError(
                f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.dim()} "
                f"so expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}."
            )
        dims[i] = dim % leaf.dim()
        sizes.append(leaf.shape[dim])
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension"
        )
    return leaves, spec, dims, sizes[0]


def _outputs(func, result, out_dims, level):
    """The results of func with the batch at the dimensions that out_dims says."""
    parts, structure = tree_flatten(result)
    call = f"vmap({_name(func)}, ..., out_dims={out_dims})"
    if not (out_dims is None or isinstance(out_dims, (int, tuple, list, dict))):
        raise ValueError(
            f"{call}: `out_dims` must be an int, None or a python collection of ints representing where in the "
            "outputs the vmapped dimension should appear."
        )
    if not all(place is None or isinstance(place, int) for place in tree_flatten(out_dims, is_leaf=lambda x: x is None)[0]):
        raise ValueError(f"{call}: `out_dims` must be an int, None or a python collection of ints")
    one = isinstance(out_dims, (tuple, list)) and len(out_dims) == 1 and (isinstance(result, wisp.Tensor) or is_whole(result))
    places = _spread(
        out_dims[0] if one else out_dims,
        result,
        lambda: (
            f"{call}(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has structure "
            f"{tree_flatten(out_dims)[1]} but outputs has structure {structure}."
        ),
    )
    outputs = []
    for part, place in zip(parts, places):
        if is_whole(part):
            part = part._maybe_remove_batch_dim(_name(func), vmap_level=level.number, batch_size=level.size, out_dim=place)
        else:
            part = maybe_remove_batch_dim(_name(func), part, level.number, level.size, place)
        outputs.append(part)
    return outputs, places, structure


def _mapped(func, leaves, spec, dims, size, out_dims, randomness, kwargs):
    with _batching.entered(size, randomness) as level:
        samples = [
            leaf
            if dim is None
            else leaf._add_batch_dim(in_dim=dim, vmap_level=level.number)
            if is_whole(leaf)
            else add_batch_dim(leaf, dim, level.number)
            for leaf, dim in zip(leaves, dims)
        ]
        return _outputs(func, func(*tree_unflatten(samples, spec), **kwargs), out_dims, level)


def _is_ragged(leaf):
    return isinstance(leaf, wisp.Tensor) and leaf.is_nested and leaf.layout == wisp.strided


_ragged = threading.local()  # whether a vmap over parts is running


def _over_parts(func, in_dims, out_dims, args, kwargs):
    """vmap over nested tensors, whose samples have shapes of their own: one after another, and the results are parts of nested tensors."""
    leaves, spec = tree_flatten(args)
    dims = _spread(in_dims, args, lambda: f"vmap({_name(func)}, in_dims={in_dims}): in_dims does not have the structure of the inputs")
    if any(_is_ragged(leaf) and dim not in (0, None) for leaf, dim in zip(leaves, dims)) or out_dims != 0:
        raise RuntimeError(f"Nested tensors can only be vmapped over dim=0, but got in_dims={in_dims}, out_dims={out_dims}")
    if any(dim not in (0, None) for dim in dims):
        raise RuntimeError(f"Fallback not supported for mixed nested / non-nested arguments without bdim=0, got in_dims={in_dims}")
    mapped = [leaf.unbind() if dim == 0 else None for leaf, dim in zip(leaves, dims)]
    size = max((len(parts) for parts in mapped if parts is not None), default=0)
    if not size or any(parts is not None and len(parts) != size for parts in mapped):
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped dimension, which must not be 0")
    _ragged.running = True
    try:
        results = [
            func(*tree_unflatten([leaf if parts is None else parts[i] for leaf, parts in zip(leaves, mapped)], spec), **kwargs)
            for i in range(size)
        ]
    finally:
        _ragged.running = False
    flat = [tree_flatten(result) for result in results]
    joined = [wisp.nested.as_nested_tensor(list(parts), layout=wisp.strided) for parts in zip(*(parts for parts, _ in flat))]
    return tree_unflatten(joined, flat[0][1])


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """A function that applies `func` to each slice of its inputs along `in_dims` and stacks the results at `out_dims`.

    Inside of it tensors look like one sample and operators work on the whole batch at once; an operator that has no rule
    for that is applied to one sample after another. `randomness` says what random numbers do: "error", the "same" ones for
    all samples, or "different" ones. `chunk_size` bounds how many samples are computed at once.

    >>> import wisp
    >>> wisp.vmap(wisp.dot)(wisp.ones(2, 3), wisp.arange(6.0).reshape(2, 3))
    tensor([ 3., 12.])
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        if getattr(_ragged, "running", False):
            raise RuntimeError("Only one level of vmap is supported when vmapping over nested tensors")
        if any(_is_ragged(leaf) for leaf in tree_flatten(args)[0]):
            return _over_parts(func, in_dims, out_dims, args, kwargs)
        leaves, spec, dims, size = _inputs(func, in_dims, args)
        if chunk_size is None or chunk_size >= size:
            parts, _, structure = _mapped(func, leaves, spec, dims, size, out_dims, randomness, kwargs)
            return tree_unflatten(parts, structure)
        state = wisp.get_rng_state() if randomness == "same" else None
        chunks = []
        for start in range(0, size, chunk_size):
            count = min(chunk_size, size - start)
            piece = [leaf if dim is None else leaf.narrow(dim, start, count) for leaf, dim in zip(leaves, dims)]
            if state is not None:
                wisp.set_rng_state(state)
            parts, places, structure = _mapped(func, piece, spec, dims, count, out_dims, randomness, kwargs)
            chunks.append(parts)
        joined = [parts[0] if place is None else wisp.cat(parts, place) for parts, place in zip(zip(*chunks), places)]
        return tree_unflatten(joined, structure)

    return wrapped
