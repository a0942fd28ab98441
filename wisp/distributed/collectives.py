"""The collectives on tensors. A tensor's own memory is handed to MPI; where it can't be (strided, on a GPU), a copy travels.

Every collective has two parts: a header in which the ranks compare what they are about to do (_work.header), and MPI's nonblocking
operation.
"""
import os

import numpy

import wisp
from wisp.distributed import _world
from wisp.distributed._groups import resolve
from wisp.distributed._work import Work, header, place


class ReduceOp:
    """How values of several processes become one: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"


reduce_op = ReduceOp.RedOpType = ReduceOp
_MPI_OP = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX", "BAND": "BAND", "BOR": "BOR", "BXOR": "BXOR"}
_TYPES = {wisp.float32: "FLOAT", wisp.float64: "DOUBLE", wisp.int8: "INT8_T", wisp.uint8: "UINT8_T", wisp.int16: "INT16_T",
          wisp.int32: "INT32_T", wisp.int64: "INT64_T", wisp.complex64: "C_FLOAT_COMPLEX", wisp.complex128: "C_DOUBLE_COMPLEX",
          wisp.bool: "UINT8_T"}
_CHECK = os.environ.get("WISP_DISTRIBUTED_CHECK", "1") != "0"


def _name(dtype):
    return str(dtype).partition(".")[2]


def _tensor(what, tensor, name="tensor"):
    if not isinstance(tensor, wisp.Tensor):
        raise TypeError(f"{what}: Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got "
                        f"{type(tensor)} instead.")
    if tensor.layout is not wisp.strided:
        raise ValueError(f"{what}: `{name}` must be a dense tensor, got layout {tensor.layout}; use .to_dense()")
    return tensor


def _tensors(what, tensors, count, name):
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(tensor, wisp.Tensor) for tensor in tensors):
        raise TypeError(f"{what}: Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor].")
    if len(tensors) != count:
        raise ValueError(f"{what}: `{name}` needs one tensor per rank, {count}, but has {len(tensors)}")
    return list(tensors)


def _same(what, tensors, tensor, name):
    for i, other in enumerate(tensors):
        if other.dtype != tensor.dtype or other.numel() != tensor.numel():
            raise ValueError(f"{what}: {name}[{i}] is {_name(other.dtype)} {list(other.shape)}, which does not fit the tensor "
                             f"{_name(tensor.dtype)} {list(tensor.shape)}")


def plain(tensor):
    """The tensor itself where MPI can use its memory, else a contiguous copy on the CPU."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous()


def array(tensor):
    """The memory of a plain tensor as an array; 16-bit floats as their bytes."""
    if tensor.dtype in (wisp.bfloat16, wisp.float16):
        return tensor.view(wisp.int16).numpy()
    if tensor.dtype == wisp.bool:
        return tensor.view(wisp.uint8).numpy()
    return tensor.numpy()


def buffer(tensor, count=None):
    """What mpi4py takes: memory, number of elements, type."""
    memory = array(tensor)
    if _world.comm.size == 1:
        return [memory]
    return [memory, memory.size if count is None else count, getattr(_world.mpi(), _TYPES.get(tensor.dtype, "INT16_T"))]


def give_back(target, used):
    """What was received in a copy goes to the tensor that the user gave."""
    with wisp.no_grad():
        if used.data_ptr() != target.data_ptr() or target.device.type != "cpu":
            target.detach().copy_(used.view(target.shape))


def _op(what, op, dtype):
    name = op if isinstance(op, str) else getattr(op, "name", str(op))
    if name not in _MPI_OP:
        raise ValueError(f"{what}: op {op!r} is none of ReduceOp.{', '.join(_MPI_OP)}")
    if name[0] == "B" and (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{what}: Cannot use ReduceOp.{name} with tensors of {_name(dtype)}: bits of integers only")
    if name in ("MIN", "MAX") and dtype.is_complex:
        raise RuntimeError(f"{what}: {name} is not defined for {_name(dtype)}: complex numbers have no order")
    return name


def _mpi_op(name, dtype):
    if _world.comm.size == 1:
        return None
    if dtype == wisp.bool:
        name = {"PRODUCT": "BAND", "MIN": "BAND", "BAND": "BAND", "BXOR": "BXOR"}.get(name, "BOR")
    return getattr(_world.mpi(), _MPI_OP[name])


def _average(tensor, name, size):
    if name == "AVG" and size > 1:
        tensor.div_(size) if tensor.dtype.is_floating_point or tensor.dtype.is_complex else tensor.div_(size, rounding_mode="trunc")


def perform(group, signature, text, chain, results, async_op, staged=False):
    """Begin an operation; without `async_op`, end it too."""
    group.calls += 1
    text = f"{text} at {place()}"
    chains = [chain]
    if group.size() > 1:
        _world.board.begin(group.index, "in " + text)
        if _CHECK:
            check = header(group, signature, text)
            chains = [check, chain] if async_op else [_both(check, chain)]
    work = Work(group, text, chains, results, staged=staged)
    if async_op:
        return work
    work.wait()
    return None


def _both(first, second):
    yield from first
    yield from second


def agree(group, signature, text):
    """Only the header: all ranks must be here with the same signature."""
    perform(group, signature, text, iter(()), (), False)


def _describe(name, tensor, *more):
    extra = "".join(f"{word}, " for word in more)
    return f"{name}({extra}{_name(tensor.dtype)} {list(tensor.shape)})"


def _signature(name, tensor, *more):
    return " ".join(map(str, (name, *more, tensor.dtype, tensor.numel())))


def _root(what, group, rank, group_rank, name):
    """The number within the group of a source or destination, which is given as one of the world or of the group."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"{what}: Can't specify both group_{name} and {name}")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"{what}: there is no rank {group_rank} in a group of {group.size()}")
        return group_rank
    rank = 0 if rank is None else rank
    if rank not in group.ranks:
        raise ValueError(f"{what}: {name}={rank} is not among the ranks {group.ranks} of the group")
    return group.ranks.index(rank)


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """The tensor becomes the reduction of all processes' tensors, in all of them.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> x = wisp.ones(2)
    >>> wisp.distributed.all_reduce(x)
    >>> x
    tensor([1., 1.])
    >>> wisp.distributed.destroy_process_group()
    """
    group = resolve("all_reduce", group)
    if group is None:
        return None
    name = _op("all_reduce", op, _tensor("all_reduce", tensor).dtype)
    half = tensor.dtype in (wisp.bfloat16, wisp.float16) and group.size() > 1
    chain = (_all_reduce_half if half else _all_reduce)(group, tensor, name)
    return perform(group, _signature("all_reduce", tensor, name), _describe("all_reduce", tensor, name), chain, (tensor,), async_op, half)


def _all_reduce(group, tensor, name):
    used = plain(tensor)
    in_place = _world.mpi().IN_PLACE if group.size() > 1 else None
    yield group.comm.Iallreduce(in_place, buffer(used), _mpi_op(name, tensor.dtype))
    _average(used, name, group.size())
    give_back(tensor, used)


_FOLD = {"SUM": wisp.Tensor.sum, "AVG": wisp.Tensor.mean, "PRODUCT": wisp.Tensor.prod, "MIN": wisp.Tensor.amin, "MAX": wisp.Tensor.amax}


def _fold_parts(group, tensor, name):
    """16-bit floats, which MPI can't add: each rank gets everybody's part, and folds it in 32 bits. Returns this rank's part."""
    size = group.size()
    flat = plain(tensor).view(-1)
    share = -(-flat.numel() // size)
    sent = wisp.zeros(size * share, dtype=tensor.dtype)
    sent[:flat.numel()] = flat
    parts = wisp.empty_like(sent)
    yield group.comm.Ialltoall(buffer(sent, share), buffer(parts, share))
    return _FOLD[name](parts.view(size, share).float(), 0).to(tensor.dtype)


def _all_reduce_half(group, tensor, name):
    part = yield from _fold_parts(group, tensor, name)
    whole = wisp.empty(group.size() * part.numel(), dtype=tensor.dtype)
    yield group.second.Iallgather(buffer(part), buffer(whole, part.numel()))
    give_back(tensor, whole[:tensor.numel()])


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """The tensor becomes that of rank `src`."""
    group = resolve("broadcast", group)
    if group is None:
        return None
    _tensor("broadcast", tensor)
    root = _root("broadcast", group, src, group_src, "src")

    def chain():
        used = plain(tensor)
        yield group.comm.Ibcast(buffer(used), root)
        if group.rank() != root:
            give_back(tensor, used)
    label = f"src={group.ranks[root]}"
    return perform(group, _signature("broadcast", tensor, label), _describe("broadcast", tensor, label), chain(), (tensor,), async_op)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """The tensor of rank `dst` becomes the reduction of all processes' tensors."""
    group = resolve("reduce", group)
    if group is None:
        return None
    name = _op("reduce", op, _tensor("reduce", tensor).dtype)
    root = _root("reduce", group, dst, group_dst, "dst")

    def chain():
        if tensor.dtype in (wisp.bfloat16, wisp.float16) and group.size() > 1:
            whole = tensor.detach().clone()
            yield from _all_reduce_half(group, whole, name)
            if group.rank() == root:
                give_back(tensor, whole)
            return
        used = plain(tensor)
        if group.rank() == root:
            in_place = _world.mpi().IN_PLACE if group.size() > 1 else None
            yield group.comm.Ireduce(in_place, buffer(used), _mpi_op(name, tensor.dtype), root)
            _average(used, name, group.size())
            give_back(tensor, used)
        else:
            yield group.comm.Ireduce(buffer(used), None, _mpi_op(name, tensor.dtype), root)
    label = f"dst={group.ranks[root]}"
    half = tensor.dtype in (wisp.bfloat16, wisp.float16)
    return perform(group, _signature("reduce", tensor, name, label), _describe("reduce", tensor, name, label), chain(), (tensor,),
                   async_op, half)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all processes, one after the other, in one tensor.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> out = wisp.empty(2)
    >>> wisp.distributed.all_gather_into_tensor(out, wisp.ones(2))
    >>> out
    tensor([1., 1.])
    >>> wisp.distributed.destroy_process_group()
    """
    what = "all_gather_into_tensor"
    group = resolve(what, group)
    if group is None:
        return None
    _tensor(what, output_tensor, "output_tensor"), _tensor(what, input_tensor, "input_tensor")
    if output_tensor.numel() != input_tensor.numel() * group.size() or output_tensor.dtype != input_tensor.dtype:
        raise ValueError(f"{what}: output tensor size must be equal to world_size times input tensor size: input is "
                         f"{_name(input_tensor.dtype)} "
                         f"{list(input_tensor.shape)}, output {_name(output_tensor.dtype)} {list(output_tensor.shape)} for "
                         f"{group.size()} ranks")
    chain = _all_gather(group, input_tensor, lambda whole: give_back(output_tensor, whole), output_tensor)
    return perform(group, _signature("all_gather", input_tensor), _describe(what, input_tensor), chain, (output_tensor,), async_op)


def _all_gather(group, tensor, finish, target=None):
    """`finish` gets all tensors in one, as rows; `target` is used for it where its memory can be."""
    used = plain(tensor)
    direct = target is not None and target.device.type == "cpu" and target.is_contiguous()
    whole = target.detach() if direct else wisp.empty(group.size() * used.numel(), dtype=used.dtype)
    yield group.comm.Iallgather(buffer(used), buffer(whole, used.numel()))
    finish(whole)


def _spread(tensors, whole):
    rows = whole.view(len(tensors), -1) if whole.numel() else [whole] * len(tensors)
    for tensor, row in zip(tensors, rows):
        give_back(tensor, row)


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """The list gets the tensors of all processes."""
    group = resolve("all_gather", group)
    if group is None:
        return None
    _tensor("all_gather", tensor)
    tensors = _tensors("all_gather", tensor_list, group.size(), "tensor_list")
    _same("all_gather", tensors, tensor, "tensor_list")
    return perform(group, _signature("all_gather", tensor), _describe("all_gather", tensor),
                   _all_gather(group, tensor, lambda whole: _spread(tensors, whole)), tensors, async_op)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """The list of rank `dst` gets the tensors of all processes."""
    group = resolve("gather", group)
    if group is None:
        return None
    _tensor("gather", tensor)
    root = _root("gather", group, dst, group_dst, "dst")
    mine = group.rank() == root
    if not mine and gather_list:
        raise ValueError("gather: Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if mine:
        tensors = _tensors("gather", gather_list, group.size(), "gather_list")
        _same("gather", tensors, tensor, "gather_list")

    def chain():
        used = plain(tensor)
        whole = wisp.empty(group.size() * used.numel(), dtype=used.dtype) if mine else None
        yield group.comm.Igather(buffer(used), buffer(whole, used.numel()) if mine else None, root)
        if mine:
            _spread(tensors, whole)
    label = f"dst={group.ranks[root]}"
    return perform(group, _signature("gather", tensor, label), _describe("gather", tensor, label), chain(), tensors if mine else (),
                   async_op)


def _joined(tensors):
    return wisp.cat([plain(tensor).view(-1) for tensor in tensors])


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """The tensor becomes this process's part of the list of rank `src`."""
    group = resolve("scatter", group)
    if group is None:
        return None
    _tensor("scatter", tensor)
    root = _root("scatter", group, src, group_src, "src")
    mine = group.rank() == root
    if not mine and scatter_list:
        raise ValueError("scatter: Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    if mine:
        tensors = _tensors("scatter", scatter_list, group.size(), "scatter_list")
        _same("scatter", tensors, tensor, "scatter_list")

    def chain():
        used = plain(tensor)
        whole = _joined(tensors) if mine else None
        yield group.comm.Iscatter(buffer(whole, used.numel()) if mine else None, buffer(used), root)
        give_back(tensor, used)
    label = f"src={group.ranks[root]}"
    return perform(group, _signature("scatter", tensor, label), _describe("scatter", tensor, label), chain(), (tensor,), async_op)


def _reduce_scatter(group, output, joined, name):
    whole = joined()
    if whole.dtype in (wisp.bfloat16, wisp.float16) and group.size() > 1:
        part = yield from _fold_parts(group, whole, name)
        give_back(output, part)
        return
    used = plain(output)
    yield group.comm.Ireduce_scatter_block(buffer(whole, used.numel()), buffer(used), _mpi_op(name, output.dtype))
    _average(used, name, group.size())
    give_back(output, used)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """This process's part of the reduction of the lists: the sum of everybody's tensor number `rank`."""
    group = resolve("reduce_scatter", group)
    if group is None:
        return None
    name = _op("reduce_scatter", op, _tensor("reduce_scatter", output, "output").dtype)
    tensors = _tensors("reduce_scatter", input_list, group.size(), "input_list")
    _same("reduce_scatter", tensors, output, "input_list")
    return perform(group, _signature("reduce_scatter", output, name), _describe("reduce_scatter", output, name),
                   _reduce_scatter(group, output, lambda: _joined(tensors), name), (output,), async_op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """This process's part of the reduction of the tensors."""
    what = "reduce_scatter_tensor"
    group = resolve(what, group)
    if group is None:
        return None
    name = _op(what, op, _tensor(what, output, "output").dtype)
    _tensor(what, input, "input")
    if input.numel() != output.numel() * group.size() or input.dtype != output.dtype:
        raise ValueError(f"{what}: input tensor must be the same size as output size times world size: output is {_name(output.dtype)} "
                         f"{list(output.shape)}, input {_name(input.dtype)} {list(input.shape)} for {group.size()} ranks")
    return perform(group, _signature("reduce_scatter", output, name), _describe(what, output, name),
                   _reduce_scatter(group, output, lambda: plain(input), name), (output,), async_op)


def _offsets(counts):
    return [0, *numpy.cumsum(counts[:-1]).tolist()]


def _all_to_all(group, sent, send_counts, receive_counts, finish):
    received = wisp.empty(sum(receive_counts), dtype=sent.dtype)
    source, target = buffer(sent), buffer(received)
    if group.size() > 1:
        source[1:2] = [(send_counts, _offsets(send_counts))]
        target[1:2] = [(receive_counts, _offsets(receive_counts))]
    yield group.comm.Ialltoallv(source, target)
    finish(received)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Tensor number i of the input goes to process i; the output gets one from each."""
    group = resolve("all_to_all", group)
    if group is None:
        return None
    outputs = _tensors("all_to_all", output_tensor_list, group.size(), "output_tensor_list")
    inputs = _tensors("all_to_all", input_tensor_list, group.size(), "input_tensor_list")
    if len({tensor.dtype for tensor in outputs + inputs}) != 1:
        found = sorted({_name(tensor.dtype) for tensor in outputs + inputs})
        raise ValueError(f"all_to_all: all tensors must have one dtype, got {', '.join(found)}")
    counts = [tensor.numel() for tensor in outputs]

    def finish(received):
        for tensor, part in zip(outputs, received.split(counts)):
            give_back(tensor, part)
    chain = _all_to_all(group, _joined(inputs), [tensor.numel() for tensor in inputs], counts, finish)
    return perform(group, f"all_to_all {inputs[0].dtype}", f"all_to_all({_name(inputs[0].dtype)} {[list(t.shape) for t in inputs]})", chain,
                   outputs, async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Parts of the input go to the processes in turn; the output is what came from them. Sizes count along dimension 0."""
    what = "all_to_all_single"
    group = resolve(what, group)
    if group is None:
        return None
    _tensor(what, output, "output"), _tensor(what, input, "input")
    if output.dtype != input.dtype:
        raise ValueError(f"{what}: output is {_name(output.dtype)}, input {_name(input.dtype)}")
    counts = []
    for tensor, sizes, name in ((input, input_split_sizes, "input"), (output, output_split_sizes, "output")):
        rows = tensor.shape[0] if tensor.dim() else 1
        if not sizes:
            if rows % group.size():
                raise RuntimeError(f"{what}: Tensor's dim 0 does not divide equally across group size: {name} has {rows} rows for "
                                   f"{group.size()}")
            sizes = [rows // group.size()] * group.size()
        if len(sizes) != group.size() or sum(sizes) != rows:
            raise RuntimeError(f"{what}: Split sizes doesn't match total dim 0 size: {name}_split_sizes {list(sizes)} for {rows} rows and "
                               f"{group.size()} ranks")
        row = tensor.numel() // rows if rows else 0
        counts.append([size * row for size in sizes])
    chain = _all_to_all(group, plain(input), *counts, lambda received: give_back(output, received))
    return perform(group, f"{what} {input.dtype}", _describe(what, input), chain, (output,), async_op)


def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Wait for all processes of the group."""
    group = resolve("barrier", group)
    if group is None:
        return None

    def chain():
        yield group.comm.Ibarrier()
    return perform(group, "barrier", "barrier()", chain(), (), async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier that says which ranks did not come within `timeout` (a timedelta; the group's by default)."""
    group = resolve("monitored_barrier", group)
    if group is None:
        return
    group.calls += 1
    text = f"monitored_barrier() at {place()}"
    if group.size() == 1:
        return
    _world.board.begin(group.index, "in " + text)
    chain = header(group, "monitored_barrier", text)
    Work(group, text, [chain]).wait(timeout)


_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor
__all__ = ["ReduceOp", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier", "broadcast",
           "gather", "monitored_barrier", "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_tensor", "scatter"]
