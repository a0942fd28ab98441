"""Names of `torch.jit` by their inner module."""

from wisp.jit import is_tracing, trace, trace_module  # noqa: F401
