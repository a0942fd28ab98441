"""The longer name of `wisp.nn.parallel.replicate`."""

from wisp.nn.parallel.scatter_gather import replicate  # noqa: F401
