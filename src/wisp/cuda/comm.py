"""Copies between GPUs: see `wisp.nn.parallel`."""

from wisp.nn.parallel.scatter_gather import gather, scatter  # noqa: F401
