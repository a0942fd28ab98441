"""The recorded graph: its nodes, hooks on what is saved in it, hooks on several gradients."""

import abc
import collections
import contextlib
import threading
import weakref

import wisp
from wisp import _core, _reference
from wisp.autograd.function import FunctionCtx
from wisp.utils.hooks import RemovableHandle

__all__ = """
    GradientEdge Node allow_mutation_on_saved_tensors disable_saved_tensors_hooks get_gradient_edge increment_version
    register_multi_grad_hook save_on_cpu saved_tensors_hooks""".split()


class Node(abc.ABC):
    """The abstract class of the graph's nodes (`tensor.grad_fn`) and of the `ctx` of a Function.

    >>> x = wisp.ones(1, requires_grad=True)
    >>> isinstance((x * x).grad_fn, Node)
    True
    """

    @abc.abstractmethod
    def name(self):
        """The name of the derivative: `"MulBackward0"`."""
        raise NotImplementedError

    @property
    @abc.abstractmethod
    def next_functions(self):
        """The nodes that gradients go to next, each with the number of its output."""
        raise NotImplementedError

    @abc.abstractmethod
    def metadata(self):
        """A dictionary for the program's own use."""
        raise NotImplementedError

    @abc.abstractmethod
    def register_hook(self, fn):
        """Call `fn(grad_inputs, grad_outputs)` after the node has run."""
        raise NotImplementedError

    @abc.abstractmethod
    def register_prehook(self, fn):
        """Call `fn(grad_outputs)` before the node runs."""
        raise NotImplementedError


Node.register(_core.Node)
Node.register(FunctionCtx)


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


_active = threading.local()  # .depth: how many contexts of hooks this thread is in


class _Hooks:
    """A context with hooks on saved tensors, for this package's own: in transforms of `wisp.func`, too."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        _core._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)
        _active.depth = getattr(_active, "depth", 0) + 1

    def __exit__(self, *_):
        _active.depth -= 1
        _core._pop_saved_tensors_hooks()


class saved_tensors_hooks(_Hooks):
    """Inside, `pack_hook(tensor)` decides what is kept of each tensor saved for backward, and `unpack_hook` brings it
    back when it is needed."""

    def __enter__(self):
        if recording_transforms():
            raise RuntimeError(_IN_TRANSFORMS)
        super().__enter__()
        _active.public = getattr(_active, "public", 0) + 1

    def __exit__(self, *details):
        _active.public -= 1
        super().__exit__(*details)


_IN_TRANSFORMS = "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks: a hook would see tensors of the transform."


def recording_transforms(change=0):
    """How many transforms that record are under way in this thread; one that begins (1) or ends (-1) says so."""
    if change > 0 and getattr(_active, "public", 0):
        raise RuntimeError(_IN_TRANSFORMS)
    _active.transforms = getattr(_active, "transforms", 0) + change
    return _active.transforms


class save_on_cpu(saved_tensors_hooks):
    """Keeps what is saved for backward in main memory instead of the device's."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        def pack(tensor):
            if not pin_memory:
                return tensor.device, tensor.cpu()
            pinned = wisp.cuda.is_available() and not tensor.is_sparse
            packed = wisp.empty(tensor.size(), dtype=tensor.dtype, device="cpu", layout=tensor.layout, pin_memory=pinned)
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
    if getattr(_active, "depth", 0):
        raise RuntimeError(error_message)  # hooks are in use already
    before, _disabled = _disabled, error_message
    _core._set_saved_tensors_hooks_disabled(error_message)
    try:
        yield
    finally:
        _disabled = before
        _core._set_saved_tensors_hooks_disabled(before)


class _Handle:
    """What the graph keeps of a saved tensor."""


class _AllowMutationOnSavedContext:
    """Tensors that graphs hold, and copies of those that were changed since."""

    def __init__(self):
        self.original = weakref.WeakKeyDictionary()  # handle -> tensor
        self.cloned = weakref.WeakKeyDictionary()  # handle -> the copy made before the first change
        self.tid_to_weakhandle = weakref.WeakValueDictionary()  # (tensor, memory, version) -> handle

    def pack(self, tensor):
        key = id(tensor), tensor._storage_ptr(), tensor._version
        handle = self.tid_to_weakhandle.get(key)
        if handle is None:
            self.tid_to_weakhandle[key] = handle = _Handle()
            self.original[handle] = tensor
        return handle

    def unpack(self, handle):
        if self is not _allowing or (handle not in self.original and handle not in self.cloned):
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was originally recorded."
            )
        return self.cloned[handle] if handle in self.cloned else self.original[handle]

    def clear(self):
        """Forget all tensors."""
        for kept in (self.original, self.cloned, self.tid_to_weakhandle):
            kept.clear()

    def before_change(self, tensor):
        """Copy what is saved of the memory that is about to be written to."""
        place = tensor._storage_ptr(), tensor._version
        for key, handle in list(self.tid_to_weakhandle.items()):
            if key[1:] == place and handle in self.original:
                with wisp.no_grad():
                    self.cloned[handle] = self.original.pop(handle).clone()


_allowing = None  # the context that is open


@contextlib.contextmanager
def allow_mutation_on_saved_tensors():
    """Inside, tensors saved for backward may be changed in place afterwards: they are copied before the change."""
    global _allowing
    from wisp.overrides import TorchFunctionMode
    from wisp.utils._pytree import tree_leaves

    class BeforeChanges(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            name = func.__name__
            if "out" in kwargs:
                changed = kwargs["out"]
            elif (
                (name.endswith("_") and not name.endswith("__"))
                or (name.startswith("__i") and name != "__invert__")
                or name == "__setitem__"
            ):
                changed = args[0]
            else:
                changed = ()
            for tensor in tree_leaves(changed):
                if isinstance(tensor, wisp.Tensor):
                    context.before_change(tensor)
            return func(*args, **kwargs)

    if _allowing is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _AllowMutationOnSavedContext()
    with saved_tensors_hooks(context.pack, context.unpack), BeforeChanges():
        _allowing = context
        try:
            yield context
        finally:
            _allowing = None
            context.clear()


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
