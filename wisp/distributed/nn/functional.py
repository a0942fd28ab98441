"""Collectives with gradients; in a group of one process each is the identity."""
import wisp.distributed as _dist

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]


def all_reduce(tensor, op=_dist.ReduceOp.SUM, group=None):
    """The reduction over all processes."""
    _dist._check("all_reduce")
    return tensor


def broadcast(tensor, src, group=None):
    """The tensor of the source."""
    _dist._peer("broadcast", src)
    return tensor


def reduce(tensor, dst, op=_dist.ReduceOp.SUM, group=None):
    """The reduction, at the destination."""
    _dist._peer("reduce", dst)
    return tensor


def all_gather(tensor, group=None):
    """The tensors of all processes."""
    _dist._check("all_gather")
    return (tensor,)


def gather(tensor, dst=0, group=None):
    """The tensors of all processes, at the destination."""
    _dist._peer("gather", dst)
    return (tensor,)


def scatter(tensors, src=0, group=None):
    """This process's part of the source's list."""
    _dist._peer("scatter", src)
    return tensors[0]


def reduce_scatter(output, input_list, op=_dist.ReduceOp.SUM, group=None):
    """This process's part of the reduction of the lists."""
    _dist._check("reduce_scatter")
    return input_list[0]


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    """Part i goes to process i."""
    _dist._check("all_to_all")
    return tuple(input_tensor_list)
