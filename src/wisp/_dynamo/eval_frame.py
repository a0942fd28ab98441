"""The class of compiled modules by its inner module."""

from wisp._dynamo import OptimizedModule  # noqa: F401
