"""PyTorch's database of operators, for tests that go through all of them."""

import warnings

import torch

import wisp


def database(wanted):
    """The operators that both packages have under one name, and that `wanted(op)`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [
        op
        for op in op_db
        if torch.float64 in op.supported_dtypes("cpu") and wanted(op) and found(wisp, op.name) and op.op is found(torch, op.name)
    ]


def label(op):
    return op.name + ("/" + op.variant_test_name if op.variant_test_name else "")


def found(module, name):
    target = module
    for part in name.split("."):
        target = getattr(target, part, None)
    return target or getattr(module.Tensor, name, None)


def put(value):
    """A value for torch as one for wisp."""
    if isinstance(value, torch.Tensor):
        if value.layout == torch.sparse_csr:
            parts = (value.crow_indices(), value.col_indices(), value.values())
            return wisp.sparse_csr_tensor(*map(put, parts), size=tuple(value.shape))
        if value.layout == torch.strided and value._is_zerotensor():
            value = value + 0  # PyTorch's tensors of symbolic zeros have no memory
        copied = wisp.from_numpy(value.detach().resolve_conj().resolve_neg().contiguous().numpy().copy())
        return copied.reshape(tuple(value.shape))
    if isinstance(value, (torch.dtype, torch.memory_format)):
        return getattr(wisp, str(value).split(".")[-1])
    if isinstance(value, torch.device):
        return wisp.device(str(value))
    if isinstance(value, (list, tuple)):
        return type(value)(put(v) for v in value) if type(value) in (list, tuple) else tuple(put(v) for v in value)
    if isinstance(value, dict):
        return {k: put(v) for k, v in value.items()}
    return value


def samples(op, dtype, most):
    """Sample inputs of an operator: (positional, keyword arguments)."""
    if dtype not in op.supported_dtypes("cpu"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, sample in zip(range(most), op.sample_inputs("cpu", dtype, requires_grad=False)):
            yield (sample.input, *sample.args), dict(sample.kwargs)
