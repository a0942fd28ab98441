"""Tensors by device and dtype."""


def _get_foreach_kernels_supported_devices():
    return ["cpu", "cuda"]


def _get_fused_kernels_supported_devices():
    return ["cpu", "cuda"]


def _has_foreach_support(tensors, device):
    return True


def _device_has_foreach_support(device):
    return True


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """The lists of tensors, cut by the device and dtype of the first list's."""
    groups = {}
    for i, row in enumerate(zip(*tensorlistlist)):
        lists, indices = groups.setdefault((row[0].device, row[0].dtype), ([[] for _ in tensorlistlist], []))
        for place, tensor in zip(lists, row):
            place.append(tensor)
        indices.append(i)
    return {key: (lists, indices if with_indices else []) for key, (lists, indices) in groups.items()}
