"""Saving and loading of state that lies on many ranks: who writes which part, and which parts of a file make up what a rank needs.

A part is (first index, sizes) of a block of a tensor. Blocks in a file and blocks in memory need not agree: what is read is their
intersection, so a checkpoint loads on any number of ranks and for any way of cutting.
"""

import secrets

import wisp
from wisp import distributed
from wisp.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, Metadata, background, pack, unpack
from wisp.distributed.checkpoint.stateful import Stateful
from wisp.distributed.tensor import DTensor
from wisp.distributed.tensor._utils import compute_local_shape_and_global_offset
from wisp.utils import safetensors

__all__ = ["CheckpointException", "async_save", "load", "save"]


class CheckpointException(RuntimeError):
    """What does not fit between a checkpoint and the state that is to be loaded: every key is listed.

    Wrong: `load({"weight": wisp.empty(3)}, checkpoint_id=folder)` where the saved one has shape [4]. Right: tensors of the shapes that were
    saved, as the `state_dict()` of the same model has them.
    """


class _Place:
    """Where a value is in a nested structure."""

    def __init__(self, owner, name):
        self.owner, self.name = owner, name

    def set(self, value):
        self.owner[self.name] = value


def _flatten(state):
    """{"model.0.weight": (value, place)} of nested dicts; of lists, if there are tensors in them."""
    found = {}

    def walk(owner, name, value, path):
        if isinstance(value, dict) and value:
            for key, item in value.items():
                walk(value, key, item, f"{path}.{key}" if path else str(key))
        elif isinstance(value, (list, tuple)) and _has_tensors(value):
            items = value if isinstance(value, list) else None
            for i, item in enumerate(value):
                walk(items, i, item, f"{path}.{i}")
        else:
            if path in found:
                raise ValueError(f"checkpoint: two values of the state have the name {path!r}")
            found[path] = value, _Place(owner, name)

    if not isinstance(state, dict):
        raise TypeError(f"checkpoint: the state must be a dict, got {type(state).__name__}")
    walk(None, None, state, "")
    found.pop("", None)
    return found


def _has_tensors(value):
    return any(
        isinstance(item, wisp.Tensor)
        or isinstance(item, (list, tuple, dict))
        and _has_tensors(item.values() if isinstance(item, dict) else item)
        for item in value
    )


def _block(tensor):
    """(first index, sizes) of what this rank has of a tensor."""
    if isinstance(tensor, DTensor):
        sizes, begin = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        return list(begin), list(sizes)
    return [0] * tensor.dim(), list(tensor.shape)


def _local(tensor):
    return wisp.Tensor.detach(tensor)


def _resolved(state):
    """State with the `state_dict()` of objects that have one."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state.items()}


def _group(process_group, no_dist):
    if no_dist or not distributed.is_initialized():
        return None
    from wisp.distributed._groups import resolve

    group = resolve("checkpoint", process_group)
    return group if group is not None and group.size() > 1 else None


def _everyone(group, value):
    if group is None:
        return [value]
    found = [None] * group.size()
    distributed.all_gather_object(found, value, group=group)
    return found


def _raise_together(group, what, error):
    """An error of one rank is an error of all, so that none waits for another."""
    errors = _everyone(group, None if error is None else f"{type(error).__name__}: {error}")
    bad = [(rank, text) for rank, text in enumerate(errors) if text]
    if error is not None and (group is None or bad[0][0] == group.rank()):
        raise error
    if bad:
        raise CheckpointException(f"{what}: rank {bad[0][0]} failed: {bad[0][1]}")


def _plan(group, flat, token):
    """Who writes what: (metadata, {key: name in this rank's file}). All ranks compute the same from what everyone has."""
    rank = 0 if group is None else group.rank()
    mine = {
        key: (str(value.dtype).partition(".")[2], list(value.shape), *_block(value), isinstance(value, DTensor))
        for key, (value, _) in flat.items()
        if isinstance(value, wisp.Tensor)
    }
    tensors, written, loads = {}, {}, {}
    for owner, found in enumerate(_everyone(group, mine)):
        for key, (dtype, shape, begin, sizes, cut) in found.items():
            entry = tensors.setdefault(key, {"dtype": dtype, "shape": shape, "parts": {}, "cut": cut})
            if (entry["dtype"], entry["shape"]) != (dtype, shape):
                raise CheckpointException(
                    f"save: {key} is {entry['dtype']} {entry['shape']} in one rank, {dtype} {shape} in rank {owner}; "
                    "what differs between ranks needs a DTensor, or a key of its own"
                )
            if 0 not in sizes or not cut:
                entry["parts"].setdefault((tuple(begin), tuple(sizes)), []).append(owner)
    for key, entry in tensors.items():
        parts = []
        for (begin, sizes), owners in entry.pop("parts").items():
            owner = min(owners, key=lambda owner: loads.get(owner, 0))  # replicas: whoever has least to write so far
            size = 1
            for one in sizes:
                size *= one
            loads[owner] = loads.get(owner, 0) + size
            name = key if list(sizes) == entry["shape"] else f"{key}@{','.join(map(str, begin))}"
            parts.append([f"__{owner}_{token}.distcp", name, list(begin)])
            if owner == rank:
                written[key] = name
        entry["parts"] = parts
        del entry["cut"]
    values, objects = {}, {}
    for key, (value, _) in flat.items():
        if not isinstance(value, wisp.Tensor):
            if value is None or isinstance(value, (bool, int, float, str)):
                values[key] = value
            else:
                objects[key] = pack(value)
    return Metadata(tensors, values, objects), written


def _prepared(flat, written, copy):
    """The tensors of this rank's file, on the CPU; tensors that share memory are copied."""
    result = {}
    for key, name in written.items():
        tensor = _local(flat[key][0]).resolve_conj()
        tensor = (wisp.view_as_real(tensor) if tensor.is_complex() else tensor).cpu().contiguous()
        result[name] = tensor.clone() if copy else tensor
    for names in safetensors.shared_names(result):
        for name in names[1:]:
            result[name] = result[name].clone()
    return result


def _writer(checkpoint_id, storage_writer):
    if storage_writer is None and checkpoint_id is None:
        raise ValueError("checkpoint.save: say where: checkpoint_id=folder, or storage_writer=FileSystemWriter(folder)")
    if storage_writer is not None and checkpoint_id is not None:
        storage_writer.path = str(checkpoint_id)
    return storage_writer or FileSystemWriter(checkpoint_id)


def _begin_save(state_dict, checkpoint_id, storage_writer, process_group, no_dist, copy):
    group, writer = _group(process_group, no_dist), _writer(checkpoint_id, storage_writer)
    error = flat = None
    try:
        flat = _flatten(_resolved(state_dict))
        writer.prepare()
    except Exception as problem:
        error = problem
    _raise_together(group, "save", error)
    token = _everyone(group, secrets.token_hex(4))[0]
    metadata, written = _plan(group, flat, token)
    return group, writer, token, metadata, _prepared(flat, written, copy)


def save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, no_dist=False, use_collectives=True):
    """Save nested dicts of tensors and other values: each rank writes its parts. All ranks call it with the same keys.

    DTensors are saved in parts, ordinary tensors (which all ranks have alike) once, other values by rank 0. Objects with
    `state_dict()` may be values. The checkpoint appears when it is complete; a previous one in the folder stays until then.

    >>> import tempfile, wisp
    >>> from wisp.distributed import checkpoint
    >>> model, folder = wisp.nn.Linear(2, 1), tempfile.mkdtemp()
    >>> _ = checkpoint.save({"model": model, "epoch": 3}, checkpoint_id=folder)
    >>> state = {"model": wisp.nn.Linear(2, 1), "epoch": 0}
    >>> checkpoint.load(state, checkpoint_id=folder)
    >>> wisp.equal(state["model"].weight, model.weight), state["epoch"]
    (True, 3)
    """
    group, writer, token, metadata, tensors = _begin_save(state_dict, checkpoint_id, storage_writer, process_group, no_dist, False)
    rank, error = (0 if group is None else group.rank()), None
    try:
        if tensors:
            writer.write_tensors(f"__{rank}_{token}.distcp", tensors)
    except Exception as problem:
        error = problem
    _raise_together(group, "save", error)
    try:
        if rank == 0:
            writer.write_metadata(metadata, token)
    except Exception as problem:
        error = problem
    _raise_together(group, "save", error)
    return metadata


def async_save(
    state_dict,
    *,
    checkpoint_id=None,
    storage_writer=None,
    planner=None,
    process_group=None,
    async_checkpointer_type=None,
    async_stager=None,
    no_dist=False,
    **options,
):
    """As `save`, but returns when tensors are copied: a thread writes them. Gives a Future; its `result()` waits, and raises errors.

    >>> import tempfile, wisp
    >>> from wisp.distributed import checkpoint
    >>> future = checkpoint.async_save({"w": wisp.ones(2)}, checkpoint_id=tempfile.mkdtemp())
    >>> list(future.result().tensors)
    ['w']
    """
    group, writer, token, metadata, tensors = _begin_save(state_dict, checkpoint_id, storage_writer, process_group, no_dist, True)
    rank, ranks, seconds = (0, 1, 60.0) if group is None else (group.rank(), group.size(), group.timeout)

    def write():
        try:
            if tensors:
                writer.write_tensors(f"__{rank}_{token}.distcp", tensors)
        except Exception as problem:
            writer.tell_done(token, rank, f"{type(problem).__name__}: {problem}")
            raise
        writer.tell_done(token, rank)
        if rank == 0:
            writer.wait_for(token, ranks, seconds)
            writer.write_metadata(metadata, token)
        return metadata

    return background.submit(write)


def _overlap(begin, sizes, other_begin, other_sizes):
    """The intersection of two blocks: (its slices in the one, in the other), or None."""
    ones, others = [], []
    for a, n, b, m in zip(begin, sizes, other_begin, other_sizes):
        low, high = max(a, b), min(a + n, b + m)
        if low >= high:
            return None
        ones.append(slice(low - a, high - a))
        others.append(slice(low - b, high - b))
    return tuple(ones), tuple(others)


def _fill(reader, entry, tensor, key):
    begin, sizes = _block(tensor)
    target, left = _local(tensor), 1
    for size in sizes:
        left *= size
    with wisp.no_grad():
        for part in entry["parts"]:
            source = reader.read(part)
            source = wisp.view_as_complex(source) if entry["dtype"].startswith("complex") else source
            both = _overlap(begin, sizes, part[2], source.shape)
            if both is not None:
                piece = source[both[1]]
                target[both[0]].copy_(piece)
                left -= piece.numel()
    if left > 0:
        raise CheckpointException(f"load: the parts of {key} in {reader.path} leave {left} of this rank's elements out")


def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None, no_dist=False):
    """Load into the tensors of `state_dict`, in place, whatever number of ranks saved them; other values are replaced.

    Each rank reads what it needs. What the checkpoint lacks or has in another shape is an error that lists all of it; what it has beyond
    `state_dict` is left alone.
    """
    if storage_reader is None and checkpoint_id is None:
        raise ValueError("checkpoint.load: say where: checkpoint_id=folder, or storage_reader=FileSystemReader(folder)")
    if storage_reader is not None and checkpoint_id is not None:
        storage_reader.path = str(checkpoint_id)
    reader, group = storage_reader or FileSystemReader(checkpoint_id), _group(process_group, no_dist)
    partial, error = getattr(planner, "allow_partial_load", False), None
    try:
        metadata, resolved = reader.read_metadata(), _resolved(state_dict)
        flat = _flatten(resolved)
        _check(reader, metadata, flat, partial)
        for key, (value, place) in flat.items():
            if key in metadata.tensors:
                _fill(reader, metadata.tensors[key], value, key)
            elif key in metadata.values:
                place.set(metadata.values[key])
            elif key in metadata.objects:
                place.set(unpack(metadata.objects[key]))
    except Exception as problem:
        error = problem
    finally:
        reader.close()
    _raise_together(group, "load", error)
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            value.load_state_dict(resolved[key])
        else:
            state_dict[key] = resolved[key]


def _check(reader, metadata, flat, partial):
    """One error for everything that does not fit."""
    problems, known = [], metadata.state_dict_metadata
    for key, (value, place) in flat.items():
        if key not in known:
            if not partial:
                problems.append(f"Missing key in checkpoint state_dict: {key}.")
        elif isinstance(value, wisp.Tensor) != (key in metadata.tensors):
            has = "a tensor" if key in metadata.tensors else "no tensor"
            problems.append(f"{key}: {has} in the checkpoint, but {type(value).__name__} here.")
        elif key in metadata.tensors and list(value.shape) != metadata.tensors[key]["shape"]:
            problems.append(f"Size mismatch between saved {metadata.tensors[key]['shape']} and current: {list(value.shape)} for {key}.")
        elif key in metadata.tensors and value.is_complex() != metadata.tensors[key]["dtype"].startswith("complex"):
            problems.append(f"{key}: saved as {metadata.tensors[key]['dtype']}, here {value.dtype}.")
        elif key not in metadata.tensors and place.owner is None:
            problems.append(f"{key}: a value inside of a tuple can't be replaced; use a list.")
    if problems:
        extra = sorted(set(known) - set(flat))
        more = f"\n  The checkpoint also has: {', '.join(extra[:10])}{' ...' if len(extra) > 10 else ''}" if extra else ""
        raise CheckpointException(f"load: {reader.path} does not fit:\n  " + "\n  ".join(problems) + more)
