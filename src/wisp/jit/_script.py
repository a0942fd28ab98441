"""Names of `torch.jit` by their inner module."""

from wisp.jit import RecursiveScriptModule, ScriptFunction, ScriptModule, script  # noqa: F401
