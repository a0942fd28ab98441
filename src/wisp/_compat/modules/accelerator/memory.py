"""The memory of the accelerator; where there is none, nothing is taken."""

import wisp as _wisp

__all__ = """
    empty_cache get_memory_info max_memory_allocated max_memory_reserved memory_allocated memory_reserved memory_stats
    reset_accumulated_memory_stats reset_peak_memory_stats""".split()


def empty_cache():
    """Give memory that is kept for later back to the device."""
    if _wisp.cuda.is_available():
        _wisp.cuda.empty_cache()


def get_memory_info(device_index=None, /):
    """The free and the whole memory of a device, in bytes."""
    _wisp.accelerator._require("get_memory_info")
    return _wisp.cuda.mem_get_info(device_index)


def _of_memory(name, text, nothing):
    def function(device_index=None, /):
        return getattr(_wisp.cuda, name)(device_index) if _wisp.cuda.is_available() else nothing

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


memory_allocated = _of_memory("memory_allocated", "The bytes that tensors take.", 0)
max_memory_allocated = _of_memory("max_memory_allocated", "The most bytes that tensors took.", 0)
memory_reserved = _of_memory("memory_reserved", "The bytes that are held for tensors.", 0)
max_memory_reserved = _of_memory("max_memory_reserved", "The most bytes that were held for tensors.", 0)
memory_stats = _of_memory("memory_stats", "What is counted of the memory.", {})
reset_peak_memory_stats = _of_memory("reset_peak_memory_stats", "Count the most bytes from now on.", None)
reset_accumulated_memory_stats = _of_memory("reset_accumulated_memory_stats", "Count what is taken and given back from now on.", None)
