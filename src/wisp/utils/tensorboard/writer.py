"""SummaryWriter: scalars, histograms, pictures, text, curves, graphs, embeddings and hyperparameters for TensorBoard."""

import datetime
import json
import os
import socket
import time

import numpy as np

import wisp
from wisp.utils._protobuf import message, packed, single, text, varint, varints
from wisp.utils.tensorboard import _content
from wisp.utils.tensorboard._content import array, number
from wisp.utils.tensorboard._events import EventFile, float_tensor, metadata, string_tensor, value

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """One event file. `SummaryWriter` keeps these; use that."""

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        self.log_dir = str(log_dir)
        self.event_writer = EventFile(self.log_dir, max_queue, flush_secs, filename_suffix)

    def get_logdir(self):
        return self.log_dir

    def add_summary(self, values, global_step=None, walltime=None):
        """Write the values of a summary: encoded, or a message of Protocol Buffers."""
        values = values if isinstance(values, bytes) else values.SerializeToString()
        step = None if global_step is None else int(number(global_step))
        self.event_writer.add(message(5, values), step, walltime)

    def flush(self):
        self.event_writer.flush()

    def close(self):
        self.event_writer.close()


class SummaryWriter:
    """Writes event files into a folder (`runs/<time>_<host><comment>` by default), which `tensorboard --logdir runs` shows.

    >>> import tempfile
    >>> writer = SummaryWriter(tempfile.mkdtemp())
    >>> writer.add_scalar("loss/train", 0.5, global_step=1)
    >>> writer.add_histogram("weights", wisp.randn(100), 1)
    >>> writer.add_image("noise", wisp.rand(3, 8, 8), 1)
    >>> writer.add_text("note", "it *works*")
    >>> writer.close()
    """

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer, self.all_writers = None, None
        self._get_file_writer()
        if purge_step is not None:  # whatever was written from this step on is out of date
            self.file_writer.event_writer.add(message(7, varint(1, 1)), purge_step)

    def _get_file_writer(self):
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, *self._options)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
        return self.file_writer

    def _add(self, step, walltime, *values):
        self._get_file_writer().add_summary(b"".join(values), step, walltime)

    def get_logdir(self):
        """The folder."""
        return self.log_dir

    # --- numbers
    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """A number at a step."""
        x = float(number(scalar_value))
        if new_style:
            content = message(8, varint(1, 2) + message(2, b"") + packed(6, [x])) if double_precision else float_tensor([x])
            self._add(global_step, walltime, value(tag, content, metadata("scalars")))
        else:
            self._add(global_step, walltime, value(tag, single(2, x)))

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Several numbers that are shown in one diagram; each gets a run of its own."""
        walltime = time.time() if walltime is None else walltime
        self._get_file_writer()
        for tag, x in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            if folder not in self.all_writers:
                if ".." in tag.split("/"):
                    raise ValueError(f"add_scalars: the name {tag!r} leads out of the folder {self.log_dir}; leave '..' away")
                self.all_writers[folder] = FileWriter(folder, *self._options)
            self.all_writers[folder].add_summary(value(main_tag, single(2, float(number(x)))), global_step, walltime)

    def add_tensor(self, tag, tensor, global_step=None, walltime=None):
        """All numbers of a tensor."""
        x = array(tensor).astype(np.float32)
        self._add(global_step, walltime, value(tag, float_tensor(x.reshape(-1).tolist(), *x.shape), metadata("tensor")))

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        """How the values of a tensor are distributed. `bins` as in numpy.histogram, or TensorBoard's own by default."""
        self._add(global_step, walltime, value(tag, message(5, _content.histogram(values, bins, max_bins))))

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step=None, walltime=None):
        """A histogram that was counted already; `bucket_limits` are the right sides of the buckets."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("add_histogram_raw(): len(bucket_limits) != len(bucket_counts)")
        histogram = _content.raw_histogram(min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(global_step, walltime, value(tag, message(5, histogram)))

    # --- pictures, sound, text
    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """A picture: numbers between 0 and 1, or bytes; `dataformats` names its dimensions."""
        pixels = _content.picture(img_tensor, dataformats)
        self._add(global_step, walltime, value(tag, message(4, _content.encoded_image(pixels))))

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Several pictures, in a grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(self, tag, img_tensor, box_tensor, global_step=None, walltime=None, rescale=1, dataformats="CHW", labels=None):
        """A picture with rectangles [left, top, right, bottom] drawn on it."""
        pixels = _content.picture(img_tensor, dataformats).copy()
        height, width, channels = pixels.shape
        colour = np.array([255, 0, 0, 255], np.uint8)[:channels]
        boxes = array(box_tensor).reshape(-1, 4).astype(int)
        for left, top, right, bottom in np.clip(boxes, 0, [width - 1, height - 1, width - 1, height - 1]):
            pixels[[top, bottom], left : right + 1] = colour
            pixels[top : bottom + 1, [left, right]] = colour
        self._add(global_step, walltime, value(tag, message(4, _content.encoded_image(pixels, rescale))))

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """A figure of matplotlib's, or a list of them."""
        several = isinstance(figure, (list, tuple))
        drawn = [_content.figure_pixels(one) for one in (figure if several else [figure])]
        if several:
            self.add_image(tag, np.stack(drawn), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, drawn[0], global_step, walltime, "HWC")
        if close:
            import matplotlib.pyplot as plt

            for one in figure if several else [figure]:
                plt.close(one)

    def add_video(self, tag, vid_tensor, global_step=None, fps=4, walltime=None):
        """Films [N, T, C, H, W], side by side, of values between 0 and 1 or bytes; Pillow makes a GIF of them."""
        encoded = _content.film(vid_tensor, fps)
        self._add(global_step, walltime, value(tag, message(4, encoded)))

    def add_audio(self, tag, snd_tensor, global_step=None, sample_rate=44100, walltime=None):
        """Sound: samples between -1 and 1."""
        self._add(global_step, walltime, value(tag, message(6, _content.audio(snd_tensor, sample_rate))))

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """Text, shown as Markdown."""
        self._add(global_step, walltime, value(tag + "/text_summary", string_tensor(str(text_string).encode(), 1), metadata("text")))

    # --- models
    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """The graph of a model's call on `input_to_model` (a tensor, or a tuple of arguments)."""
        if input_to_model is None:
            raise ValueError("add_graph(): an input is needed to call the model with: add_graph(model, x)")
        encoded = _content.graph(model, input_to_model)
        if verbose:
            print(wisp.viz.summary(model, input_to_model))
        self._get_file_writer().event_writer.add(message(4, encoded))

    def add_embedding(self, mat, metadata=None, label_img=None, global_step=None, tag="default", metadata_header=None):
        """Points for the projector: a matrix with a row for each, and a label (or labels, with a header) and a picture for each."""
        points = array(mat)
        if points.ndim != 2:
            raise ValueError(
                f"add_embedding(): mat should be 2D, where mat.size(0) is the number of data points; got shape {list(points.shape)}"
            )
        step = 0 if global_step is None else int(number(global_step))
        name = os.path.join(str(step).zfill(5), tag)
        folder = os.path.join(self.log_dir, name)
        os.makedirs(folder, exist_ok=True)
        entry = [f'tensor_name: "{tag}:{str(step).zfill(5)}"', f'tensor_path: "{name}/tensors.tsv"']
        np.savetxt(os.path.join(folder, "tensors.tsv"), points, delimiter="\t", fmt="%.8g")
        if metadata is not None:
            if len(metadata) != len(points):
                raise ValueError(f"add_embedding(): #labels should equal with #data points, got {len(metadata)} and {len(points)}")
            rows = ["\t".join(map(str, row)) if metadata_header else str(row) for row in metadata]
            header = ["\t".join(metadata_header)] if metadata_header else []
            with open(os.path.join(folder, "metadata.tsv"), "w", encoding="utf-8") as file:
                file.write("\n".join(header + rows))
            entry.append(f'metadata_path: "{name}/metadata.tsv"')
        if label_img is not None:
            if len(label_img) != len(points):
                raise ValueError(f"add_embedding(): #images should equal with #data points, got {len(label_img)} and {len(points)}")
            images = array(label_img)
            side = _content.square_side(len(images))
            images = np.concatenate([images, np.zeros((side * side - len(images), *images.shape[1:]), images.dtype)])
            sprite = np.stack([_content.picture(image, "CHW") for image in images])
            with open(os.path.join(folder, "sprite.png"), "wb") as file:
                file.write(_content.encode_png(wisp.from_numpy(_content.tile(sprite, side))))
            entry.append(
                f'sprite {{ image_path: "{name}/sprite.png" single_image_dim: {images.shape[3]} single_image_dim: {images.shape[2]} }}'
            )
        with open(os.path.join(self.log_dir, "projector_config.pbtxt"), "a", encoding="utf-8") as file:
            file.write("embeddings { " + " ".join(entry) + " }\n")

    def add_pr_curve(self, tag, labels, predictions, global_step=None, num_thresholds=127, weights=None, walltime=None):
        """Precision over recall: true labels (0 or 1) and predicted probabilities."""
        curve = _content.pr_curve(labels, predictions, num_thresholds, weights)
        self._add_curve(tag, curve, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag,
        true_positive_counts,
        false_positive_counts,
        true_negative_counts,
        false_negative_counts,
        precision,
        recall,
        global_step=None,
        num_thresholds=127,
        weights=None,
        walltime=None,
    ):
        """A curve that was counted already."""
        rows = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall)
        self._add_curve(tag, np.stack([array(row) for row in rows]), global_step, walltime)

    def _add_curve(self, tag, curve, step, walltime):
        content = float_tensor(curve.reshape(-1).tolist(), *curve.shape)
        self._add(step, walltime, value(tag, content, metadata("pr_curves", varint(2, curve.shape[1]))))

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """The settings of a run and what came out, for the comparison of runs."""
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("add_hparams(): hparam_dict and metric_dict should be dictionaries.")
        entries = _content.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for entry in entries:
                writer.file_writer.add_summary(entry)
            for name, x in metric_dict.items():
                writer.add_scalar(name, x, global_step)

    def add_custom_scalars(self, layout):
        """How diagrams are put together: {category: {title: ["Multiline" or "Margin", [tags]]}}."""
        content = varint(1, 0)
        for category, charts in layout.items():
            inside = text(1, category)
            for title, (kind, tags) in charts.items():
                if kind.lower() == "margin":
                    lines = message(3, message(1, b"".join(text(i + 1, tag) for i, tag in enumerate(tags[:3]))))
                else:
                    lines = message(2, b"".join(text(1, tag) for tag in tags))
                inside += message(2, text(1, title) + lines)
            content += message(2, inside)
        self._add(None, None, value("custom_scalars__config__", string_tensor(content), metadata("custom_scalars")))

    def add_custom_scalars_multilinechart(self, tags, category="default", title="untitled"):
        """One diagram with several lines."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags, category="default", title="untitled"):
        """One diagram with a line between two others: [value, lower, upper]."""
        if len(tags) != 3:
            raise ValueError(f"add_custom_scalars_marginchart(): expected three tags (value, lower, upper), got {len(tags)}")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_mesh(self, tag, vertices, colors=None, faces=None, config_dict=None, global_step=None, walltime=None):
        """Points or triangles in space: vertices [N, points, 3], colors of them, faces as indices."""
        shown = [(1, vertices), (2, faces), (3, colors)]  # kinds of TensorBoard's mesh plugin
        present = sum(1 << kind for kind, x in shown if x is not None)
        values = []
        for kind, x in shown:
            if x is None:
                continue
            x = array(x).astype(np.float32)
            name = f"{tag}_{('', 'VERTEX', 'FACE', 'COLOR')[kind]}"
            content = (
                text(2, tag)
                + varint(3, kind)
                + text(5, json.dumps(config_dict or {}, sort_keys=True))
                + varints(6, x.shape)
                + varint(7, present)
            )
            values.append(value(name, float_tensor(x.reshape(-1).tolist(), *x.shape), metadata("mesh", content)))
        self._add(global_step, walltime, *values)

    # --- files
    def flush(self):
        """Make everything reach the disk."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self):
        """Flush and close the files; the next `add_...` opens a new one."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
