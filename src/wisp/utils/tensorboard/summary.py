"""What `SummaryWriter` writes, as objects of TensorBoard's own classes, which must be installed for that: `scalar("loss", 0.5)`."""

import numpy as np

from wisp.utils.tensorboard import _content
from wisp.utils.tensorboard._content import array
from wisp.utils.tensorboard.writer import SummaryWriter

__all__ = """
    audio custom_scalars histogram histogram_raw hparams image image_boxes mesh pr_curve pr_curve_raw scalar tensor_proto text
    video""".split()


class _Collecting(SummaryWriter):
    """A writer without a file, which keeps what it is to write."""

    def __init__(self):
        self.values = []

    def _add(self, step, walltime, *values):
        self.values += values


def _summary(values):
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary.FromString(b"".join(values))


def _written(method, *args, **kwargs):
    """The Summary that a method of the writer makes."""
    writer = _Collecting()
    getattr(writer, method)(*args, **kwargs)
    return _summary(writer.values)


def scalar(name, tensor, collections=None, new_style=False, double_precision=False):
    """A number."""
    if array(tensor).size != 1:
        raise AssertionError(f"Tensor should contain one element (0 dimensions). Was given size: {array(tensor).size}")
    return _written("add_scalar", name, tensor, new_style=new_style, double_precision=double_precision)


def histogram(name, values, bins, max_bins=None):
    """How often values fall into buckets."""
    if isinstance(values, (list, tuple)):
        raise TypeError(f"histogram(): expected an array or a tensor, got a {type(values).__name__}")
    return _written("add_histogram", name, values, bins=bins, max_bins=max_bins)


def histogram_raw(name, min, max, num, sum, sum_squares, bucket_limits, bucket_counts):
    """A histogram that was counted already."""
    return _written("add_histogram_raw", name, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)


def image(tag, tensor, rescale=1, dataformats="NCHW"):
    """A picture, or several side by side."""
    pixels = _content.picture(tensor, dataformats)
    return _summary([_content.value(tag, _content.message(4, _content.encoded_image(pixels, rescale)))])


def image_boxes(tag, tensor_image, tensor_boxes, rescale=1, dataformats="CHW", labels=None):
    """A picture with boxes drawn into it."""
    return _written("add_image_with_boxes", tag, tensor_image, tensor_boxes, rescale=rescale, dataformats=dataformats, labels=labels)


def video(tag, tensor, fps=4):
    """Pictures [N, T, C, H, W] one after the other."""
    return _written("add_video", tag, tensor, fps=fps)


def audio(tag, tensor, sample_rate=44100):
    """Sound: samples between -1 and 1."""
    return _written("add_audio", tag, tensor, sample_rate=sample_rate)


def text(tag, text):
    """Text, shown as Markdown."""
    return _written("add_text", tag, text)


def custom_scalars(layout):
    """How diagrams are put together."""
    return _written("add_custom_scalars", layout)


def mesh(tag, vertices, colors, faces, config_dict, display_name=None, description=None):
    """Points or triangles in space."""
    return _written("add_mesh", tag, vertices, colors, faces, config_dict)


def pr_curve(tag, labels, predictions, num_thresholds=127, weights=None):
    """Precision over recall."""
    return _written("add_pr_curve", tag, labels, predictions, num_thresholds=num_thresholds, weights=weights)


def pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, num_thresholds=127, weights=None):
    """A curve that was counted already."""
    return _written("add_pr_curve_raw", tag, tp, fp, tn, fn, precision, recall, num_thresholds=num_thresholds, weights=weights)


def hparams(hparam_dict, metric_dict, hparam_domain_discrete=None):
    """The settings of a run: the experiment, the start and the end of its session."""
    if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
        raise TypeError("hparams(): hparam_dict and metric_dict should be dictionaries.")
    return tuple(_summary([entry]) for entry in _content.hparams(hparam_dict, metric_dict, hparam_domain_discrete))


# dtype -> TensorBoard's name of it, the field that its values are in, and what these are read as
_FIELDS = {
    "float16": ("DT_HALF", "half_val", "uint16"),
    "bfloat16": ("DT_BFLOAT16", "half_val", "uint16"),
    "float32": ("DT_FLOAT", "float_val", "float32"),
    "float64": ("DT_DOUBLE", "double_val", "float64"),
    "int8": ("DT_INT8", "int_val", "int8"),
    "uint8": ("DT_UINT8", "int_val", "uint8"),
    "int16": ("DT_INT16", "int_val", "int16"),
    "int32": ("DT_INT32", "int_val", "int32"),
    "int64": ("DT_INT64", "int64_val", "int64"),
    "bool": ("DT_BOOL", "bool_val", "bool"),
    "complex64": ("DT_COMPLEX64", "scomplex_val", "float32"),
    "complex128": ("DT_COMPLEX128", "dcomplex_val", "float64"),
}


def tensor_proto(tag, tensor):
    """A whole tensor."""
    from tensorboard.compat.proto import types_pb2
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

    import wisp

    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _FIELDS:
        raise ValueError(f"tensor_proto(): a tensor of dtype {tensor.dtype} has no place in TensorBoard's files")
    kind, field, read_as = _FIELDS[name]
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    values = (flat.view(wisp.uint8).numpy().view(read_as) if flat.numel() else np.empty(0, read_as)).tolist()
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in tensor.shape])
    content = TensorProto(dtype=getattr(types_pb2, kind), tensor_shape=shape, **{field: values})
    plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="tensor"))
    return Summary(value=[Summary.Value(tag=tag, metadata=plugin, tensor=content)])


def _calc_scale_factor(tensor):
    """What pixels are multiplied by: bytes are as they are, other numbers lie between 0 and 1."""
    return 1 if array(tensor).dtype == np.uint8 else 255
