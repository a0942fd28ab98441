"""Tensors sent to devices and joined from them, as `torch.cuda.comm` has it; gradients flow through all of it."""

import wisp

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _places(devices):
    return [wisp.device("cuda", place) if isinstance(place, int) else place for place in devices]


def broadcast(tensor, devices=None, *, out=None):
    """A tensor on each of the devices, or written to each tensor of `out`.

    >>> import wisp
    >>> [part.tolist() for part in wisp.nn.parallel.comm.broadcast(wisp.ones(2), ["cpu", "cpu"])]
    [[1.0, 1.0], [1.0, 1.0]]
    """
    if (devices is None) == (out is None):
        raise RuntimeError(f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}")
    if out is not None:
        for place in out:
            place.copy_(tensor)
        return tuple(out)
    return tuple(tensor.to(place) for place in _places(devices))


def broadcast_coalesced(tensors, devices, buffer_size=10485760):
    """For each device the list of all tensors there."""
    return [[tensor.to(place) for tensor in tensors] for place in _places(devices)]


def reduce_add(inputs, destination=None):
    """The sum of tensors from several devices, on one of them: the first tensor's, unless told otherwise."""
    inputs = list(inputs)
    if not inputs:
        raise RuntimeError("reduce_add expects at least one tensor to sum")
    if any(part.shape != inputs[0].shape for part in inputs):
        raise ValueError("reduce_add expects all inputs to have the same shape")
    place = inputs[0].device if destination is None else _places([destination])[0]
    total = inputs[0].to(place)
    for part in inputs[1:]:
        total = total + part.to(place)
    return total


def reduce_add_coalesced(inputs, destination=None, buffer_size=10485760):
    """`reduce_add` of the first tensors of all lists, of the second ones, and so on."""
    return tuple(reduce_add(parts, destination) for parts in zip(*inputs))


def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    """A tensor cut along `dim`, evenly or by `chunk_sizes`, one part per device or tensor of `out`."""
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise RuntimeError("'devices' and 'chunk_sizes' must not be specified beside 'out'")
        parts = tensor.split([place.shape[dim] for place in out], dim)
        return tuple(place.copy_(part) for place, part in zip(out, parts))
    places = _places(devices)
    parts = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(place) for part, place in zip(parts, places))


def gather(tensors, dim=0, destination=None, *, out=None):
    """Tensors of several devices as one, joined along `dim`."""
    tensors = list(tensors)
    if out is not None:
        if destination is not None:
            raise RuntimeError("'destination' must not be specified beside 'out'")
        return out.copy_(wisp.cat([part.to(out.device) for part in tensors], dim))
    place = _places([wisp.device("cuda") if destination is None else destination])[0]
    return wisp.cat([part.to(place) for part in tensors], dim)


class Broadcast:
    """`Broadcast.apply(devices, *tensors)`: the tensors on the first device, then those on the second, and so on."""

    @staticmethod
    def apply(target_gpus, *inputs):
        return tuple(part for place in broadcast_coalesced(inputs, target_gpus) for part in place)


class ReduceAddCoalesced:
    """`ReduceAddCoalesced.apply(device, n, *tensors)`: sums of tensors that come as lists of n, a list for each device."""

    @staticmethod
    def apply(destination, num_inputs, *grads):
        return reduce_add_coalesced([grads[i : i + num_inputs] for i in range(0, len(grads), num_inputs)], destination)


class Gather:
    """`Gather.apply(device, dim, *tensors)`: the tensors joined on a device."""

    @staticmethod
    def apply(target_device, dim, *inputs):
        return gather([part.view(1) for part in inputs] if inputs[0].dim() == 0 else inputs, dim, target_device)


class Scatter:
    """`Scatter.apply(devices, sizes, dim, tensor)`: the parts of a tensor on the devices."""

    @staticmethod
    def apply(target_gpus, chunk_sizes, dim, input):
        return scatter(input, target_gpus, chunk_sizes, dim)
