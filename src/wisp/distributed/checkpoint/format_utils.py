"""Between checkpoints in folders and single files of `wisp.save`."""

import wisp
from wisp.distributed.checkpoint._plan import _fill, save
from wisp.distributed.checkpoint.filesystem import FileSystemReader, unpack

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(dcp_checkpoint_dir, torch_save_path):
    """Bring a checkpoint together in one file: a dict by the keys that were saved ("model.0.weight").

    >>> import os, tempfile, wisp
    >>> from wisp.distributed import checkpoint
    >>> folder = tempfile.mkdtemp()
    >>> _ = checkpoint.save({"w": wisp.ones(2), "epoch": 1}, checkpoint_id=folder)
    >>> checkpoint.format_utils.dcp_to_torch_save(folder, os.path.join(folder, "all.pt"))
    >>> wisp.load(os.path.join(folder, "all.pt"))
    {'w': tensor([1., 1.]), 'epoch': 1}
    """
    reader = FileSystemReader(dcp_checkpoint_dir)
    metadata, result = reader.read_metadata(), {}
    for key, entry in metadata.tensors.items():
        result[key] = wisp.empty(entry["shape"], dtype=getattr(wisp, entry["dtype"]))
        _fill(reader, entry, result[key], key)
    reader.close()
    result.update(metadata.values)
    result.update((key, unpack(text)) for key, text in metadata.objects.items())
    wisp.save(result, torch_save_path)


def torch_save_to_dcp(torch_save_path, dcp_checkpoint_dir):
    """Make a checkpoint of a file of `wisp.save` or `torch.save`."""
    save(wisp.load(torch_save_path), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
