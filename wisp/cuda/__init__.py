"""CUDA: what programs ask about it. There is no device yet: `is_available()` is False."""

_MISSING = "Wisp was not able to find a CUDA device: use device='cpu', or check `wisp doctor`"


def is_available():
    """Whether a CUDA device can be used."""
    return False


def is_initialized():
    return False


def is_bf16_supported(including_emulation=True):
    return False


def device_count():
    """How many CUDA devices there are."""
    return 0


def manual_seed(seed):
    """Set the seed of the current device, if there is one."""


def manual_seed_all(seed):
    """Set the seed of all devices."""


def get_rng_state_all():
    return []


def set_rng_state_all(new_states):
    """Restore what `get_rng_state_all` returned."""


def empty_cache():
    """Give unused memory back to the driver."""


def ipc_collect():
    """Nothing to collect without devices."""


def reset_peak_memory_stats(device=None):
    """Nothing to reset without devices."""


def memory_allocated(device=None):
    return 0


def max_memory_allocated(device=None):
    return 0


def memory_reserved(device=None):
    return 0


def max_memory_reserved(device=None):
    return 0


def _unavailable(name):
    def function(*args, **kwargs):
        raise RuntimeError(f"cuda.{name}: {_MISSING}")
    function.__name__ = name
    return function


for _name in ("current_device", "current_stream", "default_stream", "device", "get_device_capability",
              "get_device_name", "get_device_properties", "get_rng_state", "init", "mem_get_info", "set_device", "set_rng_state", "stream",
              "synchronize", "Event", "Stream", "CUDAGraph"):
    globals()[_name] = _unavailable(_name)


def __getattr__(name):
    if name == "amp":
        import importlib
        return importlib.import_module("wisp.cuda.amp")
    raise AttributeError(f"module 'wisp.cuda' has no attribute {name!r}")
