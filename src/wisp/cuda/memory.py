"""The memory of CUDA devices: what tensors hold, what was taken from the driver, limits and private pools."""

import collections as _collections
import contextlib as _contextlib

from wisp import _core

_cuda = _core._operators["_cuda"]

__all__ = """memory_stats memory_stats_as_nested_dict memory_allocated max_memory_allocated memory_reserved max_memory_reserved
memory_cached max_memory_cached reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached mem_get_info device_memory_used
reset_accumulated_memory_stats empty_cache set_per_process_memory_fraction get_per_process_memory_fraction get_allocator_backend
memory_summary MemPool use_mem_pool ipc_collect caching_allocator_alloc caching_allocator_delete caching_allocator_enable
caching_allocator_disabled memory_snapshot host_memory_stats host_memory_stats_as_nested_dict reset_peak_host_memory_stats
reset_accumulated_host_memory_stats CUDAPluggableAllocator change_current_allocator""".split()

_COUNTERS = ("allocated_bytes", "reserved_bytes", "allocation", "segment")  # as the core lists them
_VALUES = ("current", "peak", "allocated", "freed")


def _index(device=None):
    from wisp.cuda import _index

    return _index(device)


def _available():
    return _cuda["device_count"]() > 0


def memory_stats(device=None):
    """Counters of the allocator by PyTorch's names: bytes that tensors hold, bytes taken from the driver, and how many of each."""
    if not _available():
        return {}
    numbers = iter(_cuda["memory_stats"](_index(device)))
    found = _collections.OrderedDict((f"{c}.all.{v}", next(numbers)) for c in _COUNTERS for v in _VALUES)
    for value in _VALUES:  # a block is in use exactly as long as a tensor holds it
        found[f"active_bytes.all.{value}"] = found[f"allocated_bytes.all.{value}"]
        found[f"active.all.{value}"] = found[f"allocation.all.{value}"]
    found["num_alloc_retries"], found["num_ooms"] = next(numbers), next(numbers)
    found["num_device_alloc"], found["num_device_free"] = found["segment.all.allocated"], found["segment.all.freed"]
    return _collections.OrderedDict(sorted(found.items()))


def memory_stats_as_nested_dict(device=None):
    """The counters of `memory_stats` as dictionaries of dictionaries."""
    return _nested(memory_stats(device))


def _nested(counters):
    nested = {}
    for name, value in counters.items():
        place = nested
        *path, last = name.split(".")
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def memory_allocated(device=None):
    """Bytes that tensors hold now."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None):
    """The most bytes that tensors held since the start or `reset_peak_memory_stats`."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None):
    """Bytes taken from the driver, cached ones included."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device=None):
    """The most bytes taken from the driver."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device=None):
    """Begin counting the peaks anew."""
    if _available():
        _cuda["reset_stats"](_index(device), True)


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None):
    """Begin counting anew what is allocated and freed over time."""
    if _available():
        _cuda["reset_stats"](_index(device), False)


def mem_get_info(device=None):
    """Free and total bytes of the device, as the driver sees them."""
    return _cuda["mem_get_info"](_index(device))


def device_memory_used(device=None):
    """Bytes of the device that are in use, by all processes."""
    free, total = mem_get_info(device)
    return total - free


def empty_cache():
    """Give unused memory back to the driver."""
    for index in range(_cuda["device_count"]()):
        _cuda["empty_cache"](index)


_raw = {}  # address -> the tensor that holds the memory which another library was given


def caching_allocator_alloc(size, device=None, stream=None):
    """The address of `size` bytes of a device's memory, for another library; `caching_allocator_delete` gives them back."""
    import wisp
    from wisp.cuda import Stream, StreamContext

    if stream is not None and not isinstance(stream, (int, Stream)):
        raise TypeError(
            "Invalid type for stream argument, must be `torch.cuda.Stream` or `int` representing a pointer to an existing stream"
        )
    if isinstance(stream, int):
        stream = Stream._of(stream, _index(device))
    with StreamContext(stream):
        memory = wisp.empty(size, dtype=wisp.uint8, device=wisp.device("cuda", _index(device)))
    _raw[memory.data_ptr()] = memory
    return memory.data_ptr()


def caching_allocator_delete(mem_ptr):
    """Give back what `caching_allocator_alloc` gave."""
    if mem_ptr not in _raw:
        raise RuntimeError(f"caching_allocator_delete: no memory at {mem_ptr:#x} was given by caching_allocator_alloc")
    del _raw[mem_ptr]


def caching_allocator_enable(value=True):
    """Keep freed memory for later tensors, as is usual, or with False have every tensor take its own from the driver and give it back:
    slow, but what a checker of memory needs to see each read and write beside a tensor."""
    _cuda["use_caching"](bool(value))


@_contextlib.contextmanager
def caching_allocator_disabled():
    """A context in which every tensor takes its own memory from the driver."""
    before = _cuda["use_caching"](False)
    try:
        yield
    finally:
        _cuda["use_caching"](before)


_STATES = {"u": "active_allocated", "w": "active_awaiting_free", "f": "inactive"}


def memory_snapshot(mempool_id=None, include_traces=True):
    """What was taken from the driver, a dictionary for each segment with its blocks in order: addresses, sizes, streams, and whether a
    tensor holds them. `mempool_id` is the `id` of a `MemPool` to see its segments alone."""
    segments = []
    for index in range(_cuda["device_count"]()):
        for address, size, stream, pool, first, state in _cuda["memory_pieces"](index):
            if first:
                segment = {"device": index, "address": address, "total_size": 0, "allocated_size": 0, "active_size": 0, "requested_size": 0}
                segment |= {"stream": stream, "segment_type": "large", "segment_pool_id": (0, pool), "is_expandable": False, "blocks": []}
                segments.append(segment)
            segment = segments[-1]
            segment["total_size"] += size
            segment["allocated_size"] += size * (state == "u")
            segment["requested_size"] += size * (state == "u")
            segment["active_size"] += size * (state != "f")
            segment["blocks"].append({"address": address, "size": size, "requested_size": size, "state": _STATES[state], "frames": []})
    for segment in segments:
        segment["segment_type"] = "small" if segment["total_size"] <= 2 << 20 else "large"
    return [s for s in segments if mempool_id is None or s["segment_pool_id"] == tuple(mempool_id)]


_PINNED = ("allocations", "allocated_bytes", "active_requests", "active_bytes")  # as the core lists them


def host_memory_stats():
    """Counters of pinned memory by PyTorch's names: blocks taken from the driver and their bytes, and those in use."""
    if not _available():
        return {}
    numbers = iter(_cuda["pinned_stats"]())
    found = {f"{counter}.{value}": next(numbers) for counter in _PINNED for value in _VALUES}
    found["num_host_alloc"], found["num_host_free"] = found["allocations.allocated"], found["allocations.freed"]
    return _collections.OrderedDict(sorted(found.items()))


def host_memory_stats_as_nested_dict():
    """The counters of `host_memory_stats` as dictionaries of dictionaries."""
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats():
    """Begin counting the peaks of pinned memory anew."""
    _cuda["reset_pinned_stats"](True)


def reset_accumulated_host_memory_stats():
    """Begin counting anew what pinned memory was taken and freed over time."""
    _cuda["reset_pinned_stats"](False)


class CUDAPluggableAllocator:
    """An allocator in a library of the program's: not available, raises NotImplementedError. Wisp's own reuses memory in the order of
    streams and keeps it for graphs, which two functions cannot do."""

    def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
        raise NotImplementedError(
            f"CUDAPluggableAllocator: got {alloc_fn_name!r} of {path_to_so_file!r}, but memory comes from Wisp's own allocator; "
            "use caching_allocator_alloc to lend memory to a library, or caching_allocator_disabled to see each allocation"
        )


def change_current_allocator(allocator):
    """Use another allocator: not available, raises NotImplementedError."""
    raise NotImplementedError(
        f"change_current_allocator: got {type(allocator).__name__}, but memory comes from Wisp's own allocator; leave the call out"
    )


_fractions = {}


def set_per_process_memory_fraction(fraction, device=None):
    """Take no more than a share of the device's memory, between 0 and 1, from the driver."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index = _index(device)
    _fractions[index] = fraction
    _cuda["limit_memory"](index, 2**63 - 1 if fraction == 1 else int(mem_get_info(index)[1] * fraction))


def get_per_process_memory_fraction(device=None):
    """The share that `set_per_process_memory_fraction` allowed."""
    return _fractions.get(_index(device), 1.0)


def get_allocator_backend():
    """The kind of allocator: "native"."""
    return "native"


def _size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 10240 or unit == "GiB":
            return f"{n:.0f} {unit}"
        n /= 1024


def memory_summary(device=None, abbreviated=False):
    """The counters of the allocator as a table."""
    stats = memory_stats(device)
    width = 79
    rule = "|" + "=" * (width - 2) + "|"

    def row(*cells):
        first, *rest = cells
        return "| " + f"{first:20}" + "".join(f"| {c:>11} " for c in rest) + "|"

    title = f"CUDA memory summary, device {_index(device) if stats else 'none'}"
    counts = f"retries: {stats.get('num_alloc_retries', 0)}   out of memory: {stats.get('num_ooms', 0)}"
    lines = [rule, *(f"|{text:^{width - 2}}|" for text in (title, counts)), rule, row("", "now", "peak", "taken", "freed"), rule]
    names = {"allocated_bytes": "held by tensors", "reserved_bytes": "from the driver"}
    if not abbreviated:
        names |= {"allocation": "blocks", "segment": "segments"}
    for key, text in names.items():
        values = [stats.get(f"{key}.all.{v}", 0) for v in _VALUES]
        lines.append(row(text, *(_size(v) if key.endswith("bytes") else str(v) for v in values)))
    return "\n".join([*lines, rule]) + "\n"


class MemPool:
    """Memory that only tensors made inside `with use_mem_pool(pool):` use; it stays until the pool is dropped."""

    def __init__(self, *args, **kwargs):
        if any(x is not None for x in (*args, kwargs.get("allocator"))):
            raise NotImplementedError("MemPool: memory comes from Wisp's own allocator; leave `allocator` out")
        self.id = (0, _cuda["new_pool"]())
        _cuda["hold_pool"](self.id[1])

    def __del__(self):
        if hasattr(self, "id"):
            _cuda["let_go_of_pool"](self.id[1])


class use_mem_pool:
    """A context in which this thread's tensors take their memory from a `MemPool`."""

    def __init__(self, pool, device=None):
        self.pool = pool

    def __enter__(self):
        self._before = _cuda["use_pool"](self.pool.id[1])

    def __exit__(self, *_):
        _cuda["use_pool"](self._before)


def ipc_collect():
    """Memory is not shared between processes: nothing to collect."""


# For programs that look for leaks by recording what is allocated: nothing is recorded here, but what is there now is told.


def _record_memory_history(enabled="all", *args, **options):
    if enabled not in (None, False, True, "state", "all"):
        raise RuntimeError(f"expected enabled to be None, 'state' or 'all', but got {enabled!r}")


def _snapshot(device=None, augment_with_fx_traces=False):
    return {
        "segments": memory_snapshot() if _available() else [],
        "device_traces": [],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(filename="dump_snapshot.pickle", augment_with_fx_traces=False):
    import pickle

    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)
