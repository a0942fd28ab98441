"""Sequences of different lengths: padded into one tensor, or packed without padding."""

from collections import namedtuple

import wisp
from wisp import _reference

__all__ = """
    PackedSequence invert_permutation pack_padded_sequence pad_packed_sequence pad_sequence unpad_sequence pack_sequence
    unpack_sequence""".split()


class PackedSequence(namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])):
    """Sequences without padding: the elements of time 0 of all sequences, then of time 1 of those that have one, ...

    Made by `pack_padded_sequence`; RNN, LSTM and GRU take it and return it.
    """

    __slots__ = ()

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2 when batch_sizes is None")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. They should be "
                "instantiated by functions like pack_sequence and pack_padded_sequence in nn.utils.rnn."
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """The same sequences with another dtype or on another device."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        move = {k: v for k, v in kwargs.items() if k in ("non_blocking", "copy")}
        indices = [None if i is None else i.to(data.device, **move) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def cuda(self, *args, **kwargs):
        return self.to(device="cuda")

    def cpu(self, *args, **kwargs):
        return self.to(device="cpu")

    def double(self):
        return self.to(dtype=wisp.double)

    def float(self):
        return self.to(dtype=wisp.float)

    def half(self):
        return self.to(dtype=wisp.half)

    def long(self):
        return self.to(dtype=wisp.long)

    def int(self):
        return self.to(dtype=wisp.int)

    def short(self):
        return self.to(dtype=wisp.short)

    def char(self):
        return self.to(dtype=wisp.int8)

    def byte(self):
        return self.to(dtype=wisp.uint8)

    def pin_memory(self):
        indices = [None if i is None else i.pin_memory() for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(self.data.pin_memory(), self.batch_sizes, *indices)

    @property
    def is_cuda(self):
        return self.data.is_cuda

    def is_pinned(self):
        return self.data.is_pinned()


def invert_permutation(permutation):
    """The permutation that undoes another one."""
    if permutation is None:
        return None
    return wisp.argsort(permutation)


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Take the padding out of (T, N, ...), given the length of each sequence.

    >>> import wisp
    >>> from wisp.nn.utils.rnn import pack_padded_sequence
    >>> padded = wisp.tensor([[1, 2, 3], [4, 0, 0]])
    >>> packed = pack_padded_sequence(padded, [3, 1], batch_first=True)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])
    """
    lengths = lengths.tolist() if isinstance(lengths, wisp.Tensor) else [int(n) for n in lengths]
    if batch_first:
        input = input.transpose(0, 1)
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    steps, batch = input.shape[:2]
    if len(lengths) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})")
    if min(lengths) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if max(lengths) > steps:
        raise RuntimeError(f"Expected lengths of at most {steps}, the padded size, but got {max(lengths)}")
    sorted_indices = None
    if enforce_sorted:
        if any(a < b for a, b in zip(lengths, lengths[1:])):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
                "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
                "sidestep this requirement if you do not need ONNX exportability."
            )
    else:
        order = sorted(range(batch), key=lambda i: -lengths[i])
        lengths = [lengths[i] for i in order]
        sorted_indices = wisp.tensor(order, device=input.device)
        input = input.index_select(1, sorted_indices)

    # Times of the same batch size are taken as one block; there are at most as many as sequences.
    blocks, batch_sizes, start = [], [], 0
    for active in range(batch, 0, -1):
        end = lengths[active - 1]
        if end > start:
            blocks.append(input[start:end, :active].flatten(0, 1))
            batch_sizes += [active] * (end - start)
            start = end
    return PackedSequence(wisp.cat(blocks), wisp.tensor(batch_sizes, device="cpu"), sorted_indices, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """The reverse of `pack_padded_sequence`: the padded tensor and the lengths.

    >>> import wisp
    >>> from wisp.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> padded, lengths = pad_packed_sequence(pack_sequence([wisp.tensor([1, 2]), wisp.tensor([3])]))
    >>> padded.tolist(), lengths.tolist()
    ([[1, 3], [2, 0]], [2, 1])
    """
    data, sizes, _, unsorted_indices = sequence
    batch_sizes = sizes.tolist()
    if not batch_sizes:
        raise RuntimeError("pad_packed_sequence: expected a packed sequence of at least one step, got an empty one")
    steps, batch = len(batch_sizes), batch_sizes[0]
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {steps}"
        )
    lengths = [sum(size > i for size in batch_sizes) for i in range(batch)]
    # Row of the packed data for each place of the padded result; the extra row holds the padding.
    starts = [0]
    for size in batch_sizes:
        starts.append(starts[-1] + size)
    missing = starts[-1]
    rows = [[starts[t] + i if t < steps and i < batch_sizes[t] else missing for i in range(batch)] for t in range(steps)]
    padding = data.new_full((1, *data.shape[1:]), padding_value)
    index = wisp.tensor(rows, device=data.device)
    if total_length is not None:
        index = wisp.cat([index, index.new_full((total_length - steps, batch), missing)])
    lengths = wisp.tensor(lengths)
    if unsorted_indices is not None:
        index = index.index_select(1, unsorted_indices)
        lengths = lengths[unsorted_indices.cpu()]
    padded = wisp.cat([data, padding]).index_select(0, index.flatten()).unflatten(0, tuple(index.shape))
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Stack sequences (length, ...) of different lengths into one tensor, filling up the shorter ones.

    >>> import wisp
    >>> from wisp.nn.utils.rnn import pad_sequence
    >>> pad_sequence([wisp.tensor([1, 2]), wisp.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    if isinstance(sequences, wisp.Tensor):
        sequences = sequences.unbind(0)
    elif not hasattr(sequences, "__iter__"):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side should be one of right or left but got {padding_side}.")
    longest = max(sequence.shape[0] for sequence in sequences)
    rows = []
    for sequence in sequences:
        short = longest - sequence.shape[0]
        if short:
            padding = sequence.new_full((short, *sequence.shape[1:]), padding_value)
            sequence = wisp.cat([padding, sequence] if padding_side == "left" else [sequence, padding])
        rows.append(sequence)
    return wisp.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The reverse of `pad_sequence`: a list of the sequences."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    lengths = lengths.tolist() if isinstance(lengths, wisp.Tensor) else lengths
    return [sequence[:length] for sequence, length in zip(padded_sequences.unbind(0), lengths)]


def pack_sequence(sequences, enforce_sorted=True):
    """Pack a list of sequences of different lengths.

    >>> import wisp
    >>> from wisp.nn.utils.rnn import pack_sequence
    >>> pack_sequence([wisp.tensor([1, 2]), wisp.tensor([3])]).data.tolist()
    [1, 3, 2]
    """
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The reverse of `pack_sequence`: a list of the sequences."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


_reference.attach(__name__, globals())
