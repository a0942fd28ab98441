"""Checkpoints of state that lies on many ranks: each writes its part, and any number of ranks reads them."""

from wisp import _reference
from wisp.distributed.checkpoint._plan import CheckpointException, async_save, load, save
from wisp.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from wisp.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, Metadata

__all__ = [
    "CheckpointException",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "Metadata",
    "async_save",
    "load",
    "save",
]


def load_state_dict(state_dict, storage_reader, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """The older name of `load`."""
    load(state_dict, storage_reader=storage_reader, process_group=process_group, no_dist=no_dist, planner=planner)


def save_state_dict(state_dict, storage_writer, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """The older name of `save`."""
    return save(state_dict, storage_writer=storage_writer, process_group=process_group, no_dist=no_dist, planner=planner)


def __getattr__(name):
    if name in ("state_dict", "stateful", "filesystem", "format_utils", "default_planner"):
        import importlib

        return importlib.import_module("wisp.distributed.checkpoint." + name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
