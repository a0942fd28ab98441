"""The same values in memory in different ways: what every operator is tested on."""

import numpy as np

import wisp


def contiguous(array):
    return wisp.from_numpy(np.array(array, order="C"))


def transposed(array):
    """Dimensions in reverse order in memory."""
    array = np.asarray(array)
    return wisp.from_numpy(np.array(array.T, order="C")).permute(*reversed(range(array.ndim)))


def sliced(array):
    """Every second element of a larger tensor, from an offset on."""
    array = np.asarray(array)
    whole = np.full([2 * n + 3 for n in array.shape], 77).astype(array.dtype)
    whole[tuple(slice(2, 2 + 2 * n, 2) for n in array.shape)] = array
    return wisp.from_numpy(whole)[tuple(slice(2, 2 + 2 * n, 2) for n in array.shape)]


def channels_last(array):
    array = np.asarray(array)
    if array.ndim < 3:
        return contiguous(array)
    last = np.array(np.moveaxis(array, 1, -1), order="C")
    return wisp.from_numpy(last).movedim(-1, 1)


LAYOUTS = {"contiguous": contiguous, "transposed": transposed, "sliced": sliced, "channels_last": channels_last}


def expanded(f, x, dim=0, times=3):
    """A function of the first slice of x, seen through a dimension of stride 0: for gradients of expanded inputs."""
    start = x.narrow(dim, 0, 1).detach().clone().requires_grad_()
    sizes = list(start.shape)
    sizes[dim] = times
    return (lambda t, *rest: f(t.expand(sizes), *rest)), start
