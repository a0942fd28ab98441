"""The nested tensor: a batch of tensors that differ in one size, kept as one packed tensor and the ends of its parts.

Dimension 0 is the batch; one other, the ragged one, has a size of its own in each part. The packed values have the batch and the
ragged dimension as one, at the place `ragged - 1`, so that operators on other dimensions are operators on the values. If several
sizes differ (layout strided alone), the values are all elements in a row and `ragged` is None; then elementwise operators work on
the values, and the rest goes part by part.
"""

import functools
import itertools
import math

import wisp
from wisp import _core
from wisp._compat.symbols import SymInt
from wisp._tensor.holder import Holder

_numbers = itertools.count(1)


@functools.lru_cache(1024)
def _number(lengths):
    return next(_numbers)


class RaggedSize(SymInt):
    """The size of a dimension that differs between the parts; equal for tensors whose parts have equal sizes."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __repr__(self):
        return f"j{_number(self.lengths)}"

    def __eq__(self, other):
        return isinstance(other, RaggedSize) and self.lengths == other.lengths

    def __hash__(self):
        return hash(self.lengths)

    def __ge__(self, other):
        return True if isinstance(other, int) and other <= 2 else NotImplemented

    __gt__ = __ge__


def is_nested_int(s):
    """Whether a size is one that differs between parts."""
    return isinstance(s, RaggedSize)


class NestedSize(tuple):
    """The shape of a nested tensor."""

    __slots__ = ()

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self):
        ragged = next(size for size in self if isinstance(size, RaggedSize))
        return sum(ragged.lengths) * math.prod(size for size in self[1:] if size is not ragged)


class NestedTensor(Holder, _core.Tensor):
    """A batch of tensors of different sizes. Make one with `wisp.nested.nested_tensor`.

    >>> import wisp
    >>> batch = wisp.nested.nested_tensor([wisp.ones(2, 3), wisp.ones(1, 3)], layout=wisp.jagged)
    >>> wisp.nn.functional.relu(batch).sum(1).tolist(), batch.size(0), batch.size(2)
    ([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]], 2, 3)
    """

    def __new__(cls, values, offsets, *, lengths=None, _ragged_idx=1, **known):
        from wisp.nested import nested_tensor_from_jagged

        return nested_tensor_from_jagged(values, offsets, lengths, _ragged_idx)

    def __init__(self, *args, **kwargs):
        pass

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from wisp.nested import _operators

        return _operators.call(func, args, kwargs or {})

    # ---- what it is
    _held = property(lambda self: self._values)
    is_nested = property(lambda self: True)
    # What PyTorch's jagged tensors keep besides: the parts lie without holes here, and lengths are numbers of the program.
    _ragged_idx = property(lambda self: self._ragged)
    _lengths = _min_seqlen_tensor = _max_seqlen_tensor = None
    _min_seqlen = property(lambda self: min(self._part_lengths()))
    _max_seqlen = property(lambda self: max(self._part_lengths()))
    _maybe_min_seqlen = property(lambda self: self._metadata_cache.get("min_seqlen"))
    _maybe_max_seqlen = property(lambda self: self._metadata_cache.get("max_seqlen"))
    _base = property(lambda self: self.__dict__.get("_of", self._values._base))
    layout = property(lambda self: self._layout)
    device = property(lambda self: self._values.device)
    is_cuda = property(lambda self: self._values.is_cuda)
    is_cpu = property(lambda self: self._values.is_cpu)
    is_meta = property(lambda self: self._values.is_meta)
    dtype = property(lambda self: self._values.dtype)
    ndim = property(lambda self: self.dim())
    mT = property(lambda self: self.transpose(-2, -1))
    itemsize = property(lambda self: self._values.itemsize)
    nbytes = property(lambda self: self._values.nbytes)
    data = property(lambda self: self.detach())

    @property
    def shape(self):
        if self._layout is not wisp.jagged:
            raise RuntimeError(
                "NestedTensorImpl doesn't support sizes: a nested tensor of the strided layout has no single shape; use size(dim), "
                "unbind(), or layout=torch.jagged"
            )
        return self._sizes

    def size(self, dim=None):
        if dim is None:
            return self.shape
        size = self._sizes[dim]
        if isinstance(size, RaggedSize) and self._layout is not wisp.jagged:
            raise RuntimeError(f"Given dimension {dim % self.dim()} is irregular and does not have a size.")
        return size

    def dim(self):
        return len(self._sizes)

    def numel(self):
        return self._values.numel()

    def __len__(self):
        return len(self._shapes)

    def values(self):
        """The packed values, with the batch and the ragged dimension as one."""
        return self._values.view_as(self._values) if self._values.requires_grad else self._values

    def offsets(self):
        """Where each part begins in the packed values, and the end."""
        return self._offsets

    def lengths(self):
        """None: the parts lie without holes between them."""
        return None

    def _nested_tensor_size(self):
        """The shapes of the parts, a row each."""
        return wisp.tensor([list(shape) for shape in self._shapes], dtype=wisp.int64)

    def _nested_tensor_strides(self):
        """The strides of the parts, a row each; those of the strided layout lie one behind the other."""
        if self._layout is wisp.strided and self._values.is_contiguous():
            strides = [[math.prod(shape[i + 1 :]) for i in range(len(shape))] for shape in self._shapes]
        else:
            strides = [list(part.stride()) for part in self._parts()]
        return wisp.tensor(strides, dtype=wisp.int64)

    def _nested_tensor_storage_offsets(self):
        """Where the parts begin in their memory."""
        if self._layout is wisp.strided and self._values.is_contiguous():
            return wisp.tensor([0, *itertools.accumulate(map(math.prod, self._shapes[:-1]))][: len(self)], dtype=wisp.int64)
        return wisp.tensor([part.storage_offset() for part in self._parts()], dtype=wisp.int64)

    def _is_view(self):
        return "_of" in self.__dict__ or self._values._is_view()

    def _viewing(self, input):
        """This tensor, as a view of another one."""
        self._of = input.__dict__.get("_of", input)
        return self

    def _knowing_lengths(self):
        if self._ragged is not None and self._layout is wisp.jagged:
            self._metadata_cache.update(min_seqlen=self._min_seqlen, max_seqlen=self._max_seqlen)
        return self

    def _part_lengths(self):
        return [shape[self._ragged - 1] for shape in self._shapes]

    def is_contiguous(self, memory_format=None):
        return self._values.is_contiguous()

    def stride(self, dim=None):
        if self._layout is not wisp.jagged:
            raise RuntimeError(
                "NestedTensorImpl doesn't support strides: the parts of a nested tensor of the strided layout have their own; use unbind()"
            )
        strides = (sum(self._shapes and self._part_lengths() or [0]), *self._values.stride()) if self._ragged else self._values.stride()
        return strides if dim is None else strides[dim]

    def __hash__(self):
        return id(self)

    # ---- others like it
    def _with(self, values):
        """The same parts with other values, whose sizes other than the ragged one may differ."""
        if self._ragged is None:
            return _make(values, self._shapes, None, self._layout, self._offsets)
        place = self._ragged - 1
        shapes = [(*values.shape[:place], length, *values.shape[place + 1 :]) for length in self._part_lengths()]
        return _make(values, shapes, self._ragged, self._layout, self._offsets, self._metadata_cache)

    def _gradient_of_values(self, grad):
        if not isinstance(grad, NestedTensor) or grad._shapes != self._shapes or grad._ragged != self._ragged:
            raise RuntimeError("the gradient of a nested tensor is a nested tensor with parts of the same sizes")
        return grad._values

    def _parts(self):
        if self._ragged is None:
            flat = self._values.split([math.prod(shape) for shape in self._shapes])
            return [part.reshape(shape) for part, shape in zip(flat, self._shapes)]
        return list(self._values.split(self._part_lengths(), self._ragged - 1)) if self._shapes else []

    def _again(self, parts):
        """The nested tensor of other parts."""
        return pack(parts, self._layout, self._values)

    # ---- Python's protocols
    def __iter__(self):
        return iter(self._parts())

    def __repr__(self, *, tensor_contents=None):
        extra = ""
        if self.grad_fn is not None:
            extra = f", grad_fn={self.grad_fn}"
        elif self.requires_grad:
            extra = ", requires_grad=True"
        if self._layout is wisp.jagged:
            sizes = ", ".join(map(str, self._sizes))
            return f"NestedTensor(size=({sizes}), offsets={self._offsets}{extra}, contiguous={self.is_contiguous()})"
        parts = ",\n".join("  " + repr(part.detach()).replace("\n", "\n  ") for part in self._parts())
        return f"nested_tensor([\n{parts}\n]{extra})"

    __str__ = __repr__

    def __format__(self, spec):
        return format(repr(self), spec)

    def tolist(self):
        return [part.tolist() for part in self._parts()]

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
        if id(self) not in memo:
            memo[id(self)] = self._with(self._values.detach().clone().requires_grad_(self.requires_grad))
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        values = self._values.detach().requires_grad_(self.requires_grad)
        return _rebuilt, (values, self._shapes, self._ragged, self._layout is wisp.jagged)

    def _for_file(self):
        """What PyTorch's files say of a nested tensor: all elements and where the parts lie, or the packed values and their ends."""
        values = self._values.detach()
        if self._layout is wisp.jagged:
            return {
                "values": values,
                "offsets": self._offsets,
                "lengths": None,
                "_ragged_idx": self._ragged,
                "_metadata_cache": {name: wisp.empty(number, 0) for name, number in self._metadata_cache.items()},  # PyTorch's way
                "requires_grad": self.requires_grad,
            }
        order = self._order()
        parts = [part.detach().permute(order).contiguous() for part in self._parts()]
        buffer = wisp.cat([part.reshape(-1) for part in parts] or [values])
        ends = [0, *itertools.accumulate(math.prod(shape) for shape in self._shapes)]
        strides = [[part.stride(order.index(dim)) for dim in range(len(order))] for part in parts]
        numbers = self._nested_tensor_size(), wisp.tensor(strides, dtype=wisp.int64), wisp.tensor(ends[:-1], dtype=wisp.int64)
        return (buffer.requires_grad_(self.requires_grad), *numbers)

    def _order(self):
        """The dimensions of a part, outermost first as they lie in memory."""
        count = self.dim() - 1 if self._shapes else 0
        if self._ragged is None or self._values.is_contiguous():
            return list(range(count))
        return sorted(range(count), key=lambda dim: -self._values.stride(dim))

    def _view_func(self, new_base):
        """The same view of another tensor than the one that this is a view of."""
        values, base = self._values, self._base
        offset = values.storage_offset() - base.storage_offset() + new_base.storage_offset()
        return self._with(new_base.as_strided(values.shape, values.stride(), offset))

    def share_memory_(self):
        """Move the values to memory that other processes can share."""
        self._values.share_memory_()
        return self

    def data_ptr(self):
        return self._values.data_ptr()

    def is_shared(self):
        return self._values.is_shared()

    def apply_(self, callable):
        """Apply a Python function to each element, in place."""
        with wisp.no_grad():
            self._values.apply_(callable)
        return self

    def to_padded_tensor(self, padding, output_size=None):
        """A dense tensor in which the parts are filled up to the largest sizes.

        >>> import wisp
        >>> wisp.nested.nested_tensor([wisp.ones(2), wisp.ones(1)]).to_padded_tensor(0.0)
        tensor([[1., 1.],
                [1., 0.]])
        """
        if not self._shapes:
            return self._values.new_empty(0)
        if self._values.numel() == 0:
            raise RuntimeError("to_padded_tensor: at least one constituent tensor should have non-zero numel")
        sizes = [max(column) for column in zip(*self._shapes)]
        if output_size is not None:
            wanted = list(output_size)
            if len(wanted) != self.dim() or wanted[0] != len(self) or any(w < s for w, s in zip(wanted[1:], sizes)):
                raise RuntimeError(
                    "Value in output_size is less than NestedTensor padded size. Truncation is not supported; got "
                    f"{tuple(wanted)} for {(len(self), *sizes)}"
                )
            sizes = wanted[1:]
        others = [dim for dim in range(1, self.dim()) if dim != self._ragged]
        if self._ragged is None or any(sizes[dim - 1] != self._sizes[dim] for dim in others):
            padded = []
            for part in self._parts():
                sides = [side for size, own in zip(reversed(sizes), reversed(part.shape)) for side in (0, size - own)]
                padded.append(wisp.nn.functional.pad(part, sides, value=padding))
            return wisp.stack(padded)
        length, values = sizes[self._ragged - 1], self._values.movedim(self._ragged - 1, 0)
        places = self._segments() * length + self._positions()
        filled = values.new_full((len(self) * length, *values.shape[1:]), padding).index_copy(0, places, values)
        return filled.unflatten(0, (len(self), length)).movedim(1, self._ragged)

    def _segments(self):
        """For each row of the values, the number of its part."""
        counts = self._offsets.diff()
        return wisp.arange(len(self), device=self.device).repeat_interleave(counts, output_size=self._values.shape[self._ragged - 1])

    def _positions(self):
        """For each row of the values, its place in its part."""
        return wisp.arange(self._values.shape[self._ragged - 1], device=self.device) - self._offsets[self._segments()]


def _make(values, shapes, ragged, layout, offsets=None, known=()):
    shapes = [tuple(shape) for shape in shapes]
    if ragged is not None:
        lengths = tuple(shape[ragged - 1] for shape in shapes)
        sizes = NestedSize((len(shapes), *values.shape[: ragged - 1], RaggedSize(lengths), *values.shape[ragged:]))
    else:
        columns = list(zip(*shapes)) or [()]
        sizes = NestedSize((len(shapes), *(column[0] if len(set(column)) == 1 else RaggedSize(column) for column in columns if column)))
    if offsets is None and ragged is not None:
        offsets = wisp.tensor((0, *lengths), dtype=wisp.int64).cumsum(0).to(values.device)
    # What the core sees has no memory, so that nothing can be read that is not there.
    shell = wisp.empty([0] * len(sizes), dtype=values.dtype, device="meta")
    self = _core.Tensor._make_subclass(NestedTensor, shell)
    self._values, self._shapes, self._ragged, self._layout, self._offsets, self._sizes = values, shapes, ragged, layout, offsets, sizes
    self._metadata_cache = dict(known)  # PyTorch's name: the lengths that a program has told, or that were computed on the way
    return self


def pack(parts, layout, like=None):
    """The nested tensor of a list of tensors, whose history it keeps."""
    parts = list(parts)
    if not parts:
        values = wisp.empty(0) if like is None else like.new_empty(0)
        if layout is wisp.jagged:
            raise RuntimeError("Cannot construct a nested tensor from an empty tensor list: the jagged layout has no shape without parts")
        return _make(values, [], None, layout)
    for index, part in enumerate(parts):
        if part.dim() != parts[0].dim():
            told = "All Tensors given to nested_tensor must have the same dimension"
            if layout is wisp.jagged:
                told = "When constructing a nested tensor, all tensors in list must have the same dim"
            raise RuntimeError(
                f"{told}. Found dimension {part.dim()} for "
                f"Tensor at index {index} and dimension {parts[0].dim()} for Tensor at index {index - 1}."
            )
        for kind in ("dtype", "device"):
            if getattr(part, kind) != getattr(parts[0], kind):
                raise RuntimeError(
                    f"When constructing a nested tensor, all tensors in list must have the same {kind}: tensor {index} has "
                    f"{getattr(part, kind)}, and tensor 0 {getattr(parts[0], kind)}"
                )
    shapes = [tuple(part.shape) for part in parts]
    differing = [dim for dim, column in enumerate(zip(*shapes)) if len(set(column)) > 1]
    if len(differing) <= 1 and parts[0].dim() > 0:
        ragged = differing[0] + 1 if differing else 1
        return _make(wisp.cat(parts, ragged - 1), shapes, ragged, layout)._knowing_lengths()
    if layout is wisp.jagged and not parts[0].dim():
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors: they have no size that could differ")
    if layout is wisp.jagged:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout only "
            f"allows for a single ragged dimension; the sizes are {shapes[:4]}{' ...' if len(shapes) > 4 else ''}"
        )
    return _make(wisp.cat([part.reshape(-1) for part in parts]), shapes, None, layout)


def _rebuilt(values, shapes, ragged, jagged):
    return _make(values, shapes, ragged, wisp.jagged if jagged else wisp.strided)
