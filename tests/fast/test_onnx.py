"""ONNX export without a program that runs it: nodes, names, sizes, files and errors. tests/parity runs the files."""

import doctest
import io

import numpy as np
import pytest

import wisp
from wisp import nn


def fields(data):
    """The (number, value) pairs of a message."""
    place, found = 0, []

    def varint():
        nonlocal place
        result = shift = 0
        while True:
            byte = data[place]
            place += 1
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result

    while place < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            size = varint() if key & 7 == 2 else 4
            found.append((key >> 3, data[place : place + size]))
            place += size
    return found


def test_examples():
    assert doctest.testmod(wisp.onnx, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_a_file_holds_nodes_weights_and_shapes(tmp_path):
    model = nn.Linear(3, 2)
    wisp.onnx.export(
        model, (wisp.ones(4, 3),), tmp_path / "model.onnx", input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}}
    )
    top = dict(fields((tmp_path / "model.onnx").read_bytes()))
    assert top[2] == b"wisp" and dict(fields(top[8]))[2] == 18
    graph = fields(top[7])
    assert [dict(fields(value))[4] for number, value in graph if number == 1] == [b"Gemm"]
    weights = {dict(fields(value))[8].decode(): dict(fields(value))[9] for number, value in graph if number == 5}
    assert np.array_equal(np.frombuffer(weights["weight"], "f4").reshape(2, 3), model.weight.detach().numpy()) and set(weights) == {
        "weight",
        "bias",
    }
    output = next(value for number, value in graph if number == 12)
    assert dict(fields(output))[1] == b"y" and b"batch" in output


def test_weights_beside_the_file(tmp_path):
    program = wisp.onnx.export(nn.Linear(64, 64), (wisp.ones(1, 64),))
    program.save(tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size == 64 * 64 * 4


def test_modes_and_state():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    model.train()
    program = wisp.onnx.export(model, (wisp.ones(3, 2),))
    assert model.training and "Dropout" not in [node[0] for node in program.nodes] and not wisp.onnx.is_in_onnx_export()
    wisp.ones(2) + 1  # nothing stays switched on
    with pytest.raises(wisp.onnx.errors.UnsupportedOperatorError, match="statistics of the batch"):
        wisp.onnx.export(model, (wisp.ones(3, 2),), training=wisp.onnx.TrainingMode.TRAINING)
    with pytest.warns(wisp.onnx.errors.OnnxExporterWarning, match="opset 11"):
        wisp.onnx.export(model, (wisp.ones(3, 2),), opset_version=11)


def test_what_cannot_be_exported_says_why():
    def assigns(x):
        y = x * 2
        y[0] = 1
        return y + 1

    with pytest.raises(RuntimeError, match="changed in place"):
        wisp.onnx.export(assigns, (wisp.ones(3),))
    with pytest.raises(RuntimeError, match="'svd'|has no translation"):
        wisp.onnx.export(lambda x: wisp.linalg.svd(x), (wisp.eye(3),))
    with pytest.raises(RuntimeError, match="other operators"):
        wisp.onnx.export(lambda x: x + 1 if len(x) == 2 else x * 2 - 1, (wisp.ones(2),), input_names=["x"], dynamic_axes={"x": [0]})
    with pytest.raises(ValueError, match="output_names"):
        wisp.onnx.export(lambda x: x + 1, (wisp.ones(2),), output_names=["a", "b"])
    with pytest.raises(RuntimeError, match="mask"):
        wisp.onnx.export(lambda x: x[x > 0], (wisp.ones(2),))


def test_constants_are_folded_and_dead_code_is_dropped():
    def model(x):
        x.exp()  # unused
        return x + wisp.arange(3).float() * 2

    program = wisp.onnx.export(model, (wisp.ones(2, 3),))
    assert [node[0] for node in program.nodes] == ["Add"] and [c.tolist() for c in program.constants.values()] == [[0, 2, 4]]


def test_open_files_and_names_of_keywords():
    file = io.BytesIO()
    program = wisp.onnx.export(lambda a, b=None: a - b, (wisp.ones(2),), file, kwargs={"b": wisp.zeros(2)})
    assert program.input_names == ["a", "b"] and file.getvalue()
