"""Where the parts of a tensor lie."""


class Placement:
    """Where a tensor lies."""


class Shard(Placement):
    """Cut along a dimension."""

    def __init__(self, dim):
        self.dim = dim


class Replicate(Placement):
    """The same everywhere."""


class Partial(Placement):
    """To be summed."""
