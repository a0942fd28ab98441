"""Parts of `torch._subclasses` that libraries ask."""
