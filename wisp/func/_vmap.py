"""vmap: a function of one sample applied to each sample of a batch, one after another, and the results stacked."""

import functools

import wisp
from wisp import _core
from wisp.utils._pytree import tree_flatten, tree_unflatten

_RANDOMNESS = ("error", "different", "same")


def _spread(dims, tree, where):
    """`dims` (a number, None, or a tree of these that begins like `tree`) for each leaf of `tree`."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree_flatten(tree)[0])
    if isinstance(dims, (list, tuple)) and isinstance(tree, (list, tuple)) and len(dims) == len(tree):
        return [d for part, branch in zip(dims, tree) for d in _spread(part, branch, where)]
    if isinstance(dims, dict) and isinstance(tree, dict) and dims.keys() == tree.keys():
        return [d for key in tree for d in _spread(dims[key], tree[key], where)]
    raise ValueError(where())


def _name(func):
    return getattr(func, "__name__", repr(func))


def _inputs(func, in_dims, args):
    """Leaves of the arguments, their structure, their dims, and the size of the batch."""
    call = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple, list)):
        raise ValueError(
            f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
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
        lambda: f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
        f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}.",
    )
    sizes = []
    for i, (leaf, dim) in enumerate(zip(leaves, dims)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(
                f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
            )
        if not isinstance(leaf, wisp.Tensor):
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
        raise ValueError(f"{call}: at least one input must be mapped over: all in_dims are None")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    return leaves, spec, dims, sizes[0]


class _Randomness:
    """What drawing random numbers means inside: an error, the same for each sample, or a draw per sample."""

    def __init__(self, kind):
        self.kind, self.start = kind, _core.default_generator.get_state() if kind != "different" else None

    def before(self):
        if self.kind == "same":
            _core.default_generator.set_state(self.start)

    def after(self):
        if self.kind == "error" and not wisp.equal(_core.default_generator.get_state(), self.start):
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """A function that applies `func` to each slice of its inputs along `in_dims` and stacks the results at `out_dims`.

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
        leaves, spec, dims, count = _inputs(func, in_dims, args)
        mapped = [i for i, dim in enumerate(dims) if dim is not None]
        extra, extra_spec = tree_flatten(kwargs)  # keyword arguments are mapped along dimension 0
        extra_mapped = [i for i, value in enumerate(extra) if isinstance(value, wisp.Tensor)]
        if count == 0:
            raise ValueError("vmap: cannot map over a batch of size 0")
        draws = _Randomness(randomness)
        columns, structure = [], None
        for k in range(count):
            sample, named = list(leaves), list(extra)
            for i in mapped:
                sample[i] = leaves[i].select(dims[i], k)
            for i in extra_mapped:
                named[i] = extra[i].select(0, k)
            draws.before()
            result = func(*tree_unflatten(sample, spec), **tree_unflatten(named, extra_spec))
            draws.after()
            parts, structure = tree_flatten(result)
            for part in parts:
                if not isinstance(part, wisp.Tensor):
                    raise ValueError(
                        f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(part)}. "
                        "Did you mean to set out_dims= to None for output?"
                    )
            columns.append(parts)
        template = tree_unflatten(columns[0], structure)
        places = _spread(
            out_dims,
            template,
            lambda: f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the "
            f"structure of `outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure "
            f"{structure}.",
        )
        stacked = [
            column[0] if place is None else wisp.stack(column, place) for column, place in zip(zip(*columns), places)
        ]
        return tree_unflatten(stacked, structure)

    return wrapped
