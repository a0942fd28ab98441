"""The parts of data parallelism: a batch is cut over devices, copies of a module run on the parts, results are joined."""

import copy

import wisp

__all__ = ["gather", "parallel_apply", "replicate", "scatter", "scatter_kwargs"]


def scatter(inputs, target_gpus, dim=0):
    """Cut each tensor of a nested structure along `dim`, one part per device; other values are repeated.

    >>> import wisp
    >>> from wisp.nn.parallel import scatter
    >>> [part.shape for part in scatter(wisp.ones(5, 2), ["cpu", "cpu"])]
    [torch.Size([3, 2]), torch.Size([2, 2])]
    """
    count = len(target_gpus)
    if isinstance(inputs, wisp.Tensor):
        parts = inputs.chunk(count, dim) if inputs.dim() else (inputs,) * count
        return tuple(part.to(device) for part, device in zip(parts, target_gpus))
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return [type(inputs)(*parts) for parts in zip(*(scatter(value, target_gpus, dim) for value in inputs))]
    if isinstance(inputs, (tuple, list)) and inputs:
        return [type(inputs)(parts) for parts in zip(*(scatter(value, target_gpus, dim) for value in inputs))]
    if isinstance(inputs, dict) and inputs:
        return [type(inputs)(parts) for parts in zip(*(scatter(item, target_gpus, dim) for item in inputs.items()))]
    return [inputs for _ in target_gpus]


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """`scatter` of positional and keyword arguments, brought to the same number of parts."""
    parts = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(parts), len(named))
    return (tuple([*parts, *(() for _ in range(count - len(parts)))]), tuple([*named, *({} for _ in range(count - len(named)))]))


def gather(outputs, target_device, dim=0):
    """Join the results of the parts along `dim` on one device."""
    first = outputs[0]
    if isinstance(first, wisp.Tensor):
        moved = [part.to(target_device) for part in outputs]
        return wisp.stack(moved) if first.dim() == 0 else wisp.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([part[key] for part in outputs], target_device, dim)) for key in first)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(gather(parts, target_device, dim) for parts in zip(*outputs)))
    return type(first)(gather(parts, target_device, dim) for parts in zip(*outputs))


class _Shared:
    """Copies of a module that keep its parameters: gradients of all copies meet in the one module."""

    @staticmethod
    def make(module, device, detach):
        copied = copy.copy(module)
        copied.__dict__ = dict(module.__dict__)
        copied._parameters, copied._buffers, copied._modules = {}, {}, {}
        for registry, kept in ((module._parameters, copied._parameters), (module._buffers, copied._buffers)):
            for name, value in registry.items():
                moved = value if value is None else (value.detach() if detach else value).to(device)
                kept[name] = moved
                copied.__dict__[name] = moved
        for name, child in module._modules.items():
            made = None if child is None else _Shared.make(child, device, detach)
            copied._modules[name] = made
            copied.__dict__[name] = made
        return copied


def replicate(network, devices, detach=False):
    """One copy of the module per device; the copies' gradients flow back into the module's parameters."""
    return [_Shared.make(network, device, detach) for device in devices]


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """Run each module on its own arguments and return the results.

    >>> import wisp
    >>> layer = wisp.nn.Linear(2, 1)
    >>> len(wisp.nn.parallel.parallel_apply([layer, layer], [wisp.ones(1, 2), wisp.ones(3, 2)]))
    2
    """
    kwargs_tup = [{} for _ in modules] if kwargs_tup is None else kwargs_tup
    if not len(modules) == len(inputs) == len(kwargs_tup):
        raise AssertionError(f"parallel_apply: got {len(modules)} modules, {len(inputs)} inputs, {len(kwargs_tup)} keyword arguments")
    return [
        module(*(given if isinstance(given, (tuple, list)) else (given,)), **named)
        for module, given, named in zip(modules, inputs, kwargs_tup)
    ]
