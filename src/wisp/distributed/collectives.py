"""The collectives on tensors: what users may pass, what ranks compare before they begin, and where results go.

Every collective has two parts: a header in which the ranks compare what they are about to do (_work.header), and the primitive of the
group's backend (_mpi.py) for the tensor's device. Where a tensor's own memory can't be used, a copy travels.
"""

import functools
import inspect
import os

import wisp
from wisp.distributed import _world
from wisp.distributed._groups import resolve
from wisp.distributed._traffic import moved
from wisp.distributed._work import HEADER, Work, header, place


class ReduceOp:
    """How values of several processes become one: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"


reduce_op = ReduceOp.RedOpType = ReduceOp
_OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
_CHECK = os.environ.get("WISP_DISTRIBUTED_CHECK", "1") != "0"


def _name(dtype):
    return str(dtype).partition(".")[2]


def _kind(tensor):
    return f"{_name(tensor.dtype)} {list(tensor.shape)}"


def _bytes(*tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _tensor(what, tensor, name="tensor"):
    if not isinstance(tensor, wisp.Tensor):
        raise TypeError(
            f"{what}: Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(tensor)} instead."
        )
    if tensor.layout is not wisp.strided:
        raise ValueError(f"{what}: `{name}` must be a dense tensor, got layout {tensor.layout}; use .to_dense()")
    return tensor


def _tensors(what, tensors, count, name, like=None):
    """A list of one tensor per rank, which all fit the tensor `like`."""
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(tensor, wisp.Tensor) for tensor in tensors):
        raise TypeError(f"{what}: Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor].")
    if len(tensors) != count:
        raise ValueError(f"{what}: `{name}` needs one tensor per rank, {count}, but has {len(tensors)}")
    for i, other in enumerate(tensors):
        if like is not None and (other.dtype != like.dtype or other.numel() != like.numel()):
            raise ValueError(f"{what}: {name}[{i}] is {_kind(other)}, which does not fit the tensor {_kind(like)}")
    return list(tensors)


def _tensors_of_root(what, tensors, mine, count, name, like, side):
    """The list that the root alone passes; None elsewhere."""
    if mine:
        return _tensors(what, tensors, count, name, like)
    if tensors:
        raise ValueError(f"{what}: Argument ``{name}`` must NOT be specified on non-{side} ranks.")
    return None


def _op(what, op, dtype):
    name = op if isinstance(op, str) else getattr(op, "name", str(op))
    if name not in _OPERATIONS:
        raise ValueError(f"{what}: op {op!r} is none of ReduceOp.{', '.join(_OPERATIONS)}")
    if name[0] == "B" and (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{what}: Cannot use ReduceOp.{name} with tensors of {_name(dtype)}: bits of integers only")
    if name in ("MIN", "MAX") and dtype.is_complex:
        raise RuntimeError(f"{what}: {name} is not defined for {_name(dtype)}: complex numbers have no order")
    return name


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


def collective(function):
    """Resolve the argument `group`; a process that is not in it does nothing."""
    at = list(inspect.signature(function).parameters).index("group")

    @functools.wraps(function)
    def call(*arguments, **options):
        given = arguments[at] if len(arguments) > at else options.get("group")
        group = resolve(function.__name__, given)
        if group is None:
            return None
        if len(arguments) > at:
            arguments = (*arguments[:at], group, *arguments[at + 1 :])
        else:
            options["group"] = group
        return function(*arguments, **options)

    return call


def perform(group, signature, text, chain, results=(), async_op=False, staged=False, note=None):
    """Begin an operation; without `async_op`, end it too."""
    group.calls += 1
    text = f"{text} at {place()}"
    chains = [chain]
    if group.size() > 1:
        _world.board.begin(group.index, "in " + text)
        if _CHECK:
            moved("header", HEADER, group.size())
            check = header(group, signature, text, note)
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
    perform(group, signature, text, iter(()))


def _begin(group, what, tensor, chain, results, async_op, *labels, family=None, reduces=False, note=None):
    """Perform a collective whose ranks must agree on `family` (what is called), labels, dtype and number of elements."""
    signature = " ".join(map(str, (family or what, *labels, tensor.dtype, tensor.numel())))
    text = f"{what}({', '.join((*labels, _kind(tensor)))})"
    staged = reduces and group.backend(tensor).staged(tensor.dtype)
    return perform(group, signature, text, chain, results, async_op, staged, note)


def give_back(target, used):
    """What was received in a copy goes to the tensor that the user gave."""
    with wisp.no_grad():
        if used.data_ptr() != target.data_ptr() or target.device != used.device:
            target.detach().copy_(used.view(target.shape))


def _in_place(group, tensor, primitive, *arguments, receives=True):
    """A chain: a primitive of the backend on one tensor."""
    backend = group.backend(tensor)
    used = backend.plain(tensor)
    result = yield from getattr(backend, primitive)(used, *arguments)
    if receives:
        give_back(tensor, used)
    return result


def _into(group, output, tensor, primitive, *arguments):
    """A chain: a primitive from a tensor or list of them (None: another rank has it) to one, or to None."""
    some = output[0] if isinstance(output, list) else tensor if output is None else output
    backend = group.backend(some)
    sent = used = None
    if tensor is not None:
        sent = wisp.cat([backend.plain(part).view(-1) for part in tensor]) if isinstance(tensor, list) else backend.plain(tensor)
    if output is not None:
        used = backend.empty(some, sum(part.numel() for part in output)) if isinstance(output, list) else backend.plain(output)
    yield from getattr(backend, primitive)(used, sent, *arguments)
    if isinstance(output, list):
        for part, values in zip(output, used.split([part.numel() for part in output])):
            give_back(part, values)
    elif output is not None:
        give_back(output, used)


@collective
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
    name = _op("all_reduce", op, _tensor("all_reduce", tensor).dtype)
    moved("all_reduce", _bytes(tensor), group.size())
    return _begin(group, "all_reduce", tensor, _in_place(group, tensor, "all_reduce", name), (tensor,), async_op, name, reduces=True)


@collective
def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """The tensor becomes that of rank `src`."""
    _tensor("broadcast", tensor)
    root = _root("broadcast", group, src, group_src, "src")
    moved("broadcast", _bytes(tensor), group.size())
    chain = _in_place(group, tensor, "broadcast", root, receives=group.rank() != root)
    return _begin(group, "broadcast", tensor, chain, (tensor,), async_op, f"src={group.ranks[root]}")


@collective
def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """The tensor of rank `dst` becomes the reduction of all processes' tensors."""
    name = _op("reduce", op, _tensor("reduce", tensor).dtype)
    root = _root("reduce", group, dst, group_dst, "dst")
    moved("reduce", _bytes(tensor), group.size())
    chain = _in_place(group, tensor, "reduce", name, root, receives=group.rank() == root)
    return _begin(group, "reduce", tensor, chain, (tensor,), async_op, name, f"dst={group.ranks[root]}", reduces=True)


@collective
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
    _tensor(what, output_tensor, "output_tensor"), _tensor(what, input_tensor, "input_tensor")
    if output_tensor.numel() != input_tensor.numel() * group.size() or output_tensor.dtype != input_tensor.dtype:
        raise ValueError(
            f"{what}: output tensor size must be equal to world_size times input tensor size: input is "
            f"{_kind(input_tensor)}, output {_kind(output_tensor)} for {group.size()} ranks"
        )
    moved("all_gather", _bytes(output_tensor), group.size())
    chain = _into(group, output_tensor, input_tensor, "all_gather")
    return _begin(group, what, input_tensor, chain, (output_tensor,), async_op, family="all_gather")


@collective
def all_gather(tensor_list, tensor, group=None, async_op=False):
    """The list gets the tensors of all processes."""
    _tensor("all_gather", tensor)
    tensors = _tensors("all_gather", tensor_list, group.size(), "tensor_list", tensor)
    moved("all_gather", _bytes(*tensors), group.size())
    return _begin(group, "all_gather", tensor, _into(group, tensors, tensor, "all_gather"), tensors, async_op)


@collective
def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """The list of rank `dst` gets the tensors of all processes."""
    _tensor("gather", tensor)
    root = _root("gather", group, dst, group_dst, "dst")
    mine = group.rank() == root
    tensors = _tensors_of_root("gather", gather_list, mine, group.size(), "gather_list", tensor, "destination")
    moved("gather", _bytes(tensor) * group.size(), group.size(), mine)
    chain = _into(group, tensors, tensor, "gather", root)
    return _begin(group, "gather", tensor, chain, tensors or (), async_op, f"dst={group.ranks[root]}")


@collective
def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """The tensor becomes this process's part of the list of rank `src`."""
    _tensor("scatter", tensor)
    root = _root("scatter", group, src, group_src, "src")
    mine = group.rank() == root
    tensors = _tensors_of_root("scatter", scatter_list, mine, group.size(), "scatter_list", tensor, "source")
    moved("scatter", _bytes(tensor) * group.size(), group.size(), mine)
    chain = _into(group, tensor, tensors, "scatter", root)
    return _begin(group, "scatter", tensor, chain, (tensor,), async_op, f"src={group.ranks[root]}")


@collective
def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """This process's part of the reduction of the lists: the sum of everybody's tensor number `rank`."""
    name = _op("reduce_scatter", op, _tensor("reduce_scatter", output, "output").dtype)
    tensors = _tensors("reduce_scatter", input_list, group.size(), "input_list", output)
    moved("reduce_scatter", _bytes(*tensors), group.size())
    chain = _into(group, output, tensors, "reduce_scatter", name)
    return _begin(group, "reduce_scatter", output, chain, (output,), async_op, name, reduces=True)


@collective
def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False, _note=None):
    """This process's part of the reduction of the tensors."""
    what = "reduce_scatter_tensor"
    name = _op(what, op, _tensor(what, output, "output").dtype)
    _tensor(what, input, "input")
    if input.numel() != output.numel() * group.size() or input.dtype != output.dtype:
        raise ValueError(
            f"{what}: input tensor must be the same size as output size times world size: output is {_kind(output)}, "
            f"input {_kind(input)} for {group.size()} ranks"
        )
    moved("reduce_scatter", _bytes(input), group.size())
    chain = _into(group, output, input, "reduce_scatter", name)
    return _begin(group, what, output, chain, (output,), async_op, name, family="reduce_scatter", reduces=True, note=_note)


def _all_to_all(group, output, tensor, receive_counts, send_counts, signature, text, results, async_op):
    size = (tensor[0] if isinstance(tensor, list) else tensor).element_size()
    moved("all_to_all", size * sum(send_counts), group.size(), sent=size * (sum(send_counts) - send_counts[group.rank()]))
    return perform(group, signature, text, _into(group, output, tensor, "all_to_all", receive_counts, send_counts), results, async_op)


@collective
def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Tensor number i of the input goes to process i; the output gets one from each."""
    outputs = _tensors("all_to_all", output_tensor_list, group.size(), "output_tensor_list")
    inputs = _tensors("all_to_all", input_tensor_list, group.size(), "input_tensor_list")
    if len({tensor.dtype for tensor in outputs + inputs}) != 1:
        found = sorted({_name(tensor.dtype) for tensor in outputs + inputs})
        raise ValueError(f"all_to_all: all tensors must have one dtype, got {', '.join(found)}")
    counts = [[tensor.numel() for tensor in tensors] for tensors in (outputs, inputs)]
    return _all_to_all(
        group,
        outputs,
        inputs,
        *counts,
        f"all_to_all {inputs[0].dtype}",
        f"all_to_all({_name(inputs[0].dtype)} {[list(t.shape) for t in inputs]})",
        outputs,
        async_op,
    )


@collective
def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Parts of the input go to the processes in turn; the output is what came from them. Sizes count along dimension 0."""
    what = "all_to_all_single"
    _tensor(what, output, "output"), _tensor(what, input, "input")
    if output.dtype != input.dtype:
        raise ValueError(f"{what}: output is {_name(output.dtype)}, input {_name(input.dtype)}")
    counts = []
    for tensor, sizes, name in ((output, output_split_sizes, "output"), (input, input_split_sizes, "input")):
        rows = tensor.shape[0] if tensor.dim() else 1
        if not sizes:
            if rows % group.size():
                raise RuntimeError(
                    f"{what}: Tensor's dim 0 does not divide equally across group size: {name} has {rows} rows for {group.size()}"
                )
            sizes = [rows // group.size()] * group.size()
        if len(sizes) != group.size() or sum(sizes) != rows:
            raise RuntimeError(
                f"{what}: Split sizes doesn't match total dim 0 size: {name}_split_sizes {list(sizes)} for {rows} rows and "
                f"{group.size()} ranks"
            )
        row = tensor.numel() // rows if rows else 0
        counts.append([size * row for size in sizes])
    return _all_to_all(group, output, input, *counts, f"{what} {input.dtype}", f"{what}({_kind(input)})", (output,), async_op)


@collective
def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Wait for all processes of the group."""
    return perform(group, "barrier", "barrier()", group.backends["cpu"].barrier(), (), async_op)


@collective
def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier that says which ranks did not come within `timeout` (a timedelta; the group's by default)."""
    group.calls += 1
    text = f"monitored_barrier() at {place()}"
    if group.size() > 1:
        _world.board.begin(group.index, "in " + text)
        Work(group, text, [header(group, "monitored_barrier", text)]).wait(timeout)


_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor
__all__ = """
    ReduceOp all_gather all_gather_into_tensor all_reduce all_to_all all_to_all_single barrier broadcast gather monitored_barrier
    reduce reduce_op reduce_scatter reduce_scatter_tensor scatter""".split()
