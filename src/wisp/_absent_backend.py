"""`torch.mps` and `torch.xpu` for programs that ask: Wisp has no such backend, so nothing is available."""

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "synchronize"]


def is_available():
    """False: Wisp runs on the CPU and on CUDA."""
    return False


def device_count():
    """0: there is no such device."""
    return 0


def manual_seed(seed):
    """Nothing to seed."""


manual_seed_all = manual_seed


def empty_cache():
    """Nothing to free."""


def synchronize(device=None):
    """Nothing to wait for."""
