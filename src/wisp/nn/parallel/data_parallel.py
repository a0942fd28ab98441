"""DataParallel: one process, the batch cut over several devices."""

import wisp
from wisp.nn.modules.module import Module
from wisp.nn.parallel.scatter_gather import gather, parallel_apply, replicate, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _all_devices():
    return [wisp.device("cuda", index) for index in range(wisp.cuda.device_count())] if wisp.cuda.is_available() else []


def _device(value):
    return wisp.device("cuda", value) if isinstance(value, int) else wisp.device(value)


class DataParallel(Module):
    """Run a module on parts of the batch, one part per device; without CUDA devices, on the whole batch.

    >>> import wisp
    >>> model = wisp.nn.DataParallel(wisp.nn.Linear(2, 1))
    >>> model(wisp.ones(3, 2)).shape, list(model.state_dict())
    (torch.Size([3, 1]), ['module.weight', 'module.bias'])
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        given = _all_devices() if device_ids is None else [_device(value) for value in device_ids]
        if given and given[0].type == "cuda" and not wisp.cuda.is_available():
            given = []  # as in PyTorch: the module runs where it is
        self.module, self.dim, self.device_ids = module, dim, given
        self.output_device = _device(output_device) if output_device is not None and given else (given[0] if given else None)

    def forward(self, *inputs, **kwargs):
        if len(self.device_ids) < 2:
            if self.device_ids and (inputs or kwargs):
                (inputs,), (kwargs,) = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
            return self.module(*inputs, **kwargs)
        parts, named = self.scatter(inputs, kwargs, self.device_ids)
        if not parts:
            parts, named = ((),), ({},)
        copies = self.replicate(self.module, self.device_ids[: len(parts)])
        return self.gather(self.parallel_apply(copies, parts, named), self.output_device)

    # The steps as methods, which subclasses replace.
    def scatter(self, inputs, kwargs, device_ids):
        """The arguments in parts, one per device."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module, device_ids):
        """A copy of the module per device."""
        return replicate(module, device_ids, detach=not wisp.is_grad_enabled())

    def parallel_apply(self, replicas, inputs, kwargs):
        """What each copy makes of its part."""
        return parallel_apply(replicas, inputs, kwargs)

    def gather(self, outputs, output_device):
        """The parts of the result as one, on a device."""
        return gather(outputs, output_device, self.dim)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """`DataParallel(module, ...)(*inputs)` as a function."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
