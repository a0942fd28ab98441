"""Hooks for `DistributedDataParallel.register_comm_hook`: the plain average, and averages that travel in 16 bits."""

import wisp
from wisp import distributed

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]


def allreduce_hook(process_group, bucket):
    """The average, as without a hook. `process_group` is the group, or None for all."""
    work = distributed.all_reduce(bucket.buffer(), distributed.ReduceOp.AVG, process_group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _compressed(process_group, bucket, dtype):
    size = distributed.get_world_size(process_group)
    small = bucket.buffer().to(dtype).div_(size)
    work = distributed.all_reduce(small, group=process_group, async_op=True)

    def back(future):
        return bucket.buffer().copy_(future.value()[0])

    return work.get_future().then(back)


def fp16_compress_hook(process_group, bucket):
    """The average, sent as float16: half the bytes."""
    return _compressed(process_group, bucket, wisp.float16)


def bf16_compress_hook(process_group, bucket):
    """The average, sent as bfloat16: half the bytes, and float32's range."""
    return _compressed(process_group, bucket, wisp.bfloat16)


def _wrapper(hook, dtype):
    def wrapped(state, bucket):
        whole = bucket.flat
        bucket.flat = whole.to(dtype)
        try:
            future = hook(state, bucket)
        finally:
            bucket.flat = whole
        return future.then(lambda done: whole.copy_(_first(done)))

    return wrapped


def _first(future):
    value = future.value()
    return value[0] if isinstance(value, (list, tuple)) else value


def fp16_compress_wrapper(hook):
    """A hook that gets the bucket in float16, and whose result goes back to the bucket's dtype."""
    return _wrapper(hook, wisp.float16)


def bf16_compress_wrapper(hook):
    """A hook that gets the bucket in bfloat16, and whose result goes back to the bucket's dtype."""
    return _wrapper(hook, wisp.bfloat16)
