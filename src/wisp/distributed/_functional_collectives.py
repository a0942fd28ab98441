"""Collectives that return new tensors, under the names that libraries import."""

import wisp

__all__ = ["all_gather_tensor", "all_reduce", "all_to_all_single", "broadcast", "reduce_scatter_tensor", "wait_tensor"]


class AsyncCollectiveTensor:
    """No tensor is one: collectives have finished when they return."""


def wait_tensor(tensor):
    """The tensor, whose collective has finished."""
    return tensor


def _operation(name):
    ops = wisp.distributed.ReduceOp
    return {"sum": ops.SUM, "avg": getattr(ops, "AVG", ops.SUM), "max": ops.MAX, "min": ops.MIN, "product": ops.PRODUCT}[name.lower()]


def _group(group):
    return None if isinstance(group, (str, list, tuple)) else group


def all_reduce(self, reduceOp, group=None, tag=""):
    """The sum (or what `reduceOp` says) over all processes."""
    result = self.clone()
    wisp.distributed.all_reduce(result, _operation(reduceOp), group=_group(group))
    return result


def all_gather_tensor(self, gather_dim, group=None, tag=""):
    """The tensors of all processes along a dimension."""
    parts = [wisp.empty_like(self) for _ in range(wisp.distributed.get_world_size(_group(group)))]
    wisp.distributed.all_gather(parts, self.contiguous(), group=_group(group))
    return wisp.cat(parts, gather_dim)


def reduce_scatter_tensor(self, reduceOp, scatter_dim, group=None, tag=""):
    """This process's part of the sum over all processes."""
    parts = [part.contiguous() for part in self.chunk(wisp.distributed.get_world_size(_group(group)), scatter_dim)]
    result = wisp.empty_like(parts[0])
    wisp.distributed.reduce_scatter(result, parts, _operation(reduceOp), group=_group(group))
    return result


def broadcast(self, src, group=None, tag=""):
    """The tensor of process `src`."""
    result = self.clone()
    wisp.distributed.broadcast(result, src, group=_group(group))
    return result


def all_to_all_single(self, output_split_sizes, input_split_sizes, group=None, tag=""):
    """Parts of the tensor to all processes, and theirs to this one."""
    count = wisp.distributed.get_world_size(_group(group))
    given = list(self.split(input_split_sizes) if input_split_sizes else self.chunk(count))
    sizes = output_split_sizes or [part.shape[0] for part in given]
    taken = [self.new_empty((size, *self.shape[1:])) for size in sizes]
    wisp.distributed.all_to_all(taken, [part.contiguous() for part in given], group=_group(group))
    return wisp.cat(taken)


def all_to_all_single_autograd(self, output_split_sizes, input_split_sizes, group=None, tag=""):
    """`all_to_all_single` with a gradient, which goes the way back."""

    class Exchange(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return all_to_all_single(x, output_split_sizes, input_split_sizes, group)

        @staticmethod
        def backward(ctx, grad):
            return all_to_all_single(grad.contiguous(), input_split_sizes, output_split_sizes, group)

    return Exchange.apply(self)
