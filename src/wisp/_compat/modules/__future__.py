"""`torch.__future__`: switches of how modules convert their parameters."""

from wisp.nn.modules import state

_state = {"overwrite": False}


def set_overwrite_module_params_on_conversion(value):
    """Remember the switch; Wisp's modules keep their parameters' identity."""
    _state["overwrite"] = value


def get_overwrite_module_params_on_conversion():
    """The switch as it was set."""
    return _state["overwrite"]


def set_swap_module_params_on_conversion(value):
    """Whether `load_state_dict` asks `Tensor.module_load` what to put in a parameter's place, and conversions of modules (`to`, `to_empty`)
    swap it with what is there: the parameters stay the same objects, even those that had no memory."""
    state.swap_on_conversion = bool(value)


def get_swap_module_params_on_conversion():
    """The switch as it was set."""
    return state.swap_on_conversion
