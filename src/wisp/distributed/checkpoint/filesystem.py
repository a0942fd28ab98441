"""A checkpoint as files in a folder: one of tensors per rank that has some, and `.metadata`, which says what is where.

`.metadata` is JSON and appears last, under its name all at once: a checkpoint is there or it is not. The files of tensors are safetensors;
their names contain a token of the save, so that an older checkpoint in the folder stays whole until the new one is.
"""

import base64
import concurrent.futures
import dataclasses
import io
import json
import os
import time

import wisp
from wisp.serialization import replacing
from wisp.utils import safetensors

__all__ = ["FileSystemReader", "FileSystemWriter", "Metadata"]

_FORMAT = "wisp checkpoint 1"


@dataclasses.dataclass
class Metadata:
    """What a checkpoint holds: `tensors` by key (dtype, shape, and parts: file, name in it, first index), and `values` of other kinds."""

    tensors: dict
    values: dict
    objects: dict

    @property
    def state_dict_metadata(self):
        """All keys, with the shape of tensors and None for what is none."""
        return {**{key: wisp.Size(entry["shape"]) for key, entry in self.tensors.items()}, **dict.fromkeys((*self.values, *self.objects))}


def _files(metadata):
    return {part[0] for entry in metadata.tensors.values() for part in entry["parts"]}


def pack(value):
    """Any value that `wisp.save` takes, as text."""
    file = io.BytesIO()
    wisp.save(value, file)
    return base64.b85encode(file.getvalue()).decode()


def unpack(text):
    return wisp.load(io.BytesIO(base64.b85decode(text)))


class FileSystemWriter:
    """Writes a checkpoint to a folder.

    >>> import tempfile, wisp
    >>> from wisp.distributed import checkpoint
    >>> folder = tempfile.mkdtemp()
    >>> _ = checkpoint.save({"w": wisp.arange(3)}, storage_writer=checkpoint.FileSystemWriter(folder))
    >>> state = {"w": wisp.zeros(3, dtype=wisp.int64)}
    >>> checkpoint.load(state, storage_reader=checkpoint.FileSystemReader(folder))
    >>> state
    {'w': tensor([0, 1, 2])}
    """

    def __init__(
        self,
        path,
        single_file_per_rank=True,
        sync_files=True,
        thread_count=1,
        per_thread_copy_ahead=0,
        cache_staged_state_dict=False,
        overwrite=True,
        **options,
    ):
        self.path, self.sync_files, self.overwrite = os.fspath(path), sync_files, overwrite

    def prepare(self):
        """Make the folder; refuse to replace a checkpoint if that was asked for."""
        if not self.overwrite and os.path.exists(os.path.join(self.path, ".metadata")):
            raise RuntimeError(f"FileSystemWriter: there is a checkpoint in {self.path}; pass overwrite=True to replace it")
        os.makedirs(self.path, exist_ok=True)

    def write_tensors(self, name, tensors):
        """One file of tensors, complete under its name."""
        path = os.path.join(self.path, name)
        safetensors.save_file(tensors, path)
        if self.sync_files:
            self._sync(path)

    def write_metadata(self, metadata, token):
        """The checkpoint is there from now on; the files of the one before it are removed."""
        old = set()
        try:
            old = _files(FileSystemReader(self.path).read_metadata())
        except (OSError, RuntimeError):
            pass  # there is none
        with replacing(os.path.join(self.path, ".metadata")) as file:
            file.write(json.dumps({"format": _FORMAT, **dataclasses.asdict(metadata)}).encode())
        if self.sync_files:
            self._sync(self.path)
        told = {name for name in os.listdir(self.path) if name.endswith(f"_{token}.done")}
        for name in (old - _files(metadata)) | told:  # others may belong to a save that is under way
            if os.path.exists(os.path.join(self.path, name)):
                os.unlink(os.path.join(self.path, name))

    def _sync(self, path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    # a save in the background has no collectives: ranks tell each other by files that they have written theirs
    def tell_done(self, token, rank, error=""):
        """This rank has written its file, or failed to."""
        with replacing(os.path.join(self.path, f"__{rank}_{token}.done")) as file:
            file.write(error.encode())

    def wait_for(self, token, ranks, seconds):
        """Until all ranks have written theirs; raises the error of one that failed."""
        end = time.monotonic() + seconds
        for rank in range(ranks):
            path = os.path.join(self.path, f"__{rank}_{token}.done")
            while not os.path.exists(path):
                if time.monotonic() > end:
                    raise RuntimeError(f"async_save: rank {rank} has not written its part of {self.path} after {seconds:g} s")
                time.sleep(0.01)
            with open(path) as file:
                error = file.read()
            if error:
                raise RuntimeError(f"async_save: rank {rank} could not write its part of {self.path}: {error}")


class FileSystemReader:
    """Reads a checkpoint from a folder. See `FileSystemWriter`."""

    def __init__(self, path, **options):
        self.path, self._files = os.fspath(path), {}

    def read_metadata(self):
        """What is there."""
        path = os.path.join(self.path, ".metadata")
        try:
            with open(path, "rb") as file:
                content = json.load(file)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no checkpoint in {self.path}: {path} does not exist") from None
        except ValueError as error:
            raise RuntimeError(f"{path} is damaged or of another program: {error}") from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise RuntimeError(f"{path} is not a checkpoint of this version of Wisp ({_FORMAT})")
        return Metadata(content["tensors"], content["values"], content["objects"])

    def read(self, part):
        """One part of a tensor, mapped: only what is used of it is read."""
        name, key, _ = part
        if name not in self._files:
            try:
                self._files[name] = safetensors.safe_open(os.path.join(self.path, name), mmap=True)
            except FileNotFoundError:
                raise FileNotFoundError(f"the checkpoint in {self.path} lacks its file {name}") from None
        return self._files[name].get_tensor(key)

    def close(self):
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files = {}


background = concurrent.futures.ThreadPoolExecutor(1, "wisp-checkpoint")
