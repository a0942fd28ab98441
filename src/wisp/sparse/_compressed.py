"""Compressed layouts in general: batches of matrices, blocks in place of elements, and dense dimensions inside of each entry.

`compressed` has the shape (*batch, lines + 1), `plain` (*batch, nnz), values (*batch, nnz, *block, *dense); a line is a row of CSR and
BSR, a column of CSC and BSC, in units of blocks.
"""

import wisp

ROWS, COLUMNS = (wisp.sparse_csr, wisp.sparse_bsr), (wisp.sparse_csc, wisp.sparse_bsc)
BLOCKED = (wisp.sparse_bsr, wisp.sparse_bsc)
LAYOUTS = ROWS + COLUMNS
TRANSPOSED = dict(zip(LAYOUTS, COLUMNS + ROWS, strict=True))


def names(layout):
    """How the two index tensors of a layout are called."""
    return ("crow_indices", "col_indices") if layout in ROWS else ("ccol_indices", "row_indices")


def check(compressed, plain, values, size, layout):
    """Refuse parts that do not make a tensor of this layout."""
    first, second = names(layout)
    batch, block = compressed.dim() - 1, 2 if layout in BLOCKED else 0
    dense = values.dim() - 1 - batch - block
    if layout not in LAYOUTS:
        raise RuntimeError(f"expected a compressed layout, got {layout}")
    if batch < 0 or plain.dim() != compressed.dim():
        raise RuntimeError(f"{first} and {second} dimensionalities must be equal and at least 1, got {compressed.dim()} and {plain.dim()}")
    if dense < 0:
        raise RuntimeError(
            f"values must have dimensionality > sum of batch and block dimensionalities (={batch} + {block}), got {values.dim()}"
        )
    if len(size) != batch + 2 + dense:
        raise RuntimeError(
            f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={batch} + 2 + {dense}) but got {len(size)}"
        )
    lead = tuple(size[:batch])
    if tuple(compressed.shape[:-1]) != lead or tuple(plain.shape[:-1]) != lead or tuple(values.shape[:batch]) != lead:
        raise RuntimeError(f"all batch dimensions of {first}, {second} and values must be {lead}")
    if plain.shape[-1] != values.shape[batch]:
        raise RuntimeError(f"{second}.shape[-1] must be equal to nnz (={values.shape[batch]}) as told by values.shape[{batch}]")
    if tuple(values.shape[batch + 1 + block :]) != tuple(size[batch + 2 :]):
        raise RuntimeError(f"dense dimensions of values must be {tuple(size[batch + 2 :])}, got {tuple(values.shape[batch + 1 + block :])}")
    rows, columns = size[batch : batch + 2]
    height, width = values.shape[batch + 1 : batch + 3] if block else (1, 1)
    if block and (height == 0 or width == 0 or rows % height or columns % width):
        raise RuntimeError(f"tensor shape[{batch}] must be divisible by blocksize[0] and shape[{batch + 1}] by blocksize[1]")
    lines, others = (rows // height, columns // width) if layout in ROWS else (columns // width, rows // height)
    if compressed.shape[-1] != lines + 1:
        counted = "nrows" if layout in ROWS else "ncols"
        raise RuntimeError(f"{first}.shape[-1] must be equal to the number of {counted} + 1 (={lines + 1}), but got {compressed.shape[-1]}")
    if compressed.dtype not in (wisp.int32, wisp.int64) or plain.dtype != compressed.dtype:
        raise RuntimeError(f"{first} and {second} must be int32 or int64, and alike, got {compressed.dtype} and {plain.dtype}")
    nnz = plain.shape[-1]
    if compressed.numel() and bool((compressed[..., 0] != 0).any()):
        raise RuntimeError(f"`{first}[..., 0] == 0` is not satisfied.")
    if compressed.numel() and bool((compressed[..., -1] != nnz).any()):
        raise RuntimeError(f"`{first}[..., -1] == nnz` is not satisfied.")
    steps = compressed.diff(dim=-1)
    if bool(((steps < 0) | (steps > others)).any()):
        raise RuntimeError(f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= plain_dim` is not satisfied.")
    if plain.numel() and bool(((plain < 0) | (plain >= others)).any()):
        raise RuntimeError(f"`0 <= {second} < {'ncols' if layout in ROWS else 'nrows'}` is not satisfied.")
    keys = lines_of(compressed, plain) * max(others, 1) + plain.long()
    if nnz > 1 and bool((keys.diff(dim=-1) <= 0).any()):
        raise RuntimeError(f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i is sorted and distinct` is not satisfied.")


def size_of(compressed, plain, values, layout):
    """The smallest shape that has room for the entries."""
    batch, block = compressed.dim() - 1, 2 if layout in BLOCKED else 0
    height, width = values.shape[batch + 1 : batch + 3] if block else (1, 1)
    lines, others = compressed.shape[-1] - 1, int(plain.max()) + 1 if plain.numel() else 0
    rows, columns = (lines, others) if layout in ROWS else (others, lines)
    return (*compressed.shape[:-1], rows * height, columns * width, *values.shape[batch + 1 + block :])


def lines_of(compressed, plain):
    """The line of each entry, in the shape of `plain`."""
    counts = compressed.long().diff(dim=-1)
    numbers = wisp.arange(counts.shape[-1], device=plain.device).expand(counts.shape).reshape(-1)
    return numbers.repeat_interleave(counts.reshape(-1), output_size=plain.numel()).reshape(plain.shape)


def entries(tensor):
    """Every element by itself: coordinates (batch + 2, n) and values (n, *dense)."""
    compressed, plain = tensor._index
    values, batch = tensor._sparse_values, compressed.dim() - 1
    line, plain = lines_of(compressed, plain), plain.long()
    row, column = (line, plain) if tensor._kind in ROWS else (plain, line)
    places = [
        wisp.arange(n, device=plain.device).reshape(-1, *[1] * (batch - i)).expand(plain.shape) for i, n in enumerate(plain.shape[:-1])
    ]
    inner = batch + 1
    if tensor._kind in BLOCKED:
        height, width = values.shape[batch + 1 : batch + 3]
        shape = (*plain.shape, height, width)
        row = (row[..., None, None] * height + wisp.arange(height, device=plain.device)[:, None]).expand(shape)
        column = (column[..., None, None] * width + wisp.arange(width, device=plain.device)).expand(shape)
        places = [place[..., None, None].expand(shape) for place in places]
        inner = batch + 3
    index = wisp.stack([place.reshape(-1) for place in (*places, row, column)])
    return index, values.reshape(index.size(1), *values.shape[inner:])


def nothing(size, layout, block, dense_dim, dtype, device):
    """(compressed, plain), values of a tensor without entries."""
    batch = len(size) - 2 - dense_dim
    lead, (rows, columns), inner = size[:batch], size[batch : batch + 2], size[batch + 2 :]
    height, width = block or (1, 1)
    lines = rows // height if layout in ROWS else columns // width
    index = tuple(wisp.zeros((*lead, count), dtype=wisp.int64, device=device) for count in (lines + 1, 0))
    return index, wisp.zeros((*lead, 0, *(block or ()), *inner), dtype=dtype, device=device)


def picked(dense, tensor):
    """The elements of a dense tensor at the places that a compressed one has, in the shape of its values."""
    index, _ = entries(tensor)
    return dense[tuple(index)].reshape(tensor._sparse_values.shape[: -tensor.dense_dim() or None] + dense.shape[index.size(0) :])


def block_of(size):
    """The height and width of blocks, which one number gives for both."""
    return (size, size) if isinstance(size, int) else tuple(size)


def parts(dense, layout, blocksize, dense_dim):
    """(compressed, plain, values) of the elements, or blocks, of a dense tensor that are not zero."""
    batch = dense.dim() - 2 - dense_dim
    if batch < 0:
        raise RuntimeError(
            f"to_sparse: {layout} needs at least 2 dimensions besides {dense_dim} dense ones, got shape {tuple(dense.shape)}"
        )
    if (blocksize is not None) != (layout in BLOCKED):
        if blocksize is None:
            raise RuntimeError(f"to_sparse: {layout} needs a blocksize")
        raise RuntimeError(f"to_sparse: conversion to {layout} does not use the blocksize argument")
    height, width = (1, 1) if blocksize is None else block_of(blocksize)
    lead, (rows, columns), inner = dense.shape[:batch], dense.shape[batch : batch + 2], dense.shape[batch + 2 :]
    if height <= 0 or width <= 0 or rows % height or columns % width:
        raise RuntimeError(f"tensor sparse size ({rows}, {columns}) must be divisible by given blocksize ({height}, {width})")
    blocks = dense.reshape(*lead, rows // height, height, columns // width, width, *inner).movedim(batch + 1, batch + 2)
    if layout in COLUMNS:
        blocks = blocks.transpose(batch, batch + 1)
    filled = blocks.detach() != 0
    filled = filled.any(tuple(range(batch + 2, filled.dim()))) if filled.dim() > batch + 2 else filled
    counts = filled.sum(-1)
    total = counts.sum(-1).reshape(-1)
    if total.numel() and bool((total != total[0]).any()):
        raise RuntimeError("Expect the same number of specified elements per batch.")
    compressed = wisp.cat([counts.new_zeros((*lead, 1)), counts.cumsum(-1)], -1)
    index = filled.nonzero().t()
    nnz = int(total[0]) if total.numel() else 0
    values = blocks[tuple(index)]
    if layout not in BLOCKED:
        values = values.reshape(values.size(0), *inner)
    return compressed, index[-1].reshape(*lead, nnz), values.reshape(*lead, nnz, *values.shape[1:])
