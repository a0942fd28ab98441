"""Data loading, checkpointing and other helpers."""

import importlib

_SUBMODULES = frozenset(
    """benchmark checkpoint collect_env data deterministic dlpack hooks model_zoo
    safetensors tensorboard throughput_benchmark _pytree""".split()
)


def __getattr__(name):
    if name in _SUBMODULES:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    if name == "ThroughputBenchmark":
        return importlib.import_module(f"{__name__}.throughput_benchmark").ThroughputBenchmark
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def swap_tensors(t1, t2):
    """Exchange what two leaf tensors of one class are: their memory, gradients and attributes. Whoever holds one of them holds
    the other's content afterwards.

    >>> import wisp
    >>> a, b = wisp.zeros(2), wisp.ones(3)
    >>> wisp.utils.swap_tensors(a, b)
    >>> a, b
    (tensor([1., 1., 1.]), tensor([0., 0.]))
    """
    for tensor in (t1, t2):
        if not tensor.is_leaf:
            raise RuntimeError(
                "swap_tensors: the tensor is the result of an operator that gradients flow through; only leaves can be swapped: detach() it"
            )
    if type(t1) is not type(t2):
        raise RuntimeError(f"swap_tensors: expected tensors of one class, got {type(t1).__name__} and {type(t2).__name__}")
    if t1 is t2:
        return
    from wisp._tensor import note_swap

    contents = [(tensor.detach(), tensor.requires_grad, tensor.grad, dict(tensor.__dict__)) for tensor in (t1, t2)]
    for tensor, (data, requires_grad, grad, attributes) in zip((t1, t2), reversed(contents)):
        tensor.grad = None
        tensor.requires_grad_(False)
        tensor.data = data
        tensor.__dict__.clear()
        tensor.__dict__.update(attributes)
        tensor.requires_grad_(requires_grad)
        tensor.grad = grad
        note_swap(tensor)
