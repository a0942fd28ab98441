"""Batched tensors: what a function sees inside of vmap, and the rules by which operators work on a whole batch.

A BatchedTensor looks like one sample: its shape, dtype and so on are a sample's. The values of all samples are in
`_physical`, with the batch as first dimension (which may be a BatchedTensor of an outer vmap). The argument parser sends
every operator that is called with one to `_call`, which looks for a rule here; an operator without one is applied to one
sample after another. Rules compute with operators on the physical tensors, so derivatives need no rules of their own.
"""
import contextlib
import threading
from types import SimpleNamespace

import wisp
from wisp import _core

Tensor = wisp.Tensor
_state = threading.local()


class Level:
    """A vmap that is running: how many samples, and what random numbers mean."""

    def __init__(self, number, size, randomness):
        self.number, self.size, self.randomness = number, size, randomness


def levels():
    """The vmaps that run in this thread, outermost first."""
    if not hasattr(_state, "levels"):
        _state.levels = []
    return _state.levels


@contextlib.contextmanager
def entered(size, randomness):
    """Run a vmap."""
    level = Level(len(levels()) + 1, size, randomness)
    levels().append(level)
    _core._batching(1)
    try:
        yield level
    finally:
        _core._batching(-1)
        levels().pop()


def _refuse(what):
    def refuse(self, *args, **kwargs):
        raise RuntimeError(f"vmap: It looks like you're {what} on a Tensor inside of vmap, where it stands for many values. "
                           "Please rewrite it with other operations (for example where() instead of if), or take it out of "
                           "the mapped function.")
    return refuse


class BatchedTensor(Tensor):
    """One sample of a batch, as a function inside of vmap sees it."""

    item = tolist = numpy = __array__ = _refuse("calling .item(), .tolist() or .numpy()")
    data_ptr = _refuse("calling .data_ptr()")
    __bool__ = _refuse("using data-dependent control flow")
    __float__ = __int__ = __index__ = __complex__ = __contains__ = _refuse("converting to a Python number")
    __hash__ = Tensor.__hash__

    requires_grad = property(lambda self: self._physical.requires_grad,
                             lambda self, on: setattr(self._physical, "requires_grad", on))
    grad_fn = property(lambda self: self._physical.grad_fn)
    is_leaf = property(lambda self: self._physical.is_leaf)
    grad = property(lambda self: None if self._physical.grad is None else wrapped(self._physical.grad, self._level))
    data = property(lambda self: self.detach())
    T = property(lambda self: self.permute(*reversed(range(self.dim()))))
    mT = property(lambda self: self.transpose(-2, -1))
    H = property(lambda self: self.transpose(-2, -1).conj() if self.dim() else self)
    mH = property(lambda self: self.transpose(-2, -1).conj())
    real = property(lambda self: _core.real(self))
    imag = property(lambda self: _core.imag(self))

    def requires_grad_(self, requires_grad=True):
        self._physical.requires_grad_(requires_grad)
        return self

    def backward(self, *args, **kwargs):
        raise RuntimeError("backward() inside of vmap is not possible; use wisp.func.grad or wisp.func.vjp")

    def __repr__(self):
        return f"BatchedTensor(lvl={self._level}, bdim=0, value=\n{self._physical!r}\n)"

    def __len__(self):
        return Tensor.__len__(self)

    def __iter__(self):
        if self.dim() == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __getitem__(self, key):
        return _get(self, key)

    def __setitem__(self, key, value):
        _set(self, key, value)

    def __pow__(self, other):
        return _core.pow(self, other)

    def __rpow__(self, other):
        return _core.pow(other, self)

    def __ipow__(self, other):
        return self.pow_(other)


def _operators():
    """Arithmetic and comparisons of Python, by way of the named operators."""
    pairs = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
             "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
             "rshift": "bitwise_right_shift", "matmul": "matmul"}
    for short, name in pairs.items():
        op = getattr(_core, name)
        setattr(BatchedTensor, f"__{short}__", lambda self, other, op=op: op(self, other))
        setattr(BatchedTensor, f"__r{short}__", lambda self, other, op=op: op(other, self))
        if short != "matmul":
            setattr(BatchedTensor, f"__i{short}__", lambda self, other, name=name: getattr(self, name + "_")(other))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(BatchedTensor, f"__{name}__", lambda self, other, op=getattr(_core, name): op(self, other))
    for short, name in {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}.items():
        setattr(BatchedTensor, f"__{short}__", lambda self, op=getattr(_core, name): op(self))


# --- wrapping ------------------------------------------------------------------------------------------------------------

def wrapped(physical, level):
    """The sample that stands for a batch."""
    sample = _core._one_sample(physical)
    sample._physical, sample._level = physical, level
    return sample


def is_batched(value, level):
    return type(value) is BatchedTensor and value._level == level


def physical_of(value, level):
    """All samples of a tensor: expanded, if it is the same for all."""
    if is_batched(value, level.number):
        return value._physical
    return value.expand(level.size, *value.shape)


def expanded(tensor):
    """A tensor as a batched one of every vmap that runs: what derivatives with respect to it need to be per sample."""
    for level in levels():
        if not any(is_batched(t, level.number) for t in _layers(tensor)):
            tensor = _inserted(tensor, level)
    return tensor


def _layers(tensor):
    while type(tensor) is BatchedTensor:
        yield tensor
        tensor = tensor._physical


def _inserted(tensor, level):
    if type(tensor) is BatchedTensor and tensor._level > level.number:
        return wrapped(_inserted(tensor._physical, level), tensor._level)
    return wrapped(physical_of(tensor, level), level.number)


def innermost(tensor):
    """The plain tensor below all vmaps."""
    while type(tensor) is BatchedTensor:
        tensor = tensor._physical
    return tensor


def _wrap(result, level):
    if isinstance(result, Tensor):
        return wrapped(result, level)
    if isinstance(result, (tuple, list)):
        parts = [_wrap(part, level) for part in result]
        return type(result)(parts)
    return result


def _batched_in(value, found):
    if type(value) is BatchedTensor:
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for part in value:
            _batched_in(part, found)


class Call:
    """An operator that is called with batched tensors: `op(**arguments)`."""

    def __init__(self, op, name, inplace, arguments, level):
        self.op, self.name, self.inplace, self.arguments, self.level = op, name, inplace, arguments, level
        self.first = next(iter(arguments))

    @property
    def input(self):
        return self.arguments[self.first]

    def has(self, value):
        return is_batched(value, self.level.number)

    def physical(self, value):
        return physical_of(value, self.level)

    def __call__(self, /, **changes):
        """The operator on physical tensors -> the result as a sample; NotImplemented if an argument was forgotten."""
        arguments = {**self.arguments, **changes}
        left = []
        _batched_in([v for k, v in arguments.items() if k not in changes], left)
        if any(self.has(t) for t in left):
            return NotImplemented
        if arguments.get("out", 0) is None:
            del arguments["out"]
        result = self.op(**arguments)
        return self.input if self.inplace else _wrap(result, self.level.number)


def _call(op, name, form, arguments):
    """Called by the argument parser."""
    name = name[5:] if name.startswith("wisp.") else name
    short = name.rsplit(".", 1)[-1]
    if short in _PLAIN:
        return NotImplemented
    found = []
    _batched_in(list(arguments.values()), found)
    active = levels()
    if not found:
        active = active[: getattr(_state, "drawing", len(active))]  # a draw for all samples of a level: outer ones are left
        return _random(op, name, arguments, active[-1]) if active else NotImplemented
    level = active[max(t._level for t in found) - 1]
    if arguments.get("out") is not None:
        raise RuntimeError(f"vmap: {short}(..., out=) of batched tensors is not possible: use its result")
    inplace = form == 2 or (short.endswith("_") and not short.startswith("_"))
    call = Call(op, name, inplace, arguments, level)
    if inplace and not call.has(call.input):
        raise RuntimeError(
            f"vmap: {short.rstrip('_')}_(self, *extra_args) is not possible because there exists a Tensor `other` in "
            "extra_args that has more elements than `self`. This happened due to `other` being vmapped over but `self` not "
            "being vmapped over in a vmap. Please try to use out-of-place operators instead."
        )
    if short.rstrip("_") in _RANDOM:
        return _random(op, name, arguments, level, call)
    rule = _RULES.get(name.rstrip("_")) or _RULES.get(short.rstrip("_")) if "linalg" not in name else _RULES.get(name)
    result = rule(call) if rule else NotImplemented
    return _one_by_one(call) if result is NotImplemented else result


# --- the loop -----------------------------------------------------------------------------------------------------------

def _sample(value, level, i):
    if is_batched(value, level.number):
        return value._physical.select(0, i)
    if isinstance(value, (tuple, list)):
        return type(value)([_sample(part, level, i) for part in value])
    return value


def _stacked(results, level):
    first = results[0]
    if isinstance(first, Tensor):
        return wrapped(wisp.stack(results), level.number)
    if isinstance(first, (tuple, list)):
        return type(first)([_stacked(part, level) for part in zip(*results)])
    return first


def _one_by_one(call, before=None):
    if call.level.size == 0:
        raise RuntimeError(f"vmap: {call.name} has no rule for a batch of size 0")
    results = []
    for i in range(call.level.size):
        if before:
            before()
        arguments = {k: _sample(v, call.level, i) for k, v in call.arguments.items()}
        if arguments.get("out", 0) is None:
            del arguments["out"]
        results.append(call.op(**arguments))
    return call.input if call.inplace else _stacked(results, call.level)


# --- random numbers -------------------------------------------------------------------------------------------------------

_RANDOM = {"rand_like", "randn_like", "randint_like", "bernoulli", "dropout", "alpha_dropout", "feature_dropout", "normal",
           "uniform", "exponential", "cauchy", "geometric", "log_normal", "random", "poisson", "binomial", "multinomial",
           "rand", "randn", "randint", "randperm", "fractional_max_pool2d", "fractional_max_pool3d"}
_DRAWN_AT_ONCE = {"rand_like", "randn_like", "randint_like", "bernoulli", "dropout", "uniform", "exponential", "cauchy",
                  "geometric", "log_normal", "random", "poisson", "normal"}


def _random(op, name, arguments, level, call=None):
    if arguments.get("training", arguments.get("train", True)) is False:
        return NotImplemented if call is None else call(**{call.first: call.physical(call.input)})
    if level.randomness == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
            "randomness flags on vmap or perform the randomness operation out of vmap"
        )
    if level.randomness == "same" and call is None:
        return NotImplemented
    before, _state.drawing = getattr(_state, "drawing", None), level.number - 1
    try:
        return _drawn(name, arguments, level, call or Call(op, name, False, arguments, level))
    finally:
        if before is None:
            del _state.drawing
        else:
            _state.drawing = before


def _drawn(name, arguments, level, call):
    if level.randomness == "different":
        short = name.rsplit(".", 1)[-1].rstrip("_")
        tensors = [v for v in arguments.values() if isinstance(v, Tensor)]
        if short in _DRAWN_AT_ONCE and len(tensors) == 1 and call.has(call.input):
            return call(**{call.first: call.physical(call.input)})
        if short in ("rand", "randn", "randint") and "size" in arguments:
            return call(size=(level.size, *_ints(arguments["size"])))
        return _one_by_one(call)
    generator = arguments.get("generator") or _core.default_generator
    state = generator.get_state()
    return _one_by_one(call, lambda: generator.set_state(state))


# --- indexing ------------------------------------------------------------------------------------------------------------

def _get(self, key):
    keys = key if isinstance(key, tuple) else (key,)
    level = levels()[self._level - 1]
    found = []
    _batched_in(list(keys), found)
    inner = [t for t in found if t._level > level.number]
    if inner:
        return _indexed_by_samples(self, keys, levels()[max(t._level for t in inner) - 1])
    if any(is_batched(t, level.number) for t in found):
        return _indexed_by_samples(self, keys, level)
    if _advanced_apart(keys):
        return _loop(lambda x: x[key], (self,), level)
    return wrapped(self._physical[(slice(None), *keys)], level.number)


def _advanced_apart(keys):
    """Whether slices separate index tensors: their dimensions would then come before the batch."""
    marks = [isinstance(k, (Tensor, list)) for k in keys if k is not None]
    if sum(marks) == 0:
        return False
    numbers = [isinstance(k, (Tensor, list, int)) and not isinstance(k, bool) for k in keys if k is not None]
    first, last = numbers.index(True), len(numbers) - 1 - numbers[::-1].index(True)
    return not all(numbers[first : last + 1])


def _indexed_by_samples(self, keys, level):
    """x[i] with indices that differ by sample."""
    if all(isinstance(k, Tensor) and not k.is_floating_point() and k.dtype != wisp.bool for k in keys):
        rank = max(k.dim() for k in keys)
        aligned = [_aligned(k, rank, level.number) for k in keys]
        if not is_batched(self, level.number):
            return wrapped(self[tuple(aligned)], level.number)
        rows = wisp.arange(level.size).reshape(level.size, *[1] * rank)
        return wrapped(self._physical[(rows, *aligned)], level.number)
    return _loop(lambda x, *keys: x[keys], (self, *keys), level)


def _loop(function, args, level):
    return _stacked([function(*[_sample(a, level, i) for a in args]) for i in range(level.size)], level)


def _set(self, key, value):
    keys = key if isinstance(key, tuple) else (key,)
    level = levels()[self._level - 1]
    found = []
    _batched_in([*keys, value], found)
    if any(t._level > level.number for t in found):
        raise RuntimeError("vmap: x[...] = value is not possible because value (or the index) is mapped over by a vmap that x "
                           "is not mapped over by; please use out-of-place operators such as where() or index_put().")
    batched_keys = []
    _batched_in(list(keys), batched_keys)
    if any(is_batched(t, level.number) for t in batched_keys) or _advanced_apart(keys):
        for i in range(level.size):
            self._physical[(i, *[_sample(k, level, i) for k in keys])] = _sample(value, level, i)
        return
    if is_batched(value, level.number):
        rank = Tensor.__getitem__(self, key).dim()  # only the shape is used
        value = _aligned(value, rank, level.number) if value.dim() <= rank else value._physical
    self._physical[(slice(None), *keys)] = value


def get_with_batched_index(tensor, key):
    """x[key] of a tensor that is not mapped over, with an index that is."""
    keys = key if isinstance(key, tuple) else (key,)
    found = []
    _batched_in(list(keys), found)
    return _indexed_by_samples(tensor, keys, levels()[max(t._level for t in found) - 1])


# --- autograd.Function ---------------------------------------------------------------------------------------------------

def apply_function(cls, args, kwargs):
    """cls.apply(*args) inside of vmap: by its `vmap(info, in_dims, *args)` if it has one, else one sample after another."""
    found = []
    _batched_in(list(args), found)
    level = levels()[max(t._level for t in found) - 1]
    if not hasattr(cls, "vmap"):
        return _loop(lambda *values: cls.apply(*values, **kwargs), args, level)
    in_dims = tuple(0 if is_batched(a, level.number) else None for a in args)
    values = [a._physical if is_batched(a, level.number) else a for a in args]
    info = SimpleNamespace(batch_size=level.size, randomness=level.randomness)
    result, out_dims = cls.vmap(info, in_dims, *values)

    def put(part, dim):
        return part if dim is None else wrapped(part.movedim(dim, 0), level.number)
    if isinstance(result, Tensor):
        return put(result, out_dims)
    dims = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(result)
    return tuple(put(part, dim) for part, dim in zip(result, dims))


# --- rules ---------------------------------------------------------------------------------------------------------------

# They look at the shape, dtype or kind of a tensor alone.
_PLAIN = {"_one_sample", "_batching", "_set_batching", "is_floating_point", "is_complex", "numel", "is_contiguous",
          "is_same_size", "result_type", "can_cast", "is_conj", "is_neg", "is_signed", "_enter_dual_level", "_exit_dual_level",
          "_hide_tangents", "_autocast_enabled", "_autocast_dtype"}


def _ints(value):
    return (value,) if isinstance(value, int) else tuple(value)


def _wrap_dim(dim, rank):
    low, high = -max(rank, 1), max(rank, 1) - 1
    if not low <= dim <= high:
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return dim % max(rank, 1)


def _aligned(value, rank, level):
    """The physical tensor, with the sample's dimensions at the right as broadcasting wants them."""
    if not is_batched(value, level):
        return value
    physical = value._physical
    missing = rank - value.dim()
    return physical.reshape(physical.shape[0], *[1] * missing, *value.shape) if missing > 0 else physical


def _pointwise(call):
    tensors = {k: v for k, v in call.arguments.items() if isinstance(v, Tensor)}
    rank = max(v.dim() for v in tensors.values())
    if len({v.dtype for v in tensors.values() if v.dtype != wisp.bool}) > 1 and any(v.dim() == 0 for v in tensors.values()):
        return NotImplemented  # a sample without dimensions is weak in promotion, a batch of them is not
    if call.inplace and call.input.dim() < rank:
        return NotImplemented
    return call(**{k: _aligned(v, rank, call.level.number) for k, v in tensors.items()})


def _masked_fill(call):
    input, mask, value = (call.arguments[k] for k in (call.first, "mask", "value"))
    if not isinstance(value, Tensor) or not call.has(value):
        return _pointwise(call)
    return NotImplemented if call.inplace else _core.where(mask, value.to(input.dtype), input)


def _unary(call):
    """Works on the last dimensions, or on each element."""
    return call(**{call.first: call.physical(call.input)})


_MANY_DIMS = {"sum", "mean", "amax", "amin", "var", "std", "nansum", "nanmean", "logsumexp", "all", "any", "count_nonzero",
              "vector_norm", "var_mean", "std_mean"}


def _reduction(call):
    x, short = call.input, call.name.rsplit(".", 1)[-1]
    if isinstance(call.arguments.get("other"), Tensor):
        return _pointwise(call)
    if not call.has(x):
        return NotImplemented
    physical, rank, dim = x._physical, x.dim(), call.arguments.get("dim")
    if rank == 0:
        if call.arguments.get("keepdim") or (dim is not None and short not in _MANY_DIMS):
            return NotImplemented
        physical, rank, dim = physical.unsqueeze(1), 1, None
    if dim is None or dim in ((), []):
        if short in _MANY_DIMS:
            return call(**{call.first: physical, "dim": tuple(range(1, rank + 1))})
        if call.arguments.get("keepdim") or short in ("median", "nanmedian", "aminmax"):
            return NotImplemented
        flat = physical.flatten(1)
        if short in ("max", "min"):
            return wrapped(_core.amax(flat, 1) if short == "max" else _core.amin(flat, 1), call.level.number)
        return call(**{call.first: flat, "dim": 1})
    shifted = tuple(_wrap_dim(d, rank) + 1 for d in _ints(dim))
    return call(**{call.first: physical, "dim": shifted[0] if isinstance(dim, int) else shifted})


def _along(*names, extra=0, others=()):
    """Dimensions are those of a sample: shift them. `others`: further tensors, which get the batch too."""

    def rule(call):
        x = call.input
        if x.dim() == 0 and not extra:
            return NotImplemented
        changes = {call.first: call.physical(x)}
        for name in others:
            if isinstance(call.arguments.get(name), Tensor):
                changes[name] = call.physical(call.arguments[name])
        for name in names:
            dims = call.arguments.get(name)
            if dims is None or dims in ((), []):
                return NotImplemented
            shifted = tuple(_wrap_dim(d, x.dim() + extra) + 1 for d in _ints(dims))
            changes[name] = shifted[0] if isinstance(dims, int) else shifted
        return call(**changes)
    return rule


def _softmax(call):
    if call.arguments.get("dim") is None or call.input.dim() == 0:
        return NotImplemented
    return _along("dim")(call)


def _sized(name):
    """view and relatives: the sizes are those of a sample."""

    def rule(call):
        size = call.arguments.get(name)
        if size is None:  # view(dtype)
            return _unary(call) if call.input.dim() else NotImplemented
        physical, rank = call.physical(call.input), call.input.dim()
        size = _ints(size)
        short = call.name.rsplit(".", 1)[-1]
        if short in ("expand", "broadcast_to", "repeat", "tile"):
            if len(size) < rank and short == "tile":
                size = (1,) * (rank - len(size)) + size
            if len(size) < rank:
                return NotImplemented
            physical = physical.reshape(call.level.size, *[1] * (len(size) - rank), *call.input.shape)
        first = 1 if short in ("repeat", "tile") else call.level.size
        return call(**{call.first: physical, name: (first, *size)})
    return rule


def _like(call):
    """view_as, expand_as, reshape_as: the other tensor is there for its shape."""
    name = call.name.rsplit(".", 1)[-1][:-3]
    return getattr(call.input, name)(tuple(call.arguments["other"].shape))


def _permute(call):
    rank = call.input.dim()
    dims = _ints(call.arguments["dims"])
    if len(dims) != rank:
        return NotImplemented
    return call(**{call.first: call.physical(call.input), "dims": (0, *[_wrap_dim(d, rank) + 1 for d in dims])})


def _squeeze(call):
    dims, shape = call.arguments.get("dim"), call.input.shape
    dims = range(len(shape)) if dims is None else [_wrap_dim(d, len(shape)) for d in _ints(dims)]
    chosen = tuple(d + 1 for d in dims if d < len(shape) and shape[d] == 1)
    physical = call.physical(call.input)
    return wrapped(physical.squeeze(chosen) if chosen else physical.view_as(physical), call.level.number)


def _flatten(call):
    if call.input.dim() == 0:
        return call.input.unsqueeze(0)
    return _along("start_dim", "end_dim")(call)


def _ravel(call):
    return call.input.flatten()


def _transposed(call):
    x = call.input
    return x.transpose(0, 1) if x.dim() == 2 else x.view_as(x)


def _adjoint(call):
    return call.input.transpose(-2, -1).conj()


def _joined(call):
    tensors, level = call.arguments["tensors"], call.level
    rank = tensors[0].dim()
    if any(t.dim() != rank for t in tensors) or (rank == 0 and not call.name.endswith("stack")):
        return NotImplemented
    dim = _wrap_dim(call.arguments["dim"], rank + call.name.endswith("stack")) + 1
    return call(tensors=[physical_of(t, level) for t in tensors], dim=dim)


def _matmul(call):
    names = list(call.arguments)
    a, b = call.arguments[names[0]], call.arguments[names[1]]
    if not a.dim() or not b.dim():
        return NotImplemented
    level, number = call.level, call.level.number
    if not is_batched(b, number) and b.dim() <= 2 and not (a.dim() == 1 and b.dim() == 1):
        return wrapped(wisp.matmul(a._physical, b), number)
    if a.dim() == 1 and b.dim() == 1:
        return (a * b).sum()
    rank = max(a.dim(), b.dim(), 2)
    left, right = physical_of(a, level) if a.dim() < 2 else a, physical_of(b, level) if b.dim() < 2 else b
    if a.dim() == 1:
        left = wrapped(left.unsqueeze(-2), number)
    if b.dim() == 1:
        right = wrapped(right.unsqueeze(-1), number)
    result = wisp.matmul(_aligned(left, rank, number), _aligned(right, rank, number))
    if a.dim() == 1:
        result = result.squeeze(-2)
    if b.dim() == 1:
        result = result.squeeze(-1)
    return wrapped(result, number)


def _linear(call):
    x, weight, bias = (call.arguments[k] for k in ("input", "weight", "bias"))
    if not call.has(weight) and (bias is None or not call.has(bias)):
        return call(input=call.physical(x))
    if weight.dim() != 2:
        return NotImplemented
    result = wisp.matmul(x, weight.transpose(-2, -1))
    return result if bias is None else result + bias


def _plus_product(call):
    """addmm, addmv, baddbmm."""
    input, a, b = list(call.arguments.values())[:3]
    beta, alpha = call.arguments["beta"], call.arguments["alpha"]
    product = wisp.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


def _outer(call):
    a, b = list(call.arguments.values())[:2]
    return a.unsqueeze(-1) * b.unsqueeze(-2)


def _einsum(call):
    equation, operands = call.arguments["equation"].replace(" ", ""), call.arguments["operands"]
    letter = next((c for c in "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation), None)
    if letter is None or "->" not in equation:
        return NotImplemented
    terms, result = equation.split("->")
    terms = [letter + term if call.has(t) else term for term, t in zip(terms.split(","), operands)]
    return call(equation=",".join(terms) + "->" + letter + result,
                operands=[t._physical if call.has(t) else t for t in operands])


def _image(spatial):
    """Samples of shape [C, ...] are a batch of images; of shape [N, C, ...] they are N times as many."""

    def rule(call):
        x = call.input
        rank = x.dim()
        k = spatial if spatial is not None else max(rank - 2, 1)
        physical = call.physical(x)
        if spatial is not None and rank == k + 1:
            return call(**{call.first: physical})
        result = call(**{call.first: physical.flatten(0, 1)})
        if result is NotImplemented:
            return result

        def split(part):
            return wrapped(part._physical.unflatten(0, (call.level.size, x.shape[0])), call.level.number)
        return split(result) if isinstance(result, Tensor) else type(result)([split(part) for part in result])
    return rule


def _convolution(spatial, transposed=False):
    def rule(call):
        x, weight, bias = (call.arguments[k] for k in ("input", "weight", "bias"))
        size, number = call.level.size, call.level.number
        if not call.has(weight) and (bias is None or not call.has(bias)):
            return _image(spatial)(call)
        if x.dim() == spatial + 1:
            return rule_of(call, x.unsqueeze(0), weight, bias, size, number).squeeze(0)
        return rule_of(call, x, weight, bias, size, number)

    def rule_of(call, x, weight, bias, size, number):
        # every sample has its own weights: they are groups of one convolution
        p = call.physical(x)
        images = p.transpose(0, 1).flatten(1, 2)
        weights = call.physical(weight).flatten(0, 1)
        groups = call.arguments["groups"] * size
        result = call(input=images, weight=weights, bias=None, groups=groups)
        y = result._physical.unflatten(1, (size, -1)).transpose(0, 1)
        y = wrapped(y, number)
        return y if bias is None else y + bias.reshape(-1, *[1] * spatial)
    return rule


def _layer_norm(call):
    x, weight, bias = call.input, call.arguments.get("weight"), call.arguments.get("bias")
    changes = {"input": call.physical(x), "weight": None}
    if "bias" in call.arguments:
        changes["bias"] = None
    if not any(t is not None and call.has(t) for t in (weight, bias)):
        return call(input=changes["input"])
    y = call(**changes)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _group_norm(call):
    x, weight, bias = call.input, call.arguments["weight"], call.arguments["bias"]
    if not any(t is not None and call.has(t) for t in (weight, bias)):
        return _image(None)(call)
    changed = Call(call.op, call.name, False, {**call.arguments, "weight": None, "bias": None}, call.level)
    y, shape = _image(None)(changed), [-1] + [1] * (x.dim() - 2)
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _batch_norm(call):
    x, mean, var = call.input, call.arguments["running_mean"], call.arguments["running_var"]
    if call.arguments["training"] and mean is not None and not (call.has(mean) and call.has(var)):
        raise RuntimeError("Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
                           "updated in place, were not batched. If you are using modules, call eval(), or use "
                           "wisp.func.replace_all_batch_norm_modules_(model).")
    shape = [1, -1] + [1] * (x.dim() - 2)
    if call.arguments["training"] and mean is not None:
        return NotImplemented
    if call.arguments["training"]:
        dims = [0, *range(2, x.dim())]
        var, mean = wisp.var_mean(x, dims, correction=0)
    y = (x - mean.reshape(shape)) * (var + call.arguments["eps"]).rsqrt().reshape(shape)
    weight, bias = call.arguments["weight"], call.arguments["bias"]
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _embedding(call):
    weight, indices = call.arguments["weight"], call.arguments["indices"]
    if call.arguments["scale_grad_by_freq"] or call.arguments["sparse"]:
        return NotImplemented
    if not call.has(weight):
        return call(indices=call.physical(indices))
    rows, size = weight.shape[0], call.level.size
    if call.arguments["padding_idx"] >= 0:
        return NotImplemented
    offsets = wisp.arange(size).reshape(size, *[1] * indices.dim()) * rows
    return call(weight=weight._physical.flatten(0, 1), indices=call.physical(indices) + offsets)


def _reduced(loss, reduction):
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _elementwise_loss(call):
    arguments = {**call.arguments, "reduction": "none"}
    if arguments.get("size_average") is not None or arguments.get("reduce") is not None:
        return NotImplemented
    arguments["input"], arguments["target"] = (wrapped(call.physical(arguments[k]), call.level.number) for k in ("input", "target"))
    loss = _pointwise(Call(call.op, call.name, False, arguments, call.level))
    return loss if loss is NotImplemented else _reduced(loss, call.arguments["reduction"])


def _class_loss(call):
    x, target = call.input, call.arguments["target"]
    a = call.arguments
    if (a["weight"] is not None or a["size_average"] is not None or a["reduce"] is not None or a.get("label_smoothing")
            or target.is_floating_point() or x.dim() == 0 or target.dim() != x.dim() - 1):
        return NotImplemented
    dim = 0 if x.dim() == 1 else 1
    scores = wisp.log_softmax(x, dim) if call.name.endswith("cross_entropy") else x
    kept = target != a["ignore_index"]
    picked = scores.gather(dim, wisp.where(kept, target, 0).unsqueeze(dim)).squeeze(dim)
    loss = wisp.where(kept, -picked, 0.0)
    if a["reduction"] == "mean":
        return loss.sum() / kept.sum()
    return _reduced(loss, a["reduction"])


def _attention(call):
    a = call.arguments
    names = [n for n in ("query", "key", "value") if isinstance(a[n], Tensor)]
    rank = a["query"].dim()
    if a["dropout_p"] or a["enable_gqa"] or any(a[n].dim() != rank for n in names) or rank < 3:
        return NotImplemented
    changes = {n: call.physical(a[n]) for n in names}
    if a["attn_mask"] is not None:
        changes["attn_mask"] = _aligned(a["attn_mask"], rank, call.level.number)
    return call(**changes)


def _new(call):
    return call(**{call.first: call.physical(call.input), "size": (call.level.size, *_ints(call.arguments["size"]))})


def _all_batched(call):
    """Every tensor gets the batch."""
    return call(**{k: call.physical(v) for k, v in call.arguments.items() if isinstance(v, Tensor)})


def _gradients(call):
    """autograd.grad: samples are independent, so one backward pass gives the gradients of all of them."""
    a, level = call.arguments, call.level
    outputs, given, inputs = a["outputs"], a["grad_outputs"], a["inputs"]
    if not all(call.has(t) for t in inputs) or not all(call.has(t) for t in outputs):
        if any(call.has(t) for t in (*outputs, *inputs)):
            raise RuntimeError("vmap: the gradient of a tensor that is mapped over with respect to one that is not (or the "
                               "other way round) inside of vmap; use wisp.func.grad or wisp.func.vjp in the mapped function")
        call.arguments = {**a, "retain_graph": True}
        return _one_by_one(call)
    starts = [wisp.ones_like(o._physical) if g is None else physical_of(g, level) for o, g in zip(outputs, given)]
    return call(outputs=[t._physical for t in outputs], grad_outputs=starts, inputs=[t._physical for t in inputs])


def _by_index(call):
    """index_select and relatives: the same index for all samples."""
    return NotImplemented if call.has(call.arguments["index"]) else _along("dim", others=("source",))(call)


_RULES = {}


def _rules(rule, names):
    for name in names.split():
        _RULES[name] = rule


_rules(_pointwise, " ".join(row[0] for row in _core._pointwise_table()) + """
    where clamp clip clamp_min clamp_max lerp addcmul addcdiv float_power rsub true_divide divide multiply subtract
    isclose copy type_as nan_to_num threshold absolute negative arccos arccosh arcsin arcsinh arctan arctan2 arctanh fix greater
    greater_equal less less_equal not_equal div pow floor_divide ldexp logit""")
_rules(_masked_fill, "masked_fill")
_rules(_unary, """
    clone contiguous to float double half bfloat16 int long short byte char bool cfloat cdouble detach alias zero fill zeros_like
    ones_like full_like empty_like relu relu6 gelu silu mish elu celu selu leaky_relu hardtanh hardsigmoid hardswish hardshrink
    softshrink softplus softsign sigmoid tanh tanhshrink logsigmoid conj conj_physical resolve_conj resolve_neg real imag
    view_as_real view_as_complex tril triu round positive signbit isnan isinf isfinite isposinf isneginf
    _without_graph _primal _tangent _has_tangent linalg.det linalg.inv linalg.cholesky linalg.svdvals linalg.eigvalsh
    linalg.slogdet linalg.eigh linalg.qr linalg.svd det inverse one_hot""")
_rules(_reduction, """
    sum mean prod amax amin max min argmax argmin var std nansum nanmean logsumexp all any count_nonzero linalg.vector_norm
    median nanmedian var_mean std_mean aminmax""")
_rules(_along("dim"), """
    cumsum cumprod cummax cummin logcumsumexp sort argsort topk kthvalue mode select narrow unbind chunk split
    split_with_sizes tensor_split flip unflatten diff""")
_RULES["flip"] = _along("dims")
_rules(_softmax, "softmax log_softmax softmin")
_rules(_along("dim", extra=1), "unsqueeze")
_rules(_along("dim0", "dim1"), "transpose swapdims")
_rules(_along("axis0", "axis1"), "swapaxes")
_rules(_along("source", "destination"), "movedim moveaxis")
_rules(_along("dim1", "dim2"), "diagonal")
_rules(_along("dim1", "dim2", extra=1), "diag_embed")
_rules(_along("dims"), "roll")
_rules(_along("dim", others=("index", "src")), "gather scatter scatter_add scatter_reduce")
_rules(_by_index, "index_select index_add index_copy index_fill")
_rules(_sized("size"), "view expand broadcast_to")
_rules(_sized("shape"), "reshape")
_rules(_sized("repeats"), "repeat")
_rules(_sized("dims"), "tile")
_rules(_like, "view_as expand_as reshape_as")
_rules(_permute, "permute")
_rules(_squeeze, "squeeze")
_rules(_flatten, "flatten")
_rules(_ravel, "ravel")
_rules(_transposed, "t")
_rules(_adjoint, "adjoint")
_rules(_joined, "cat concat concatenate stack")
_rules(_matmul, "matmul mm bmm mv dot linalg.matmul")
_rules(_linear, "linear")
_rules(_plus_product, "addmm addmv baddbmm")
_rules(_outer, "outer ger")
_rules(_einsum, "_einsum")
for _k in (1, 2, 3):
    _rules(_convolution(_k), f"conv{_k}d")
    _rules(_convolution(_k), f"conv_transpose{_k}d")
    _rules(_image(_k), f"avg_pool{_k}d max_pool{_k}d max_pool{_k}d_with_indices adaptive_avg_pool{_k}d "
                       f"adaptive_max_pool{_k}d adaptive_max_pool{_k}d_with_indices lp_pool{_k}d")
_rules(_image(None), "interpolate upsample")
_rules(_unary, "pixel_shuffle pixel_unshuffle")
_rules(lambda call: _unary(call) if call.arguments["mode"] == "constant" else _image(None)(call), "pad")
_rules(_layer_norm, "layer_norm rms_norm")
_rules(_group_norm, "group_norm")
_rules(_batch_norm, "batch_norm")
_rules(_embedding, "embedding")
_rules(_elementwise_loss, "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits")
_rules(_class_loss, "cross_entropy nll_loss")
_rules(_attention, "scaled_dot_product_attention")
_rules(_new, "new_zeros new_ones new_empty new_full")
_rules(_all_batched, "_make_dual linalg.solve")
_rules(_gradients, "_grad")

_operators()
_core._set_batching(BatchedTensor, _call)
