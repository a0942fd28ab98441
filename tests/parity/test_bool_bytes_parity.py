"""Every operator of PyTorch's database takes a byte other than 0 and 1 in a bool tensor for true."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from database import found, label, put, samples  # noqa: E402

import wisp  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db
OPERATORS = [op for op in op_db if found(wisp, op.name) and op.op is found(torch, op.name)]


def odd(value):
    """The same with other bytes for true in every bool tensor."""
    if isinstance(value, wisp.Tensor) and value.dtype == wisp.bool and value.layout == wisp.strided:
        truth = value.numpy()
        bytes_of = np.resize(np.array([255, 2, 128, 254, 3], dtype=np.uint8), truth.shape)
        return wisp.from_numpy(np.where(truth, bytes_of, 0).astype(np.uint8)).view(wisp.bool)
    if type(value) in (list, tuple):
        return type(value)(odd(v) for v in value)
    if isinstance(value, dict):
        return {k: odd(v) for k, v in value.items()}
    return value


def seen(result):
    if isinstance(result, wisp.Tensor):
        return result.dtype, result.shape, result.tolist() if result.layout == wisp.strided else str(result)
    return [seen(r) for r in result] if isinstance(result, (list, tuple)) else result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPERATORS, ids=label)
def test_bytes_of_bools(op):
    call = found(wisp, op.name)
    for dtype in (torch.bool, torch.float32):  # as numbers, and as masks
        for args, kwargs in samples(op, dtype, 6):
            try:
                args, kwargs = put(args), put(kwargs)
                wisp.manual_seed(0)
                want = seen(call(*args, **kwargs))
            except Exception:  # other tests tell what is refused
                continue
            wisp.manual_seed(0)
            assert repr(seen(call(*odd(args), **odd(kwargs)))) == repr(want)
