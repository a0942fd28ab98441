"""Helpers that programs and pickles take from `torch._utils`."""

import wisp


def _flatten_dense_tensors(tensors):
    """The tensors as one vector."""
    return wisp.cat([tensor.reshape(-1) for tensor in tensors]) if len(tensors) else wisp.empty(0)


def _unflatten_dense_tensors(flat, tensors):
    """The parts of a vector in the shapes of the tensors."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.reshape(tensor.shape) for part, tensor in zip(parts, tensors))


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """What a pickled parameter is made by."""
    return wisp.nn.Parameter(data, requires_grad)


def _accumulate(iterable, fn=lambda x, y: x + y):
    """The running sums."""
    import itertools

    return itertools.accumulate(iterable, fn)


class ExceptionWrapper:
    """An exception with its traceback as text, to be raised in another process."""

    def __init__(self, exc_info=None, where="in background"):
        import sys
        import traceback

        kind, value, trace = exc_info or sys.exc_info()
        self.exc_type, self.where, self.exc_msg = kind, where, "".join(traceback.format_exception(kind, value, trace))

    def reraise(self):
        """Raise it again."""
        raise self.exc_type(f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}")
