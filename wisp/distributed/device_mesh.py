"""Processes in a grid; here the grid of one."""

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """A grid of one process."""

    def __init__(self, device_type, mesh=None, *, mesh_dim_names=None, **options):
        self.device_type, self.mesh_dim_names = device_type, mesh_dim_names

    def size(self, mesh_dim=None):
        """1."""
        return 1

    def get_rank(self):
        """0."""
        return 0

    def get_local_rank(self, mesh_dim=None):
        """0."""
        return 0

    def __getitem__(self, name):
        return self


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, **options):
    """A grid of processes, of which there is one."""
    if any(size != 1 for size in mesh_shape):
        raise RuntimeError(f"init_device_mesh: Wisp has grids of one process so far, got one of {tuple(mesh_shape)}")
    return DeviceMesh(device_type, mesh_dim_names=mesh_dim_names)
