"""What goes into the events: histograms, pictures, curves, hyperparameters and graphs, from arrays and tensors."""

import io
import math
import wave

import numpy as np

import wisp
from wisp.utils._protobuf import double, message, packed, single, text, varint
from wisp.utils.tensorboard._events import metadata, value
from wisp.viz._display import encode_png

__all__ = ["array", "audio", "encoded_image", "figure_pixels", "graph", "histogram", "hparams", "number", "picture", "pr_curve", "tile"]


def array(x):
    """A tensor, list or number as an array."""
    if isinstance(x, wisp.Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype == wisp.bfloat16 else x).numpy()
    return np.asarray(x)


def number(x):
    """A number from anything of one element."""
    if isinstance(x, (int, float)):
        return x
    values = array(x)
    if values.size != 1:
        raise ValueError(f"add_scalar(): expected a single number, got {values.size} of them (shape {list(values.shape)})")
    return values.reshape(()).item()


# --- histograms


def _default_bins():
    """TensorBoard's buckets: each 10 % wider than the one before, on both sides of zero."""
    edges, x = [], 1e-12
    while x < 1e20:
        edges.append(x)
        x *= 1.1
    return [-x for x in reversed(edges)] + [0.0] + edges


def histogram(values, bins="tensorflow", max_bins=None) -> bytes:
    """A HistogramProto of the finite values."""
    values = array(values).astype(np.float64).reshape(-1)
    if values.size == 0:
        raise ValueError("add_histogram(): the input has no element.")
    kept = values[np.isfinite(values)]
    if kept.size == 0:
        kept = np.zeros(1)
    edges = _default_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
    counts, edges = np.histogram(kept, bins=edges)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
        edges = np.append(edges[:-1:step], edges[-1])
    used = np.nonzero(counts)[0]
    first, last = (used[0], used[-1]) if len(used) else (0, 0)
    # the left side of the first bucket, which has no field of its own, is an empty bucket
    limits, counts = list(edges[first : last + 2]), [0, *counts[first : last + 1]]
    return raw_histogram(kept.min(), kept.max(), kept.size, kept.sum(), (kept * kept).sum(), limits, counts)


def raw_histogram(least, most, count, total, squares, limits, counts):
    fields = [double(i + 1, float(x)) for i, x in enumerate((least, most, count, total, squares))]
    return b"".join(fields) + packed(6, [float(x) for x in limits]) + packed(7, [float(x) for x in counts])


# --- pictures and sound


def tile(images, columns=8):
    """[N, H, W, C] as one picture, row by row."""
    count, height, width, channels = images.shape
    across = min(count, columns)
    down = -(-count // across)
    grid = np.zeros((down * height, across * width, channels), images.dtype)
    for i in range(count):
        y, x = i // across * height, i % across * width
        grid[y : y + height, x : x + width] = images[i]
    return grid


def picture(x, formats):
    """An array whose dimensions are named by letters (CHW, HWC, HW, NCHW ...) as bytes [H, W, C]."""
    x, formats = array(x), formats.upper()
    if len(set(formats)) != len(formats) or x.ndim != len(formats) or set(formats) - set("NCHW") or not {"H", "W"} <= set(formats):
        raise ValueError(f"add_image(): dataformats {formats!r} does not fit a picture of shape {list(x.shape)}")
    if x.dtype != np.uint8:
        x = (np.nan_to_num(np.clip(x.astype(np.float64), 0, 1)) * 255).round().astype(np.uint8)
    if "C" not in formats:
        x, formats = x[..., None], formats + "C"
    if "N" in formats:
        x = tile(x.transpose([formats.index(letter) for letter in "NHWC"]))
    else:
        x = x.transpose([formats.index(letter) for letter in "HWC"])
    if x.shape[2] == 1:
        x = x.repeat(3, axis=2)
    if x.shape[2] not in (3, 4):
        raise ValueError(f"add_image(): expected 1, 3 or 4 channels, got {x.shape[2]} (dataformats {formats!r})")
    return x


def encoded_image(pixels, rescale=1):
    """A Summary.Image of bytes [H, W, C]."""
    height, width, channels = pixels.shape
    if rescale != 1:
        rows = np.minimum((np.arange(max(1, int(height * rescale))) / rescale).astype(int), height - 1)
        columns = np.minimum((np.arange(max(1, int(width * rescale))) / rescale).astype(int), width - 1)
        pixels = pixels[rows][:, columns]
        height, width, channels = pixels.shape
    png = encode_png(wisp.from_numpy(np.ascontiguousarray(pixels)))
    return varint(1, height) + varint(2, width) + varint(3, channels) + message(4, png)


def figure_pixels(figure):
    """What matplotlib draws, as bytes [H, W, 4]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


def film(frames, rate):
    """A Summary.Image of a GIF: films [N, T, C, H, W] side by side."""
    frames = array(frames)
    if frames.ndim != 5:
        raise ValueError(f"add_video(): expected films of shape [N, T, C, H, W], got {list(frames.shape)}")
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("add_video() needs Pillow: pip install pillow") from error
    side = square_side(frames.shape[0])
    pictures = []
    for t in range(frames.shape[1]):
        pixels = frames[:, t]
        if pixels.dtype != np.uint8:
            pixels = (np.nan_to_num(np.clip(pixels.astype(np.float64), 0, 1)) * 255).round().astype(np.uint8)
        grid = tile(pixels.transpose(0, 2, 3, 1), side)
        pictures.append(Image.fromarray(grid[..., 0] if grid.shape[2] == 1 else grid))
    file = io.BytesIO()
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=1000 / rate, loop=0)
    height, width, channels = grid.shape
    return varint(1, height) + varint(2, width) + varint(3, channels) + message(4, file.getvalue())


def audio(samples, rate):
    """A Summary.Audio: samples between -1 and 1, one channel."""
    samples = array(samples).reshape(-1).astype(np.float64)
    data = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(data)
    return single(1, rate) + varint(2, 1) + varint(3, samples.size) + message(4, file.getvalue()) + text(5, "audio/wav")


# --- curves


def pr_curve(labels, predictions, thresholds=127, weights=None):
    """Counts and rates at evenly spaced thresholds: rows tp, fp, tn, fn, precision, recall."""
    labels, predictions = array(labels).reshape(-1) > 0.5, array(predictions).reshape(-1).astype(np.float64)
    weights = np.ones(len(labels)) if weights is None else array(weights).reshape(-1)
    thresholds = min(thresholds, 127)
    bucket = np.floor(predictions * (thresholds - 1)).astype(int).clip(0, thresholds - 1)
    positive = np.bincount(bucket, weights * labels, thresholds)[::-1].cumsum()[::-1]
    negative = np.bincount(bucket, weights * ~labels, thresholds)[::-1].cumsum()[::-1]
    tiny = 1e-7
    precision, recall = positive / np.maximum(tiny, positive + negative), positive / np.maximum(tiny, positive[0])
    return np.stack([positive, negative, negative[0] - negative, positive[0] - positive, precision, recall])


# --- hyperparameters


def _protobuf_value(x):
    """google.protobuf.Value."""
    if isinstance(x, bool):
        return varint(4, x)
    if isinstance(x, (int, float)):
        return double(2, x)
    return text(3, x)


def hparams(values, metrics, discrete=None):
    """The three values of the plugin: the experiment, the start and the end of this session."""
    discrete = discrete or {}
    infos, pairs = b"", b""
    for name, x in values.items():
        if isinstance(x, (wisp.Tensor, np.generic)):
            x = number(x)
        if x is None:
            continue
        if not isinstance(x, (bool, int, float, str)):
            raise ValueError(
                f"add_hparams(): the value of {name!r} should be one of int, float, str, bool or a tensor of one element, "
                f"got {type(x).__name__}"
            )
        kind = 2 if isinstance(x, bool) else 3 if isinstance(x, (int, float)) else 1
        domain = message(5, b"".join(message(1, _protobuf_value(v)) for v in discrete[name])) if name in discrete else b""
        infos += message(4, text(1, name) + varint(4, kind) + domain)
        pairs += message(1, text(1, name) + message(2, _protobuf_value(x)))
    infos += b"".join(message(5, message(1, text(2, name))) for name in metrics)

    def entry(tag, field, content):
        return value("_hparams_/" + tag, metadata("hparams", message(field, content)))

    return entry("experiment", 2, infos), entry("session_start_info", 3, pairs), entry("session_end_info", 4, varint(1, 1))


# --- graphs


def graph(model, inputs):
    """A GraphDef of a call of the model: modules are the folders, operators and parameters the nodes."""
    from wisp.viz import graph as picture

    drawn = picture(model, inputs, gradients=False)
    taken = set()

    def named(item, title):
        path, group = [title.replace(" ", "_")], item.group
        while group is not None:
            path.insert(0, group.name)
            group = group.parent
        base = name = "/".join(path)
        n = 1
        while name in taken:
            n += 1
            name = f"{base}_{n}"
        taken.add(name)
        return name

    def shapes(outputs):
        dims = b"".join(message(7, b"".join(message(2, varint(1, size)) for size in shape)) for shape, _ in outputs)
        return message(5, text(1, "_output_shapes") + message(2, message(1, dims)))

    names = {item: named(item, item.title) for item in drawn.items}
    nodes = b""
    for item in drawn.items:
        sources = [names[edge.source] for edge in drawn.edges if edge.target is item]
        for full, shape, dtype, _, _ in item.parameters:
            own = named(item, item.title + "/" + full.rsplit(".", 1)[-1])
            nodes += message(1, text(1, own) + text(2, "Parameter") + shapes([(shape, dtype)]))
            sources.append(own)
        operator = "Input" if item.kind == "leaf" else item.module or item.title
        nodes += message(1, text(1, names[item]) + text(2, operator) + b"".join(text(3, s) for s in sources) + shapes(item.outputs))
    return nodes + message(4, varint(1, 22))


def square_side(count):
    """The side of the smallest square grid that holds so many pictures."""
    return math.isqrt(count - 1) + 1 if count else 1
