"""Operators under the name by which old code reaches them."""


def __getattr__(name):
    from wisp._ops import _function

    found = _function(name)
    if found is None:
        raise AttributeError(f"module 'torch._VF' has no attribute {name!r}")
    return found
