"""The longer name of `wisp.nn.parallel.parallel_apply`."""

from wisp.nn.parallel.scatter_gather import parallel_apply  # noqa: F401
