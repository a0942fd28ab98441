"""Files go both ways between Wisp and PyTorch."""
import collections
import io

import numpy as np
import pytest
import torch

import wisp

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
          "complex128", "uint16", "uint32", "uint64"]


def example(package):
    x = package.arange(12, dtype=package.float32).reshape(3, 4)
    result = {dtype: package.ones(2, 3).to(getattr(package, dtype)) for dtype in DTYPES}
    result |= {"x": x, "view": x[1:], "column": x[:, 1], "transposed": x.T, "scalar": package.tensor(5),
               "empty": package.empty(0, 3), "nested": [1, 2.5, None, (True, "text", b"bytes"), {1, 2}, 3 + 4j],
               "ordered": collections.OrderedDict(a=1), "counter": collections.Counter("aab"), "dtype": package.int16,
               "device": package.device("cpu"), "size": package.Size([1, 2]),
               "parameter": package.nn.Parameter(package.ones(2)), "grad": package.ones(1, requires_grad=True),
               "large": 2 ** 70, "expanded": package.ones(1).expand(4)}
    return result


def check(ours, theirs):
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        mine = ours[key]
        if isinstance(value, (torch.Tensor, wisp.Tensor)):
            assert str(mine.dtype).split(".")[1] == str(value.dtype).split(".")[1]
            assert tuple(mine.shape) == tuple(value.shape) and mine.tolist() == value.tolist()
            assert mine.requires_grad == value.requires_grad
            assert type(mine).__name__ == type(value).__name__
        elif key == "dtype":
            assert str(mine).split(".")[1] == str(value).split(".")[1]
        elif key == "device":
            assert str(mine) == str(value)
        else:
            assert mine == value and type(mine).__name__ == type(value).__name__


@pytest.mark.parametrize("legacy", [False, True])
def test_theirs(tmp_path, legacy):
    data = example(torch)
    if legacy:
        for dtype in ("uint16", "uint32", "uint64"):
            del data[dtype]
    torch.save(data, tmp_path / "file.pt", _use_new_zipfile_serialization=not legacy)
    loaded = wisp.load(tmp_path / "file.pt")
    check(loaded, data)
    loaded["x"][1, 0] = 99
    assert loaded["view"][0, 0] == 99 and loaded["transposed"][0, 1] == 99  # memory is still shared


def test_ours(tmp_path):
    data = example(wisp)
    wisp.save(data, tmp_path / "file.pt")
    loaded = torch.load(tmp_path / "file.pt", weights_only=True)
    check(loaded, data)
    loaded["x"][1, 0] = 99
    assert loaded["view"][0, 0] == 99
    check(wisp.load(tmp_path / "file.pt"), data)
    check(wisp.load(tmp_path / "file.pt", mmap=True), data)
    check(torch.load(tmp_path / "file.pt", weights_only=True, mmap=True), data)


def test_training_state():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    loaded = wisp.load(buffer)
    assert loaded["model"]._metadata == model.state_dict()._metadata
    assert loaded["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    again = io.BytesIO()
    wisp.save(loaded, again)
    again.seek(0)
    back = torch.load(again, weights_only=True)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(back["model"][key].numpy(), value.numpy())
