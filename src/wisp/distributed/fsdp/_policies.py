"""Settings of `fully_shard`."""

import dataclasses

import wisp


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """In which dtypes parameters are gathered and used, gradients are added up, and outputs are given.

    >>> import wisp
    >>> wisp.distributed.fsdp.MixedPrecisionPolicy(param_dtype=wisp.bfloat16).reduce_dtype is None
    True
    """

    param_dtype: wisp.dtype | None = None
    reduce_dtype: wisp.dtype | None = None
    output_dtype: wisp.dtype | None = None
    cast_forward_inputs: bool = True


@dataclasses.dataclass
class OffloadPolicy:
    """Parts stay on the device of the mesh."""


@dataclasses.dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parts, their gradients and so the optimizer's state stay in the memory of the CPU."""

    pin_memory: bool = True
