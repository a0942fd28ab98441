"""Whether a graph is being traced: never."""


def get_proxy_mode():
    """None: nothing is traced."""
    return None
