"""Which modules are running."""

import wisp

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Inside of the context, `parents` holds the names of the modules whose `forward` runs.

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

    def __enter__(self):
        from wisp.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        self._handles = [
            register_module_forward_pre_hook(lambda module, args: self.parents.add(self._name(module))),
            register_module_forward_hook(lambda module, args, result: self.parents.discard(self._name(module)), always_call=True),
        ]
        return self

    def __exit__(self, *details):
        for handle in self._handles:
            handle.remove()

    is_bw = property(lambda self: not wisp.is_grad_enabled())
