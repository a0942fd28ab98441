"""Which modules are running."""

import wisp
from wisp import _core
from wisp.autograd.graph import register_multi_grad_hook
from wisp.utils._pytree import tree_leaves

__all__ = ["ModuleTracker"]


def _differentiable(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, wisp.Tensor) and leaf.requires_grad]


class ModuleTracker:
    """Inside of the context, `parents` holds the names of the modules whose `forward` or backward runs; `is_bw` says which.

    >>> import wisp
    >>> from wisp.utils.module_tracker import ModuleTracker
    >>> seen = []
    >>> class Net(wisp.nn.Module):
    ...     def forward(self, x):
    ...         seen.append(sorted(tracker.parents))
    ...         return x
    >>> with ModuleTracker() as tracker:
    ...     _ = Net()(1)
    >>> seen
    [['Global', 'Net']]
    """

    def __init__(self):
        self.parents, self._names = {"Global"}, {}

    def _name(self, module):
        if module not in self._names:
            self._names[module] = type(module).__name__
            for name, child in module.named_modules():
                self._names.setdefault(child, f"{type(module).__name__}.{name}" if name else type(module).__name__)
        return self._names[module]

    def _enter(self, name):
        if self.is_bw and self._run != _core._current_graph_task_id():  # what an earlier backward did not leave
            self._run = _core._current_graph_task_id()
            self.parents = {"Global"}
        self.parents.add(name)

    def _before(self, module, args):
        name = self._name(module)
        self._enter(name)
        inputs = _differentiable(args)
        if inputs:  # backward leaves the module where its inputs' gradients are there
            register_multi_grad_hook(inputs, lambda _: self.parents.discard(name))

    def _after(self, module, args, result):
        name = self._name(module)
        self.parents.discard(name)
        outputs = _differentiable(result)
        if outputs:
            register_multi_grad_hook(outputs, lambda _: self._enter(name), mode="any")

    def __enter__(self):
        from wisp.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        self._run = -1
        self._handles = [register_module_forward_pre_hook(self._before), register_module_forward_hook(self._after, always_call=True)]
        return self

    def __exit__(self, *details):
        for handle in self._handles:
            handle.remove()

    @property
    def is_bw(self):
        """Whether backward is running."""
        return _core._current_graph_task_id() != -1
