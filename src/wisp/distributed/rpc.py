"""`torch.distributed.rpc`: calls of functions in other processes, which Wisp does not make; what is called says so."""

__all__ = [
    "BackendType",
    "PyRRef",
    "RRef",
    "RpcBackendOptions",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "get_worker_info",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]
_TEXT = (
    "Wisp calls no functions in other processes: use the collectives of torch.distributed, torch.multiprocessing, or a library for "
    "remote calls such as Ray"
)


def is_available():
    """False."""
    return False


def _refuse(name):
    def refuse(*args, **kwargs):
        raise NotImplementedError(f"distributed.rpc.{name}: {_TEXT}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Not available: raises NotImplementedError."
    return refuse


init_rpc, rpc_sync, rpc_async, remote, shutdown, get_worker_info = map(
    _refuse, ("init_rpc", "rpc_sync", "rpc_async", "remote", "shutdown", "get_worker_info")
)


class _Options:
    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"distributed.rpc.{type(self).__name__}: {_TEXT}")


class RpcBackendOptions(_Options):
    """Not available."""


class TensorPipeRpcBackendOptions(_Options):
    """Not available."""


class WorkerInfo(_Options):
    """Not available."""


class RRef(_Options):
    """Not available."""

    def __class_getitem__(cls, kind):
        return cls


class BackendType:
    """Names of backends."""

    TENSORPIPE = "TENSORPIPE"


class api:
    """The inner module."""

    _all_gather = staticmethod(_refuse("api._all_gather"))
    _require_initialized = staticmethod(lambda function: _refuse(function.__name__))
    _is_current_rpc_agent_set = staticmethod(lambda: False)


PyRRef = RRef
