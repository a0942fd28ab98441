"""Objects that save and load themselves."""

import typing


@typing.runtime_checkable
class Stateful(typing.Protocol):
    """An object with `state_dict()` and `load_state_dict()`: `save` and `load` call them.

    >>> import wisp
    >>> isinstance(wisp.nn.Linear(1, 1), wisp.distributed.checkpoint.stateful.Stateful)
    True
    """

    def state_dict(self):
        """What is to be saved."""

    def load_state_dict(self, state_dict):
        """Take it back."""
