"""Tensors without data do not exist here."""


class FakeTensor:
    """No tensor is one."""


def is_fake(x):
    """False."""
    return False
