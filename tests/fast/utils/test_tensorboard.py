"""Event files for TensorBoard: read back with a small reader of our own, and with TensorBoard where it is installed."""

import doctest
import glob
import os
import struct
import zlib

import numpy as np
import pytest

import wisp
from wisp import nn
from wisp.utils.tensorboard import SummaryWriter, _content, writer

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto import event_pb2
except ImportError:
    event_pb2 = None
needs_tensorboard = pytest.mark.skipif(event_pb2 is None, reason="TensorBoard is not installed")


def crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    return c ^ 0xFFFFFFFF


def masked(data):
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(folder):
    for path in sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*"))):
        data = open(path, "rb").read()
        while data:
            (length,), (crc,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
            body = data[12 : 12 + length]
            assert crc == masked(data[:8]) and struct.unpack("<I", data[12 + length : 16 + length])[0] == masked(body)
            yield body
            data = data[16 + length :]


def fields(data):
    """Field number -> contents, of an encoded message."""
    found = {}

    def number():
        nonlocal data
        n = shift = 0
        while True:
            byte, data = data[0], data[1:]
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while data:
        key = number()
        kind = key & 7
        if kind == 0:
            content = number()
        else:
            size = {1: 8, 5: 4}.get(kind) or number()
            content, data = data[:size], data[size:]
            if kind in (1, 5):
                content = struct.unpack("<d" if kind == 1 else "<f", content)[0]
        found.setdefault(key >> 3, []).append(content)
    return found


def test_checksum():
    assert wisp._core._crc32c(b"123456789") == 0xE3069283 == crc32c(b"123456789") and wisp._core._crc32c(b"") == 0
    with pytest.raises(TypeError):
        wisp._core._crc32c(3)


def test_scalars_by_hand(tmp_path):
    with SummaryWriter(tmp_path) as out:
        out.add_scalar("loss", wisp.tensor(0.25, requires_grad=True), 3, walltime=12.5)
        out.add_scalar("loss", np.float64(1e300), wisp.tensor(-1))
    first, second, third = (fields(record) for record in records(tmp_path))
    assert first[3] == [b"brain.Event:2"]
    assert second[1] == [12.5] and second[2] == [3]
    shown = fields(fields(second[5][0])[1][0])
    assert shown == {1: [b"loss"], 2: [0.25]}
    assert third[2] == [2**64 - 1] and fields(fields(third[5][0])[1][0])[2] == [float("inf")]


def test_image_by_hand(tmp_path):
    with SummaryWriter(tmp_path) as out:
        out.add_image("a", wisp.rand(3, 5, 7))
    (_, event) = map(fields, records(tmp_path))
    image = fields(fields(fields(event[5][0])[1][0])[4][0])
    assert (image[1], image[2], image[3]) == ([5], [7], [3]) and image[4][0].startswith(b"\x89PNG")


def test_refusals(tmp_path):
    out = SummaryWriter(tmp_path)
    with pytest.raises(ValueError, match="single number"):
        out.add_scalar("x", wisp.ones(2))
    with pytest.raises(ValueError, match="no element"):
        out.add_histogram("x", wisp.ones(0))
    with pytest.raises(ValueError, match="does not fit"):
        out.add_image("x", wisp.ones(2, 2))
    with pytest.raises(ValueError, match="channels"):
        out.add_image("x", wisp.ones(5, 2, 2))
    with pytest.raises(ValueError, match="an input is needed"):
        out.add_graph(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="should be 2D"):
        out.add_embedding(wisp.ones(3))
    with pytest.raises(ValueError, match="should be one of"):
        out.add_hparams({"a": [1]}, {})
    out.close()
    out.add_scalar("again", 1)  # opens a new file
    out.close()
    assert len(glob.glob(str(tmp_path / "events*"))) == 2


def test_names_lead_nowhere_else(tmp_path):
    writer = SummaryWriter(tmp_path / "runs")
    with pytest.raises(ValueError, match="leads out of"):
        writer.add_scalars("losses", {"a/../../../outside": 1.0})
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_embedding(tmp_path):
    with SummaryWriter(tmp_path) as out:
        out.add_embedding(wisp.arange(6.0).reshape(3, 2), ["a", "b", "c"], wisp.rand(3, 3, 4, 5), global_step=7)
    folder = tmp_path / "00007" / "default"
    assert (folder / "tensors.tsv").read_text() == "0\t1\n2\t3\n4\t5\n" and (folder / "metadata.tsv").read_text() == "a\nb\nc"
    png = (folder / "sprite.png").read_bytes()
    assert struct.unpack(">II", png[16:24]) == (10, 8) and zlib.crc32(png[12:29]) == struct.unpack(">I", png[29:33])[0]
    assert "00007/default/tensors.tsv" in (tmp_path / "projector_config.pbtxt").read_text()


def events(folder):
    for record in records(folder):
        yield event_pb2.Event.FromString(record)


@needs_tensorboard
def test_everything_is_read_back(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 2)))
    values = np.array([-1.0, 0.0, 0.5, 0.5, 2.0, np.nan])
    with SummaryWriter(tmp_path, purge_step=0) as out:
        for step in range(5):
            out.add_scalar("loss", 1.0 / (step + 1), step)
        out.add_scalar("exact", 1 / 3, 0, new_style=True, double_precision=True)
        out.add_scalar("tensor", 1 / 4, 0, new_style=True)
        out.add_histogram("weights", values, 1)
        out.add_images("many", wisp.rand(10, 1, 4, 6), 1)
        out.add_image("grey", (wisp.rand(4, 6) * 255).to(wisp.uint8), 1, dataformats="HW")
        out.add_image_with_boxes("boxed", wisp.zeros(3, 8, 8), wisp.tensor([[1, 1, 5, 90]]))
        out.add_text("note", "some *text* é", 2)
        out.add_audio("sound", wisp.linspace(-1, 1, 100), 1, sample_rate=8000)
        out.add_pr_curve("curve", [1, 1, 0, 0], [0.9, 0.4, 0.6, 0.1], 1, num_thresholds=11)
        out.add_graph(model, wisp.ones(3, 4))
        out.add_custom_scalars({"a": {"b": ["Multiline", ["loss", "exact"]], "c": ["Margin", ["x", "y", "z"]]}})
        out.add_scalars("pair", {"x": 1.0, "y": 2.0}, 0)
        out.add_hparams({"lr": 0.1, "layers": 2, "name": "n", "fast": True}, {"accuracy": 0.9}, run_name="trial")
        out.add_tensor("t", wisp.arange(4.0).reshape(2, 2))
        out.add_mesh("m", wisp.rand(1, 4, 3), faces=wisp.tensor([[[0, 1, 2]]]))
    read = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0, "scalars": 0, "images": 0})
    read.Reload()
    assert [e.value for e in read.Scalars("loss")] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]) and read.Scalars("loss")[4].step == 4
    histogram = read.Histograms("weights")[0].histogram_value
    assert histogram.num == 5 and histogram.min == -1 and histogram.max == 2 and histogram.sum == 2 and sum(histogram.bucket) == 5
    assert len(histogram.bucket) == len(histogram.bucket_limit)
    image = read.Images("many")[0]
    assert (image.height, image.width) == (8, 48)
    assert read.Audio("sound")[0].length_frames == 100
    tensors = {}
    for event in events(tmp_path):
        for v in event.summary.value:
            tensors[v.tag] = v
    assert tensors["exact"].tensor.double_val == [1 / 3] and tensors["tensor"].tensor.float_val == [0.25]
    assert tensors["exact"].metadata.plugin_data.plugin_name == "scalars"
    note = tensors["note/text_summary"]
    assert note.tensor.string_val == ["some *text* é".encode()] and note.metadata.plugin_data.plugin_name == "text"
    assert [d.size for d in note.tensor.tensor_shape.dim] == [1]
    curve = np.array(tensors["curve"].tensor.float_val).reshape(6, 11)
    assert curve[0, 0] == 2 and curve[1, 0] == 2 and curve[0, 5] == 1 and curve[1, 5] == 1 and curve[5, 0] == 1 and curve[4, 8] == 1
    assert [d.size for d in tensors["t"].tensor.tensor_shape.dim] == [2, 2] and list(tensors["t"].tensor.float_val) == [0, 1, 2, 3]
    assert tensors["m_VERTEX"].metadata.plugin_data.plugin_name == "mesh"

    graph = read.Graph()
    nodes = {node.name: node for node in graph.node}
    assert set(nodes) == {
        "Sequential/0",
        "Sequential/0/weight",
        "Sequential/0/bias",
        "Sequential/1",
        "Sequential/2/0",
        "Sequential/2/0/weight",
        "Sequential/2/0/bias",
        "input",
    }
    assert nodes["Sequential/2/0"].input[0] == "Sequential/1" and nodes["Sequential/0"].op == "Linear"
    assert [d.size for d in nodes["Sequential/2/0"].attr["_output_shapes"].list.shape[0].dim] == [3, 2]

    pair = EventAccumulator(str(tmp_path / "pair_y"))
    pair.Reload()
    assert pair.Scalars("pair")[0].value == 2.0

    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.plugins.hparams import plugin_data_pb2

    layout = layout_pb2.Layout.FromString(tensors["custom_scalars__config__"].tensor.string_val[0])
    assert layout.category[0].chart[0].multiline.tag == ["loss", "exact"] and layout.category[0].chart[1].margin.series[0].upper == "z"
    data = {
        v.tag: plugin_data_pb2.HParamsPluginData.FromString(v.metadata.plugin_data.content)
        for event in events(tmp_path / "trial")
        for v in event.summary.value
        if v.tag.startswith("_hparams_")
    }
    start = data["_hparams_/session_start_info"].session_start_info.hparams
    assert start["lr"].number_value == 0.1 and start["name"].string_value == "n" and start["fast"].bool_value is True
    experiment = data["_hparams_/experiment"].experiment
    assert [info.name for info in experiment.hparam_infos] == ["lr", "layers", "name", "fast"]
    assert experiment.metric_infos[0].name.tag == "accuracy" and data["_hparams_/session_end_info"].session_end_info.status == 1


@needs_tensorboard
def test_projector_config(tmp_path):
    from google.protobuf import text_format
    from tensorboard.plugins.projector import projector_config_pb2

    with SummaryWriter(tmp_path) as out:
        out.add_embedding(wisp.rand(5, 3), [["a", 1]] * 5, wisp.rand(5, 1, 4, 4), metadata_header=["name", "n"])
        out.add_embedding(wisp.rand(2, 3), tag="other")
    config = projector_config_pb2.ProjectorConfig()
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    assert [e.tensor_name for e in config.embeddings] == ["default:00000", "other:00000"]
    assert list(config.embeddings[0].sprite.single_image_dim) == [4, 4]


def test_figure(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(2, 1), dpi=50)
    figure.gca().plot([1, 2, 3])
    with SummaryWriter(tmp_path) as out:
        out.add_figure("plot", figure, close=False)
        out.add_figure("plots", [figure, figure])
    (_, one, two) = (
        fields(fields(fields(fields(record)[5][0])[1][0])[4][0]) if b"plot" in record else None for record in records(tmp_path)
    )
    assert (one[1], one[2]) == ([50], [100]) and (two[1], two[2]) == ([50], [200]) and not plt.get_fignums()


@pytest.mark.parametrize("module", [wisp.utils.tensorboard, writer, _content], ids=lambda module: module.__name__)
def test_examples(module):
    assert doctest.testmod(module, extraglobs={"wisp": wisp}).failed == 0


def test_pictures_of_one_channel_are_grey_and_films_are_gifs():
    pytest.importorskip("PIL")
    pixels = _content.picture(wisp.rand(1, 4, 5), "CHW")
    assert pixels.shape == (4, 5, 3) and (pixels[..., 0] == pixels[..., 2]).all()
    assert b"GIF89a" in _content.film(wisp.rand(2, 3, 3, 4, 4), 4)
    with pytest.raises(ValueError, match="N, T, C, H, W"):
        _content.film(wisp.rand(3, 3, 4, 4), 4)


def test_summaries_are_tensorboards_own_objects():
    pytest.importorskip("tensorboard")
    from wisp.utils.tensorboard import summary

    assert summary.scalar("loss", 0.5).value[0].simple_value == 0.5
    counted = summary.histogram("values", wisp.arange(100.0), bins="auto", max_bins=5).value[0].histo
    assert sum(counted.bucket) == counted.num == 100 and counted.bucket[0] == 0 and counted.bucket_limit[0] == 0
    whole = summary.tensor_proto("x", wisp.complex(wisp.ones(2), wisp.zeros(2))).value[0].tensor
    assert list(whole.scomplex_val) == [1, 0, 1, 0] and whole.tensor_shape.dim[0].size == 2
    assert [s.value[0].tag for s in summary.hparams({"lr": 0.1}, {"loss": 1})][0] == "_hparams_/experiment"
