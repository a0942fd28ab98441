"""Gradients of parameters for each sample of a batch, as an ordinary backward makes them."""

import functools

import wisp
from wisp.func import functional_call, vmap

__all__ = ["call_for_per_sample_grads"]


def _sizes(tensors, dim):
    return {t.shape[dim] for t in tensors if isinstance(t, wisp.Tensor) and t.dim() > dim}


def _keep(parameter, scale):
    """A hook that adds what arrives to the parameter's `grad_sample`."""

    def keep(grad):
        grad = grad * scale if scale != 1 else grad
        before = getattr(parameter, "grad_sample", None)
        parameter.grad_sample = grad if before is None else before + grad

    return keep


def call_for_per_sample_grads(module, *, batch_size=None, loss_reduction="sum", batch_first=True):
    """The module, called so that backward leaves each parameter's gradients, one for each sample of the batch, in `grad_sample`.

    Every sample runs with parameters of its own (`vmap`), so that no layer needs a rule. `loss_reduction` is that of the loss: gradients
    of a "mean" are multiplied by the size of the batch. The batch is the first dimension of every input, the second if not `batch_first`.

    >>> from wisp.nn.utils._per_sample_grad import call_for_per_sample_grads
    >>> layer = wisp.nn.Linear(2, 1)
    >>> call_for_per_sample_grads(layer)(wisp.eye(2)).sum().backward()
    >>> layer.weight.grad_sample
    tensor([[[1., 0.]],
    <BLANKLINE>
            [[0., 1.]]])
    """
    if not isinstance(module, wisp.nn.Module):
        raise RuntimeError(f"call_for_per_sample_grads: Module passed must be nn.Module, got {type(module).__name__}")
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"call_for_per_sample_grads: Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise RuntimeError(f"call_for_per_sample_grads: Batch size passed must be None or a positive integer, got {batch_size}")
    for parameter in module.parameters():
        if getattr(parameter, "grad_sample", None) is not None:
            raise RuntimeError(
                "call_for_per_sample_grads: Current Expanded Weights accumulates the gradients, which will be incorrect for multiple calls "
                "without clearing gradients. Please clear out the grad_sample parameter of the parameters or set it to None"
            )
    dim = 0 if batch_first else 1

    @functools.wraps(module.forward)
    def call(*args, **kwargs):
        sizes = {batch_size} if batch_size is not None else _sizes((*args, *kwargs.values()), dim)
        if len(sizes) != 1:
            raise RuntimeError(
                "call_for_per_sample_grads: "
                + (f"inputs have batches of different sizes {sorted(sizes)}" if sizes else "no input is a tensor with a batch")
                + "; give batch_size"
            )
        size = sizes.pop()
        scale = size if loss_reduction == "mean" else 1
        expanded = {}
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            own = parameter.detach().unsqueeze(0).expand(size, *parameter.shape).requires_grad_(wisp.is_grad_enabled())
            if own.requires_grad:
                own.register_hook(_keep(parameter, scale))
            expanded[name] = own

        def one(parameters, args, kwargs):
            args = [a.unsqueeze(dim) if isinstance(a, wisp.Tensor) and b == dim else a for a, b in zip(args, batched)]
            kwargs = {k: a.unsqueeze(dim) if isinstance(a, wisp.Tensor) and named[k] == dim else a for k, a in kwargs.items()}
            result = functional_call(module, parameters, tuple(args), kwargs)
            return wisp.utils._pytree.tree_map(lambda t: t.squeeze(dim) if isinstance(t, wisp.Tensor) else t, result)

        def where(value):
            return dim if isinstance(value, wisp.Tensor) and value.dim() > dim and value.shape[dim] == size else None

        batched, named = tuple(map(where, args)), {key: where(value) for key, value in kwargs.items()}
        run = vmap(one, in_dims=(0, batched, named), out_dims=dim, randomness="different")
        return run(expanded, tuple(args), kwargs)

    return call
