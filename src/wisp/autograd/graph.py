"""The recorded graph: its nodes, hooks on what is saved in it, hooks on several gradients."""

import collections
import contextlib
import threading

import wisp
from wisp import _core, _reference
from wisp.utils.hooks import RemovableHandle

__all__ = """
    GradientEdge allow_mutation_on_saved_tensors disable_saved_tensors_hooks get_gradient_edge increment_version
    register_multi_grad_hook save_on_cpu saved_tensors_hooks""".split()


def __getattr__(name):
    if name == "Node":
        return _core.Node
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class GradientEdge(collections.namedtuple("GradientEdge", "node output_nr")):
    """A place in the graph where a gradient flows: an output of a node."""


def get_gradient_edge(tensor):
    """The edge at which the gradient of a tensor arrives; it can stand for the tensor in `grad` and `backward`."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(_gradient_node(tensor), tensor.output_nr)


def _gradient_node(tensor):
    """The node of a tensor; for a leaf the one that accumulates into its `.grad`."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    with wisp.enable_grad():
        return tensor.view_as(tensor).grad_fn.next_functions[0][0]


def increment_version(tensor):
    """Say that tensors were changed by something that autograd could not see."""
    for item in (tensor,) if isinstance(tensor, wisp.Tensor) else tensor:
        _core._increment_version(item)


class saved_tensors_hooks:
    """Inside, `pack_hook(tensor)` decides what is kept of each tensor saved for backward, and `unpack_hook` brings it
    back when it is needed."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        _core._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *_):
        _core._pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Keeps what is saved for backward in main memory instead of the device's."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        def pack(tensor):
            if not pin_memory:
                return tensor.device, tensor.cpu()
            packed = wisp.empty(tensor.size(), dtype=tensor.dtype, device=tensor.device, layout=tensor.layout, pin_memory=True)
            packed.copy_(tensor)
            return tensor.device, packed

        def unpack(packed):
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


_disabled = None  # the message of the innermost `disable_saved_tensors_hooks`


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """Inside, using `saved_tensors_hooks` is an error with this message."""
    global _disabled
    before, _disabled = _disabled, error_message
    _core._set_saved_tensors_hooks_disabled(error_message)
    try:
        yield
    finally:
        _disabled = before
        _core._set_saved_tensors_hooks_disabled(before)


class _Kept:
    def __init__(self, tensor):
        self.tensor = tensor


@contextlib.contextmanager
def allow_mutation_on_saved_tensors():
    """Inside, tensors saved for backward may be changed in place afterwards: what is saved is a copy."""
    with saved_tensors_hooks(lambda tensor: _Kept(tensor.detach().clone()), lambda kept: kept.tensor):
        yield


class _Handles(RemovableHandle):
    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def __getstate__(self):
        return self.handles

    def __setstate__(self, state):
        self.handles = state


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Call `fn` when the gradients of several tensors have been computed.

    mode "all": once per backward, with a list of all gradients (None for those that are not needed); mode "any": with
    the first one.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = list(tensors)
    lock = threading.Lock()
    runs = {}  # id of the backward run -> [gradients seen, how many are expected]

    def hook(i):
        def on_grad(grad):
            run = _core._current_graph_task_id()
            with lock:
                if run not in runs:
                    nodes = [_gradient_node(tensor) for tensor in tensors] if mode == "all" else ()
                    runs.clear()
                    runs[run] = [[None] * len(tensors), sum(map(_core._will_engine_execute_node, nodes))]
                    first = True
                else:
                    first = False
                state = runs[run]
                state[0][i] = grad
                state[1] -= 1
                done = mode == "all" and state[1] == 0
            if done:
                fn(state[0])
            elif mode == "any" and first:
                fn(grad)

        return on_grad

    return _Handles(tensor.register_hook(hook(i)) for i, tensor in enumerate(tensors))


_reference.attach(__name__, globals())
