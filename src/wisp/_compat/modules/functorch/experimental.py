"""`functorch.experimental`: what `torch.func` has by another name."""

from wisp.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_, vmap

__all__ = ["chunk_vmap", "functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]


def chunk_vmap(func, in_dims=0, out_dims=0, randomness="error", chunks=2):
    """As `vmap`, with the samples in that many parts, one after another."""
    from wisp.func._vmap import _inputs

    def mapped(*args, **kwargs):
        size = _inputs(func, in_dims, args)[-1]
        return vmap(func, in_dims, out_dims, randomness, chunk_size=max(1, -(-size // chunks)))(*args, **kwargs)

    return mapped
