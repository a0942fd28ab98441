"""Copies between devices."""

from wisp.nn.parallel.scatter_gather import gather, scatter  # noqa: F401
