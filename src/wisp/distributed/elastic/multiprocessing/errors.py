"""The decorator with which programs for torchrun mark their main function."""

__all__ = ["record"]


def record(fn, error_handler=None):
    """The function itself: `wisp launch` shows the first failing rank's traceback without help."""
    return fn
