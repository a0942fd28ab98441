"""`torch.nested`: batches of tensors of different sizes, without padding.

>>> import wisp
>>> words = wisp.nested.nested_tensor([wisp.randn(5, 8), wisp.randn(2, 8)], layout=wisp.jagged)
>>> [part.shape for part in wisp.nn.Linear(8, 3)(words).unbind()]
[torch.Size([5, 3]), torch.Size([2, 3])]
"""

import wisp
from wisp import _reference
from wisp.nested._tensor import NestedTensor, _make, pack

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]


def _layout(layout):
    if layout not in (None, wisp.strided, wisp.jagged):
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}; expected torch.strided or torch.jagged")
    return wisp.strided if layout is None else layout


def nested_tensor(tensor_list, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A nested tensor with copies of tensors, or lists of numbers, as its parts; a leaf of the graph.

    >>> import wisp
    >>> wisp.nested.nested_tensor([[1.0, 2.0], [3.0]]).unbind()
    (tensor([1., 2.]), tensor([3.]))
    """
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError(f"nested_tensor(): Expected first argument to be a list of tensors, got {type(tensor_list).__name__}")
    parts = [
        (part.detach() if isinstance(part, wisp.Tensor) else wisp.tensor(part, dtype=dtype)).to(device=device, dtype=dtype)
        for part in tensor_list
    ]
    if not parts:
        result = pack([], _layout(layout), wisp.empty(0, dtype=dtype, device=device))
    else:
        result = pack(parts, _layout(layout))
    if len(parts) == 1:  # one part alone is not copied by packing
        result = result._with(result._values.clone())
    return result.requires_grad_(requires_grad)


def as_nested_tensor(ts, dtype=None, device=None, layout=None):
    """A nested tensor of tensors, whose history it keeps; a tensor is taken as a batch of equal parts.

    >>> import wisp
    >>> x = wisp.ones(2, requires_grad=True)
    >>> wisp.nested.as_nested_tensor([x, x[:1]]).sum().backward()
    >>> x.grad
    tensor([2., 1.])
    """
    if isinstance(ts, NestedTensor):
        if layout is not None and layout is not ts.layout:
            raise RuntimeError(f"Converting between nested tensor layouts is not supported: got {ts.layout}, asked for {layout}")
        same = dtype in (None, ts.dtype) and (device is None or wisp.device(device) == ts.device)
        return ts if same else ts.to(device=device, dtype=dtype)
    if not isinstance(ts, (wisp.Tensor, list, tuple)) or isinstance(ts, (list, tuple)) and not all(isinstance(t, wisp.Tensor) for t in ts):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors ")
    if isinstance(ts, wisp.Tensor):
        if ts.dim() < 2:
            raise RuntimeError(f"as_nested_tensor(): Expected tensor argument to have dim() > 1, got a tensor of {ts.dim()} dimensions")
        values = ts.to(device=device, dtype=dtype).flatten(0, 1)  # a view, if the tensor is contiguous
        return _make(values, [ts.shape[1:]] * len(ts), 1, _layout(layout))._knowing_lengths()
    return pack([part.to(device=device, dtype=dtype) for part in ts], _layout(layout))


def to_padded_tensor(input, padding, output_size=None, out=None):
    """A dense tensor in which the parts are filled up to the largest sizes with `padding`.

    >>> import wisp
    >>> batch = wisp.nested.nested_tensor([[1.0, 2.0], [3.0]])
    >>> wisp.nested.to_padded_tensor(batch, -1.0)
    tensor([[ 1.,  2.],
            [ 3., -1.]])
    """
    result = input.to_padded_tensor(padding, output_size)
    return result if out is None else out.copy_(result)


def nested_tensor_from_jagged(values, offsets=None, lengths=None, jagged_dim=None, min_seqlen=None, max_seqlen=None):
    """The nested tensor over packed values, whose parts end at `offsets` or have these `lengths`. Nothing is copied, unless both
    are given: then the parts, which lie with holes between them, are packed.

    >>> import wisp
    >>> batch = wisp.nested.nested_tensor_from_jagged(wisp.arange(5), offsets=wisp.tensor([0, 2, 5]))
    >>> batch.unbind()
    (tensor([0, 1]), tensor([2, 3, 4]))
    """
    if offsets is None and lengths is None:
        raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
    ragged = 1 if jagged_dim is None else jagged_dim
    if not 1 <= ragged <= values.dim():
        raise RuntimeError(f"nested_tensor_from_jagged(): jagged_dim is {jagged_dim}, expected one from 1 to {values.dim()}")
    place = ragged - 1
    if offsets is None:
        offsets = wisp.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        lengths = None
    ends = offsets.tolist()
    if any(a > b for a, b in zip(ends, ends[1:])) or ends[0] < 0 or ends[-1] > values.shape[place]:
        raise RuntimeError(f"nested_tensor_from_jagged(): offsets {ends[:6]} do not rise from 0 to {values.shape[place]}")
    if lengths is not None:
        starts = ends[: len(lengths)]
        return pack([values.narrow(place, start, length) for start, length in zip(starts, lengths.tolist())], wisp.jagged)
    if ends[-1] != values.shape[place]:
        values = values.narrow(place, 0, ends[-1])  # what lies behind the last part is none of ours
    if ends[0] != 0:
        return pack([values.narrow(place, a, b - a) for a, b in zip(ends, ends[1:])], wisp.jagged)
    shapes = [(*values.shape[:place], b - a, *values.shape[ragged:]) for a, b in zip(ends, ends[1:])]
    values = values.view_as(values)  # the nested tensor is a view
    known = {"min_seqlen": min_seqlen, "max_seqlen": max_seqlen}
    return _make(values, shapes, ragged, wisp.jagged, offsets, {name: n for name, n in known.items() if n is not None})


def _from_padded(padded, offsets, ragged_idx=1, min_seqlen=None, max_seqlen=None):
    """The jagged tensor of the beginnings of a padded one's rows, as long as `offsets` says."""
    rows = padded.movedim(ragged_idx, 1)
    mask = wisp.arange(rows.shape[1], device=padded.device) < offsets.diff().unsqueeze(1)
    return nested_tensor_from_jagged(rows[mask].movedim(0, ragged_idx - 1), offsets, None, ragged_idx, min_seqlen, max_seqlen)


def _jagged_from_list(tensors, offsets, dtype=None, device=None):
    """The jagged tensor of a list of tensors, and its offsets: those that were given, or new ones."""
    made = as_nested_tensor(list(tensors), dtype=dtype, device=device, layout=wisp.jagged)
    if offsets is not None:
        made._offsets = offsets
    return made, made._offsets


def narrow(tensor, dim, start, length, layout=wisp.strided):
    """The nested tensor of stretches of a dense one: row i from `start[i]`, `length[i]` long.

    >>> import wisp
    >>> x = wisp.arange(6).reshape(2, 3)
    >>> wisp.nested.narrow(x, 1, wisp.tensor([0, 1]), wisp.tensor([1, 2]), layout=wisp.jagged).unbind()
    (tensor([0]), tensor([4, 5]))
    """
    if dim % tensor.dim() != 1:
        raise RuntimeError(f"narrow(): a nested tensor has its ragged dimension at 1, got dim={dim}")
    numbers = [value.tolist() if isinstance(value, wisp.Tensor) else [value] * len(tensor) for value in (start, length)]
    return pack([row.narrow(0, first, count) for row, first, count in zip(tensor, *numbers)], _layout(layout))


def masked_select(tensor, mask):
    """The elements of a tensor at the places where a mask is true: for each row, a part.

    >>> import wisp
    >>> x = wisp.tensor([[1, 2], [3, 4]])
    >>> wisp.nested.masked_select(x, x != 3).unbind()
    (tensor([1, 2]), tensor([4]))
    """
    if tensor.layout is not wisp.strided:
        raise RuntimeError(f"torch.nested.masked_select requires a strided tensor, given {tensor.layout}")
    mask = mask.expand_as(tensor)
    counts = mask.sum(-1).flatten()
    return nested_tensor_from_jagged(tensor.masked_select(mask), wisp.cat([counts.new_zeros(1), counts.cumsum(0)]))


_reference.attach(__name__, globals())
