"""PyTorch's switches between attention implementations. There is one implementation here, so they change nothing."""

from contextlib import contextmanager
from enum import IntEnum

from wisp import _reference

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """Names of PyTorch's implementations of scaled_dot_product_attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends, set_priority=False):
    """Accepted so that programs which choose an implementation run.

    >>> import wisp
    >>> with wisp.nn.attention.sdpa_kernel(wisp.nn.attention.SDPBackend.MATH):
    ...     pass
    """
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, (list, tuple)) or not all(isinstance(b, SDPBackend) for b in given):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    yield {}


_reference.attach(__name__, globals())


def list_flash_attention_impls():
    """No names: there is one implementation."""
    return []


def current_flash_attention_impl():
    """None: there is one implementation."""
    return None


def activate_flash_attention_impl(impl):
    """Refused: there is one implementation."""
    raise ValueError(f"activate_flash_attention_impl: Wisp has one implementation of attention, and no {impl!r}")


def restore_flash_attention_impl(_raise_warn=True):
    """Nothing to restore."""
