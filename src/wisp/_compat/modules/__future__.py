"""`torch.__future__`: switches of how modules convert their parameters; remembered."""

_state = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value):
    """Remember the switch; Wisp's modules keep their parameters' identity."""
    _state["overwrite"] = value


def get_overwrite_module_params_on_conversion():
    """The switch as it was set."""
    return _state["overwrite"]


def set_swap_module_params_on_conversion(value):
    """Remember the switch."""
    _state["swap"] = value


def get_swap_module_params_on_conversion():
    """The switch as it was set."""
    return _state["swap"]
