"""The version, as PyTorch's `torch.version` gives it."""

git_version, debug, cuda, hip, xpu = "", False, None, None, None
