"""The settings of `save` and `load` that programs pass as planners."""


class DefaultSavePlanner:
    """Nothing to set: nested state is flattened, and what several ranks have is written once."""

    def __init__(self, flatten_state_dict=True, flatten_sharded_tensors=True, dedup_replicated_tensors=None, **options):
        self.flatten_state_dict = flatten_state_dict


class DefaultLoadPlanner:
    """`allow_partial_load` leaves alone what the checkpoint lacks."""

    def __init__(self, flatten_state_dict=True, flatten_sharded_tensors=True, allow_partial_load=False):
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
