"""Batched tensors: what a function sees inside of vmap, and the rules by which operators work on a whole batch.

A BatchedTensor looks like one sample: its shape, dtype and so on are a sample's. The values of all samples are in
`_physical`, with the batch as first dimension (which may be a BatchedTensor of an outer vmap). The argument parser sends
every operator that is called with one to `_call`, which looks for a rule in _batching_rules.py, by the operator's name or by its facts;
an operator without one is applied to one sample after another. Rules compute with operators on the physical tensors, so derivatives
need no rules of their own.
"""

import contextlib
import functools
import threading
from typing import NamedTuple

import wisp
from wisp import _core
from wisp._tensor import _disabled_torch_function_impl
from wisp._tensor.operators import by_name
from wisp.autograd import function as _function
from wisp.autograd.function import check_transformable, set_batching
from wisp.utils._pytree import tree_map

Tensor = wisp.Tensor
_state = threading.local()


class NotOneSample(RuntimeError):
    """Inside of vmap something was asked for that differs between samples (a number, a branch, a shape), or written to what they share."""


class VmapInfo(NamedTuple):
    """What the `vmap` of a custom Function is told of the vmap that runs."""

    batch_size: int
    randomness: str


class Level:
    """A vmap that is running: how many samples, and what random numbers mean."""

    def __init__(self, number, size, randomness):
        self.number, self.size, self.randomness = number, size, randomness
        self.left_out = False


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
    _core._transforms(1)
    try:
        yield level
    finally:
        _core._transforms(-1)
        _core._batching(-1)
        levels().pop()


@contextlib.contextmanager
def left_out(number):
    """While a function runs to which none of what this vmap maps over is given: derivatives inside of it are not per sample."""
    level = levels()[number - 1]
    before, level.left_out = level.left_out, True
    try:
        yield
    finally:
        level.left_out = before


def _refuse(what):
    def refuse(self, *args, **kwargs):
        raise NotOneSample(
            f"vmap: It looks like you're {what} on a Tensor inside of vmap, where it stands for many values. "
            "Please rewrite it with other operations (for example where() instead of if), or take it out of "
            "the mapped function."
        )

    return refuse


def _refuse_data(what):
    def refuse(self, *args):
        raise RuntimeError(f"{what} under vmap transform is not allowed: use detach() or, to change values, an operator such as copy_")

    return refuse


class BatchedTensor(Tensor):
    """One sample of a batch, as a function inside of vmap sees it."""

    __torch_function__ = _disabled_torch_function_impl
    refusal = NotOneSample  # what the core raises, too
    _given = None  # the tensor that vmap made a sample of, where its batch was, and the batch moved to the front
    _is_primal_of_all = False  # a dual tensor of which the tangent alone was mapped over

    item = _refuse("calling .item()")
    tolist = numpy = __array__ = _refuse("calling .tolist() or .numpy()")
    data_ptr = _refuse("calling .data_ptr()")
    __bool__ = _refuse("using data-dependent control flow")
    __float__ = __int__ = __index__ = __complex__ = __contains__ = _refuse("converting to a Python number")

    requires_grad = property(lambda self: self._physical.requires_grad, lambda self, on: setattr(self._physical, "requires_grad", on))
    grad_fn = property(lambda self: self._physical.grad_fn)
    is_leaf = property(lambda self: self._physical.is_leaf)
    grad = property(lambda self: None if self._physical._grad is None else wrapped(self._physical._grad, self._level))
    data = property(_refuse_data("accessing `data`"), _refuse_data("mutating directly with `.data`"))
    T = property(lambda self: self.permute(*reversed(range(self.dim()))))
    mT = property(lambda self: self.transpose(-2, -1))
    H = property(lambda self: self.transpose(-2, -1).conj() if self.dim() else self)
    mH = property(lambda self: self.transpose(-2, -1).conj())
    real = property(lambda self: _core.real(self))
    imag = property(lambda self: _core.imag(self))

    def is_contiguous(self, memory_format=wisp.contiguous_format):
        check_format(memory_format)
        return Tensor.is_contiguous(self)

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


def check_format(memory_format):
    if memory_format not in (wisp.contiguous_format, wisp.preserve_format):
        raise RuntimeError(
            f"NYI: querying is_contiguous inside of vmap for memory_format other than torch.contiguous_format, got {memory_format}: "
            "the format of a sample is not that of its batch"
        )


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
        if not level.left_out and not any(is_batched(t, level.number) for t in _layers(tensor)):
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


def aligned(value, rank, level):
    """The physical tensor, with the sample's dimensions at the right as broadcasting wants them."""
    if not is_batched(value, level):
        return value
    physical = value._physical
    missing = rank - value.dim()
    return physical.reshape(physical.shape[0], *[1] * missing, *value.shape) if missing > 0 else physical


def ints(value):
    return (value,) if isinstance(value, int) else tuple(value)


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


RULES = {}  # name of an operator -> function of a Call; filled by _batching_rules.py
BY_FACT = {}  # what is known of an operator (csrc/ops/facts.h) -> the rule of those that have none of their own


def _call(op, name, form, arguments):
    """Called by the argument parser."""
    name = name[5:] if name.startswith("wisp.") else name
    short = name.rsplit(".", 1)[-1]
    facts = op._facts
    if "shape_only" in facts:
        return NotImplemented
    found = []
    _batched_in(list(arguments.values()), found)
    active = levels()
    if not found:
        active = active[: getattr(_state, "drawing", len(active))]  # a draw for all samples of a level: outer ones are left
        return _random(op, name, arguments, active[-1]) if active else NotImplemented
    level = active[max(t._level for t in found) - 1]
    inplace = form == 2 or (short.endswith("_") and not short.startswith("_"))
    call = Call(op, name, inplace, arguments, level)
    if short in _RESHAPING and call.has(call.input):
        return _reshape_in_place(call, short[:-1])
    if "draws" in facts:
        return _random(op, name, arguments, level, call)
    if arguments.get("out") is not None:
        raise RuntimeError(
            f"vmap: {short}(..., out=) of batched tensors is not possible: use its result. Batching rule not implemented for "
            f"aten::{short}.out; the fallback path doesn't work on out= or view ops"
        )
    _check_written(call, short)
    if inplace and call.input._is_primal_of_all:
        own_memory(call.input)
    rule = RULES.get(name.rstrip("_")) or RULES.get(short.rstrip("_")) if "linalg" not in name else RULES.get(name)
    if rule is None:
        rule = next((rule for fact, rule in BY_FACT.items() if fact in facts), None)
    result = rule(call) if rule else NotImplemented
    return one_by_one(call) if result is NotImplemented else result


_RESHAPING = {"squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_", "t_"}


def _reshape_in_place(call, name):
    """The sample becomes the view that the form without the underscore makes."""
    made = getattr(call.input, name)(**{k: v for k, v in call.arguments.items() if k != call.first})
    _core._look_like(call.input, made)
    call.input._physical = made._physical
    return call.input


def _check_written(call, short):
    if call.inplace and not call.has(call.input):
        raise NotOneSample(
            f"vmap: inplace arithmetic(self, *extra_args): {short.rstrip('_')}_(self, *extra_args) is not possible because there exists a "
            "Tensor `other` in extra_args that has more elements than `self`. This happened due to `other` being vmapped over but `self` "
            "not being vmapped over in a vmap. Please try to use out-of-place operators instead of "
            f"{short.rstrip('_')}_."
        )


def own_memory(sample):
    """Before it is written to, what all samples share becomes as many copies."""
    sample._physical, sample._is_primal_of_all = sample._physical.clone(), False


def refuse_dynamic(name):
    """Of operators whose samples may have results of different shapes."""
    raise NotOneSample(
        f"vmap: Attempted to vmap over aten::{name}, whose result has a shape that depends on values, so that samples may differ in it. "
        "Use an operator with a fixed shape, such as where() or masked_fill(), or call it outside of vmap"
    )


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


def one_by_one(call, before=None):
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


def _random(op, name, arguments, level, call=None):
    training = arguments.get("training", arguments.get("train"))
    if training is False or (training and arguments.get("p") in (0, 1)):  # dropout of nothing, or of all
        return NotImplemented if call is None else call(**{call.first: call.physical(call.input)})
    _check_draws(level)
    if arguments.get("out") is not None:
        raise RuntimeError("vmap: calling out variants of random operations is not possible: use their results")
    if level.randomness == "same" and call is None:
        return NotImplemented
    if call is None:
        short = name.rsplit(".", 1)[-1]
        if short.endswith("_") and not short.startswith("_"):
            raise RuntimeError(
                "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. If this "
                "is necessary for your usage, please file an issue with functorch."
            )
        call = Call(op, name, False, arguments, level)
    before, _state.drawing = getattr(_state, "drawing", None), level.number - 1
    try:
        return (_drawn_once if level.randomness == "same" else _drawn_for_each)(arguments, level, call)
    finally:
        _end_draw(before)


def drawn(function, input):
    """`function(input)`, which draws random numbers in several steps, by what the running vmaps say of them."""
    active = levels()[: getattr(_state, "drawing", len(levels()))]
    if not active:
        return function(input)
    level = active[-1]
    _check_draws(level)
    batched = is_batched(input, level.number)
    if batched and level.randomness == "same":
        raise NotOneSample(_SAME)
    before, _state.drawing = getattr(_state, "drawing", None), level.number - 1
    try:
        if level.randomness == "same":
            return drawn(function, input)
        return wrapped(drawn(function, physical_of(input, level)), level.number)
    finally:
        _end_draw(before)


def _end_draw(before):
    if before is None:
        del _state.drawing
    else:
        _state.drawing = before


def _check_draws(level):
    if level.randomness == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
            "randomness flags on vmap or perform the randomness operation out of vmap"
        )


_SAME = (
    "vmap: Vmap does not currently support same randomness with a batched tensor input. Please use randomness='different', or draw "
    "outside of vmap"
)


def _drawn_once(arguments, level, call):
    """All samples have the same numbers, which must not depend on values of theirs."""
    short = call.name.rsplit(".", 1)[-1]
    shape_only = call.inplace or short.endswith("_like") or "dropout" in short
    if any(call.has(v) for k, v in arguments.items() if not (shape_only and k == call.first)):
        raise NotOneSample(f"{_SAME} ({short})")
    generator = arguments.get("generator") or _core.default_generator
    state = generator.get_state()
    return one_by_one(call, lambda: generator.set_state(state))


def _drawn_for_each(arguments, level, call):
    _check_written(call, call.name.rsplit(".", 1)[-1])
    tensors = {k: v for k, v in arguments.items() if isinstance(v, Tensor)}
    if not tensors and "size" in arguments:
        return call(size=(level.size, *ints(arguments["size"])))
    if tensors and ("elementwise" in call.op._facts or call.name in ("binomial", "bernoulli_")):  # one draw for the whole batch
        rank = max(t.dim() for t in tensors.values())
        parts = {k: aligned(t, rank, level.number) for k, t in tensors.items()}
        if not any(map(call.has, tensors.values())):
            parts[next(iter(parts))] = call.physical(next(iter(tensors.values())))
        return call(**parts)
    if call.name == "multinomial":
        whole = call.physical(call.input)
        rows = whole.reshape(-1, whole.shape[-1])
        return wrapped(call.op(**{**arguments, "input": rows}).reshape(*whole.shape[:-1], -1), level.number)
    return one_by_one(call)


# --- indexing ------------------------------------------------------------------------------------------------------------


def _keys(key):
    """The indices per dimension; a list that holds others than numbers counts as a tuple, as outside of vmap."""
    several = isinstance(key, list) and any(k is None or k is Ellipsis or isinstance(k, (list, tuple, slice, Tensor)) for k in key)
    return key if isinstance(key, tuple) else tuple(key) if several else (key,)


def _get(self, key):
    keys = _keys(key)
    level = levels()[self._level - 1]
    found = []
    _batched_in(list(keys), found)
    inner = [t for t in found if t._level > level.number]
    if inner:
        return _indexed_by_samples(self, keys, levels()[max(t._level for t in inner) - 1])
    if any(is_batched(t, level.number) for t in found):
        return _indexed_by_samples(self, keys, level)
    if _advanced_apart(keys):
        return _loop(lambda x: x[keys], (self,), level)
    return wrapped(self._physical[(slice(None), *keys)], level.number)


def _advanced_apart(keys):
    """Whether slices or new dimensions separate index tensors: their dimensions would then come before the batch."""
    if not any(isinstance(k, (Tensor, list)) for k in keys):
        return False
    numbers = [isinstance(k, (Tensor, list, int)) and not isinstance(k, bool) for k in keys]
    first, last = numbers.index(True), len(numbers) - 1 - numbers[::-1].index(True)
    return not all(numbers[first : last + 1])


def _indexed_by_samples(self, keys, level):
    """x[i] with indices that differ by sample."""
    if any(is_batched(k, level.number) and k.dtype in (wisp.bool, wisp.uint8) for k in keys):
        refuse_dynamic("index")
    if all(isinstance(k, Tensor) and not k.is_floating_point() and k.dtype != wisp.bool for k in keys):
        rank = max(k.dim() for k in keys)
        indices = [aligned(k, rank, level.number) for k in keys]
        if not is_batched(self, level.number):
            return wrapped(self[tuple(indices)], level.number)
        rows = wisp.arange(level.size, device=self.device).reshape(level.size, *[1] * rank)
        return wrapped(self._physical[(rows, *indices)], level.number)
    return _loop(lambda x, *keys: x[keys], (self, *keys), level)


def by_samples(function, args, kwargs):
    """The function of the whole batch or, where it looks at values, of one sample after another."""
    try:
        return function(*args, **kwargs)
    except NotOneSample:
        found = []
        _batched_in([*args, *kwargs.values()], found)
        if not found:
            raise
        call = lambda *values: by_samples(function, values[: len(args)], dict(zip(kwargs, values[len(args) :])))
        return _loop(call, (*args, *kwargs.values()), levels()[max(t._level for t in found) - 1])


def _loop(function, args, level):
    return _stacked([function(*[_sample(a, level, i) for a in args]) for i in range(level.size)], level)


def _set(self, key, value):
    keys = _keys(key)
    level = levels()[self._level - 1]
    found = []
    _batched_in([*keys, value], found)
    if any(t._level > level.number for t in found):
        raise NotOneSample(
            "vmap: x[...] = value is not possible because value (or the index) is mapped over by a vmap that x "
            "is not mapped over by; please use out-of-place operators such as where() or index_put()."
        )
    if self._is_primal_of_all:
        own_memory(self)
    batched_keys = []
    _batched_in(list(keys), batched_keys)
    if any(is_batched(t, level.number) for t in batched_keys) or _advanced_apart(keys):
        for i in range(level.size):
            self._physical[(i, *[_sample(k, level, i) for k in keys])] = _sample(value, level, i)
        return
    if is_batched(value, level.number):
        rank = Tensor.__getitem__(self, key).dim()  # only the shape is used
        value = aligned(value, rank, level.number) if value.dim() <= rank else value._physical
    self._physical[(slice(None), *keys)] = value


def get_with_batched_index(tensor, key):
    """x[key] of a tensor that is not mapped over, with an index that is."""
    keys = _keys(key)
    found = []
    _batched_in(list(keys), found)
    return _indexed_by_samples(tensor, keys, levels()[max(t._level for t in found) - 1])


# --- autograd.Function ---------------------------------------------------------------------------------------------------


def apply_function(cls, args, kwargs):
    """cls.apply(*args) inside of vmap: by its `vmap(info, in_dims, *args)`, or one sample after another if it asks for a rule."""
    check_transformable(cls)
    if any(isinstance(value, Tensor) for value in kwargs.values()):
        raise NotImplementedError(f"{cls.__name__}.apply: kwarg-only Tensor args are not supported inside of vmap; pass them by position")
    own = cls.vmap is not wisp.autograd.Function.vmap
    if own and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overriden vmap staticmethod. Please "
            "set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid ambiguity."
        )
    found = []
    _batched_in(list(args), found)
    level = levels()[max(t._level for t in found) - 1]
    if not own:
        if not cls.generate_vmap_rule and not cls.__module__.startswith("wisp.") and not getattr(_function._active, "lenient", False):
            raise RuntimeError(
                f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the vmap "
                "staticmethod or set generate_vmap_rule=True."
            )
        return _loop(lambda *values: cls.apply(*values, **kwargs), args, level)
    return _by_rule(f"the vmap staticmethod of {cls.__name__}", cls.vmap, args, level)


def apply_operator(operator, args, kwargs):
    """A program's operator (wisp.library) inside of vmap: by the rule that was registered, or one sample after another."""
    found = []
    _batched_in(list(args), found)
    if not found:
        raise NotImplementedError(f"{operator._qualname}: kwarg-only Tensor args are not supported inside of vmap; pass them by position")
    level = levels()[max(t._level for t in found) - 1]
    if operator._vmap is None:
        return _loop(lambda *values: operator(*values, **kwargs), args, level)
    return _by_rule(f"the vmap rule of {operator._qualname}", functools.partial(operator._vmap, **kwargs), args, level)


def _by_rule(name, rule, args, level):
    """The results of `rule(info, in_dims, *args)`, which works on the whole batch."""
    in_dims = tree_map(lambda a: 0 if is_batched(a, level.number) else None, tuple(args))
    values = tree_map(lambda a: a._physical if is_batched(a, level.number) else a, tuple(args))
    info = VmapInfo(level.size, level.randomness)
    returned = rule(info, in_dims, *values)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise RuntimeError(f"Expected {name} to have two returns: the output and out_dims, got {returned}")
    result, out_dims = returned

    def put(part, dim):
        if isinstance(part, (tuple, list)):
            dims = dim if isinstance(dim, (tuple, list)) else (dim,) * len(part)
            return type(part)(map(put, part, dims))
        return part if dim is None or not isinstance(part, Tensor) else wrapped(part.movedim(dim, 0), level.number)

    single = isinstance(result, Tensor)
    told = isinstance(out_dims, (tuple, list))
    if told and (single or len(out_dims) != len(result) or isinstance(result, list) != isinstance(out_dims, list)):
        raise RuntimeError(
            f"{name[0].upper()}{name[1:]} returned an incompatible (output, out_dims) pair: out_dims {out_dims} for "
            f"{'one tensor' if single else f'{len(result)} outputs'}"
        )
    if single:
        return put(result, out_dims)
    dims = out_dims if isinstance(out_dims, (tuple, list)) else (out_dims,) * len(result)
    return tuple(map(put, result, dims))


by_name(BatchedTensor)
_core._set_batching(BatchedTensor, _call)
set_batching(BatchedTensor, apply_function)
