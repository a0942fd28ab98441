"""Looking at a graph module while it runs."""

__all__ = ["set_trace"]


def set_trace(gm):
    """The module with a breakpoint of pdb's at the beginning of its `forward`, until it is compiled again.

    >>> traced = wisp.fx.symbolic_trace(lambda x: x + 1)
    >>> "pdb.set_trace()" in set_trace(traced).code
    True
    """

    def at_the_beginning(transform):
        return lambda body: ["import pdb; pdb.set_trace()", *(transform(body) if transform else body)]

    with gm.graph.on_generate_code(at_the_beginning):
        gm.recompile()
    return gm
