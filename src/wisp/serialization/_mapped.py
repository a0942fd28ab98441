"""Files as memory."""

import mmap
import weakref

from wisp import _core


def map_file(file, private=True):
    """The memory of an open file; writes go to the file unless it is private. A file that is cut short while it is mapped is an OSError
    for whoever reads what is gone (csrc/python/mapped_files.cpp)."""
    if private:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    else:
        with open(file.name, "r+b") as writable:
            memory = mmap.mmap(writable.fileno(), 0, mmap.MAP_SHARED)
    weakref.finalize(memory, _core._forget_mapping, _core._guard_mapping(memory, str(file.name))).atexit = False
    return memory
