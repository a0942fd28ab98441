"""Small things of PyTorch's inner modules that have something to do, and functions that it has removed and still explains."""

import enum
import os
import time

import wisp

Tag = enum.IntEnum(
    "Tag",
    "core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace inplace_view "
    "maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides needs_fixed_stride_order nondeterministic_bitwise "
    "nondeterministic_seeded out out_variant pointwise pt2_compliant_tag reduction view_copy",
    start=0,
)


class OrderedSet(dict):
    """A set that keeps its order."""

    def __init__(self, iterable=()):
        super().__init__(dict.fromkeys(iterable))

    def add(self, element):
        """Put an element in."""
        self[element] = None

    def discard(self, element):
        """Take an element out, if it is there."""
        self.pop(element, None)

    remove = dict.__delitem__

    def __or__(self, other):
        return type(self)([*self, *other])

    def __and__(self, other):
        return type(self)(element for element in self if element in other)

    def __sub__(self, other):
        return type(self)(element for element in self if element not in other)

    union, intersection, difference = __or__, __and__, __sub__

    def __repr__(self):
        return f"OrderedSet({list(self)})"


class StreamWrapper:
    """A file that a pipe hands on, closed when nobody holds it any more."""

    closed = False

    def __init__(self, file_obj, parent_stream=None, name=None):
        self.file_obj, self.parent_stream, self.name = file_obj, parent_stream, name

    def __getattr__(self, name):
        return getattr(self.__dict__["file_obj"], name)

    def __dir__(self):
        return sorted({*vars(self), *dir(type(self)), *dir(self.file_obj)})

    def __iter__(self):
        yield from self.file_obj

    def __next__(self):
        return next(self.file_obj)

    def close(self, *args, **kwargs):
        """Close the file."""
        if not self.closed:
            self.closed = True
            self.file_obj.close(*args, **kwargs)

    def __del__(self):
        if "file_obj" in self.__dict__ and hasattr(self.file_obj, "close"):
            self.close()

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __repr__(self):
        return f"StreamWrapper<{self.file_obj!r}>" if self.name is None else f"StreamWrapper<{self.name},{self.file_obj!r}>"


def make_contiguous_strides_for(shape, row_major=True):
    """The strides of a contiguous tensor of a shape; not row_major: with matrices by columns."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    strides.reverse()
    if not row_major and len(strides) > 1:
        strides[-2:] = 1, max(shape[-2], 1)
    return tuple(strides)


def suggest_memory_format(x):
    """The format that a tensor lies in."""
    if x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=wisp.channels_last):
        return wisp.channels_last
    if x.dim() == 5 and not x.is_contiguous() and x.is_contiguous(memory_format=wisp.channels_last_3d):
        return wisp.channels_last_3d
    return wisp.contiguous_format


def canonicalize_dims(rank, indices, wrap_scalar=True):
    """Dimensions counted from the front."""
    rank = max(rank, 1) if wrap_scalar else rank

    def one(index):
        if not -rank <= index < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {index})")
        return index % rank

    return one(indices) if isinstance(indices, int) else tuple(map(one, indices))


def get_computation_dtype(dtype):
    """The dtype that halves are computed in."""
    return {wisp.float16: wisp.float32, wisp.bfloat16: wisp.float32, wisp.complex32: wisp.complex64}.get(dtype, dtype)


def _removed(name, instead):
    def removed(*args, **kwargs):
        raise RuntimeError(f"torch.{name}: This function was deprecated since version 1.9 and is now removed; use torch.{instead}")

    removed.__name__ = removed.__qualname__ = name
    removed.__doc__ = f"Removed: use `torch.{instead}`."
    return removed


eig = _removed("eig", "linalg.eig")
lstsq = _removed("lstsq", "linalg.lstsq(A, B), whose arguments are the other way round")
matrix_rank = _removed("matrix_rank", "linalg.matrix_rank")
solve = _removed("solve", "linalg.solve(A, B), whose arguments are the other way round")
symeig = _removed("symeig", 'linalg.eigh(A, UPLO="U" if upper else "L")')


def tqdm(iterable=None, *args, **kwargs):
    """A bar of progress, if the package of that name is installed."""
    try:
        from tqdm.auto import tqdm as bar
    except ModuleNotFoundError:
        return iterable
    return bar(iterable, *args, **kwargs)


class FileBaton:
    """A file that one process at a time can make; others wait until it is gone."""

    def __init__(self, lock_file_path, wait_seconds=0.1, warn_after_seconds=None):
        self.lock_file_path, self.wait_seconds, self._descriptor = lock_file_path, wait_seconds, None

    def try_acquire(self):
        """Make the file; False if it is there."""
        try:
            self._descriptor = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self):
        """Wait until the file is gone."""
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)

    def release(self):
        """Remove the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        os.remove(self.lock_file_path)
