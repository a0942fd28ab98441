"""Collectives as functions with gradients: they leave their input alone, return the result, and backward is a collective too.

All ranks must run backward through them, in the same order.
"""

import wisp
from wisp import distributed
from wisp.autograd import Function
from wisp.distributed import ReduceOp

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]


def _sum_only(what, op):
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise RuntimeError(f"distributed.nn.functional.{what}: gradients are known for ReduceOp.SUM and AVG, got {op}")


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, tensor, op, group):
        ctx.op, ctx.group = op, group
        result = tensor.detach().clone()
        distributed.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx, gradient):
        return _AllReduce.apply(gradient.contiguous(), ctx.op, ctx.group), None, None


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """The reduction of all processes' tensors.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> x = wisp.ones(2, requires_grad=True)
    >>> wisp.distributed.nn.functional.all_reduce(x * 2).sum().backward()
    >>> x.grad
    tensor([2., 2.])
    >>> wisp.distributed.destroy_process_group()
    """
    _sum_only("all_reduce", op)
    return _AllReduce.apply(tensor, op, group)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, tensor, src, group):
        ctx.src, ctx.group = src, group
        result = tensor.detach().clone()
        distributed.broadcast(result, src, group)
        return result

    @staticmethod
    def backward(ctx, gradient):
        return _Reduce.apply(gradient.contiguous(), ctx.src, ReduceOp.SUM, ctx.group), None, None


def broadcast(tensor, src, group=None):
    """The tensor of rank `src`."""
    return _Broadcast.apply(tensor, src, group)


class _Reduce(Function):
    # Only the destination has a result; elsewhere it is 0, and so is the part of it in the gradient.
    @staticmethod
    def forward(ctx, tensor, dst, op, group):
        ctx.dst, ctx.op, ctx.group = dst, op, group
        result = tensor.detach().clone()
        distributed.reduce(result, dst, op, group)
        return result if distributed.get_rank() == dst else wisp.zeros_like(result)

    @staticmethod
    def backward(ctx, gradient):
        result = _Broadcast.apply(gradient.contiguous(), ctx.dst, ctx.group)
        return result / distributed.get_world_size(ctx.group) if ctx.op == ReduceOp.AVG else result, None, None, None


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    """The reduction of all processes' tensors in rank `dst`, zeros elsewhere."""
    _sum_only("reduce", op)
    return _Reduce.apply(tensor, dst, op, group)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, group, shapes, *tensors):
        ctx.group, ctx.shapes = group, [tensor.shape for tensor in tensors]
        results = [wisp.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device) for shape in shapes]
        distributed.all_to_all(results, [tensor.detach().contiguous() for tensor in tensors], group)
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *gradients)


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    """Tensor number i goes to process i; the output list says the shapes of what comes."""
    return _AllToAll.apply(group, [tensor.shape for tensor in output_tensor_list], *input_tensor_list)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    """Parts of the input, along dimension 0, go to the processes in turn."""
    size = distributed.get_world_size(group)
    sends = list(input_split_sizes or [input.shape[0] // size] * size)
    receives = list(output_split_sizes or [output.shape[0] // size] * size)
    return wisp.cat(_AllToAll.apply(group, [wisp.Size((count, *output.shape[1:])) for count in receives], *input.split(sends)))


def all_gather(tensor, group=None):
    """The tensors of all processes, as a tuple; the gradient is the sum of what all processes make of this one's."""
    size = distributed.get_world_size(group)
    return _AllToAll.apply(group, [tensor.shape] * size, *[tensor] * size)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    """The reduction of everybody's tensor number `rank`."""
    _sum_only("reduce_scatter", op)
    parts = _AllToAll.apply(group, [output.shape] * len(input_list), *input_list)
    stacked = wisp.stack(parts)
    return stacked.sum(0) if op == ReduceOp.SUM else stacked.mean(0)


class _Gather(Function):
    @staticmethod
    def forward(ctx, dst, group, tensor):
        ctx.dst, ctx.group = dst, group
        results = [wisp.zeros_like(tensor) for _ in range(distributed.get_world_size(group))]
        distributed.gather(tensor.detach().contiguous(), results if distributed.get_rank() == dst else None, dst, group)
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *gradients)


def gather(tensor, dst=0, group=None):
    """The tensors of all processes in rank `dst`, as a tuple; zeros elsewhere."""
    return _Gather.apply(dst, group, tensor)


class _Scatter(Function):
    @staticmethod
    def forward(ctx, src, group, *tensors):
        ctx.src, ctx.group = src, group
        result = wisp.zeros_like(tensors[0])
        parts = [tensor.detach().contiguous() for tensor in tensors] if distributed.get_rank() == src else None
        distributed.scatter(result, parts, src, group)
        return result

    @staticmethod
    def backward(ctx, gradient):
        return None, None, *_Gather.apply(ctx.src, ctx.group, gradient)


def scatter(tensors, src=0, group=None):
    """This process's tensor of the list of rank `src`."""
    return _Scatter.apply(src, group, *tensors)
