"""`torch.distributed.tensor` by its older path."""

from wisp.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: F401


def __getattr__(name):
    import wisp.distributed.tensor as tensor

    return getattr(tensor, name)
