"""The old place of `wisp.hub.load_state_dict_from_url`."""

from wisp.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]
