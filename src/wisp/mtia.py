"""`torch.mtia`: there is no such device."""

__all__ = ["device_count", "is_available", "is_initialized"]


def is_available():
    """False."""
    return False


def is_initialized():
    """False."""
    return False


def device_count():
    """0."""
    return 0
