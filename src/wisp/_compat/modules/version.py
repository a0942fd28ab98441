"""The version, as PyTorch's `torch.version` gives it."""

from wisp import __version__  # noqa: F401

git_version, debug, cuda, hip, xpu = "", False, None, None, None
