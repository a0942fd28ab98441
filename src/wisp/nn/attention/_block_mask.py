"""Masks of `flex_attention` by blocks: which blocks of keys each block of queries sees, in part or whole.

`flex_attention` asks the function of the mask; the blocks are for programs that read, count, print or make them, and a mask
that was made of blocks hides those that it does not list.
"""

import itertools
import math

import wisp

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_NUMBERS = """
    kv_num_blocks kv_indices full_kv_num_blocks full_kv_indices q_num_blocks q_indices full_q_num_blocks full_q_indices""".split()
_SLICED = """Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute is reset. \
You must set it from the original BlockMask's mask_mod."""


def noop_mask(batch, head, token_q, token_kv):
    """Everything is seen."""
    return wisp.ones((), dtype=wisp.bool)


def _sliced(batch, head, token_q, token_kv):
    raise RuntimeError(_SLICED)


def _lists(blocks):
    """How many blocks each row has, and the columns of these first, in order."""
    blocks = blocks.int()
    return blocks.sum(-1, dtype=wisp.int32), blocks.argsort(-1, descending=True, stable=True).int().contiguous()


def _table(counts, columns):
    """The blocks as zeros and ones, from counts and columns."""
    listed = (wisp.arange(columns.shape[-1], device=columns.device) < counts.unsqueeze(-1)).int()
    return wisp.zeros_like(columns, dtype=wisp.int32).scatter_(-1, columns.long(), listed)


def _transposed(counts, columns):
    return (None, None) if counts is None else _lists(_table(counts, columns).transpose(-2, -1))


class BlockMask:
    """The mask of `create_block_mask`: the function, the size it is for, and its blocks.

    >>> from wisp.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
    >>> mask.shape, mask.sparsity(), mask.to_dense().tolist()
    ((1, 1, 256, 256), 25.0, [[[[1, 0], [1, 1]]]])
    """

    _blocks_decide = True  # False where the blocks follow from the function, which then says it all

    def __init__(
        self,
        seq_lengths,
        kv_num_blocks,
        kv_indices,
        full_kv_num_blocks=None,
        full_kv_indices=None,
        q_num_blocks=None,
        q_indices=None,
        full_q_num_blocks=None,
        full_q_indices=None,
        BLOCK_SIZE=(_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod=noop_mask,
    ):
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = tuple(seq_lengths), BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks,
        kv_indices,
        full_kv_num_blocks=None,
        full_kv_indices=None,
        BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod=None,
        seq_lengths=None,
        compute_q_blocks=True,
    ):
        """A mask of the blocks that each row of blocks sees: their number, and their columns first."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        columns = (None,) * 4
        if compute_q_blocks:
            columns = (*_transposed(kv_num_blocks, kv_indices), *_transposed(full_kv_num_blocks, full_kv_indices))
        lengths = seq_lengths or tuple(count * length for count, length in zip(kv_indices.shape[-2:], size))
        rows = kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices
        return cls(lengths, *rows, *columns, BLOCK_SIZE=size, mask_mod=mask_mod or noop_mask)

    @property
    def shape(self):
        """The size of what is masked: [batch, heads, queries, keys]."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self):
        """How many places the mask has, seen or not."""
        return math.prod(self.shape)

    def sparsity(self):
        """The percentage of what lies in blocks that no query sees."""
        blocks = self.kv_num_blocks.sum().item() + (0 if self.full_kv_num_blocks is None else self.full_kv_num_blocks.sum().item())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self):
        """The blocks that are seen, in part or whole, as ones."""
        seen = _table(self.kv_num_blocks, self.kv_indices)
        return seen if self.full_kv_num_blocks is None else seen | _table(self.full_kv_num_blocks, self.full_kv_indices)

    def check(self, lengths):
        """Raise where queries and keys are not as many as the mask is for."""
        if lengths == self.seq_lengths:
            return
        text = f"block_mask was created for block_mask.shape={self.shape} but got q_len={lengths[0]} and kv_len={lengths[1]}. "
        if any(length > own for length, own in zip(lengths, self.seq_lengths)):
            raise ValueError(
                f"{text}As the block mask was created for a smaller length than you're using it for, you likely need to create a new "
                "block mask."
            )
        raise ValueError(
            f"{text}As the block mask was created for a larger length than you're using it for, you can either 1. create a new block "
            "mask with the correct length, or 2. 'adjust' the existing block mask to the correct length by calling "
            "block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the upper left corner, which does not work "
            "for all mask_mods!"
        )

    def seen(self, places):
        """Where a query sees a key, at the places (batch, head, query, key), whose indices broadcast."""
        seen = self.mask_mod(*places)
        if not self._blocks_decide:
            return seen
        spread = lambda blocks: (
            blocks.bool()
            .repeat_interleave(self.BLOCK_SIZE[0], -2)[..., : self.seq_lengths[0], :]
            .repeat_interleave(self.BLOCK_SIZE[1], -1)[..., : self.seq_lengths[1]]
        )
        seen = spread(_table(self.kv_num_blocks, self.kv_indices)) & seen
        return seen if self.full_kv_num_blocks is None else seen | spread(_table(self.full_kv_num_blocks, self.full_kv_indices))

    def as_tuple(self, flatten=True):
        """The lengths, the tensors, four settings of PyTorch's kernels that are not there, the size of a block and the function."""
        tensors = [getattr(self, name) for name in _NUMBERS] + [None] * 4
        whole = (lambda pair: tuple(pair)) if flatten else (lambda pair: (pair,))
        return (*whole(self.seq_lengths), *tensors, *whole(self.BLOCK_SIZE), self.mask_mod)

    def to(self, device):
        """For another device."""
        return self._with(lambda tensor: tensor.to(device))

    def _with(self, change):
        tensors = (getattr(self, name) for name in _NUMBERS)
        changed = (None if tensor is None else change(tensor) for tensor in tensors)
        made = BlockMask(self.seq_lengths, *changed, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)
        made._blocks_decide = self._blocks_decide
        return made

    def _of_rows(self, change, mask_mod, seq_lengths):
        full = (None, None) if self.full_kv_num_blocks is None else change(self.full_kv_num_blocks, self.full_kv_indices)
        rows = (*change(self.kv_num_blocks, self.kv_indices), *full)
        made = self.from_kv_blocks(*rows, self.BLOCK_SIZE, mask_mod, seq_lengths, compute_q_blocks=self.q_indices is not None)
        made._blocks_decide = self._blocks_decide
        return made

    def __getitem__(self, index):
        index = (*(index if isinstance(index, tuple) else (index,)), *[slice(None)] * 3)[:3]
        keep = lambda i: slice(i, i + 1 or None) if isinstance(i, int) else i
        index = tuple(keep(i) for i in index)
        return self._of_rows(lambda counts, columns: (counts[index], columns[index]), _sliced, self.seq_lengths)

    def _adjust(self, new_q_len, new_kv_len):
        """For fewer queries and keys: the upper left corner."""
        rows, columns = (-(-length // size) for length, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE))
        corner = lambda counts, places: _lists(_table(counts, places)[..., :rows, :columns])
        return self._of_rows(corner, self.mask_mod, (new_q_len, new_kv_len))

    def to_string(self, grid_size=(20, 20), limit=4):
        """The blocks as a picture of characters: whole, in part, none."""
        table = self.to_dense()
        steps = [
            1 if most == -1 else max(1, -(-count // most))
            for count, most in zip(table.shape[-2:], (grid_size, grid_size) if isinstance(grid_size, int) else grid_size)
        ]

        def picture(index):
            lines = [str(index)]
            for row in table[index].split(steps[0]):
                shares = [part.float().mean().item() for part in row.split(steps[1], 1)]
                lines.append("".join("██" if share == 1 else "  " if share == 0 else "░░" for share in shares))
            return "\n".join(lines) + "\n"

        places = list(itertools.product(*map(range, table.shape[:-2])))
        pictures = [picture(index) for index in places[:limit]]
        if len(places) > limit:
            pictures += [
                "...",
                "To print out more, set BlockMask.to_string(limit=N)",
                "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
            ]
        return "\n".join(pictures)

    def __str__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self):
        tensors = ((name, getattr(self, name)) for name in _NUMBERS)
        lines = [f"{name}={None if tensor is None else tensor.shape}" for name, tensor in tensors]
        lines += [f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}", f"sparsity={self.sparsity():.2f}%"]
        lines.append(f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}")
        return "BlockMask(\n" + ",\n".join(f"    {line}" for line in lines) + "\n)"


def of_mask(mask, mask_mod, block_size, separate_full_blocks):
    """The blocks of a mask of booleans [batch, heads, queries, keys] that the function describes."""
    queries, keys = mask.shape[-2:]
    rows, columns = -(-queries // block_size[0]), -(-keys // block_size[1])
    padded = wisp.nn.functional.pad(mask, (0, columns * block_size[1] - keys, 0, rows * block_size[0] - queries))
    sums = padded.unflatten(-1, (columns, block_size[1])).unflatten(-3, (rows, block_size[0])).sum((-1, -3))
    whole = block_size[0] * block_size[1] if separate_full_blocks else math.inf
    full = _lists(sums == whole) if separate_full_blocks else (None, None)
    made = BlockMask.from_kv_blocks(*_lists((sums > 0) & (sums < whole)), *full, block_size, mask_mod, (queries, keys))
    made._blocks_decide = False
    return made
