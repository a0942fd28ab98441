"""Reading and writing image files, through Pillow."""

import enum as _enum
import io as _io

import wisp
from wisp import _reference
from wisp.vision._pil import image_module

__all__ = [
    "ImageReadMode",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "encode_jpeg",
    "encode_png",
    "read_file",
    "read_image",
    "write_file",
    "write_jpeg",
    "write_png",
]


class ImageReadMode(_enum.Enum):
    """As which kind of picture a file is read."""

    UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = 0, 1, 2, 3, 4


_MODES = {ImageReadMode.GRAY: "L", ImageReadMode.GRAY_ALPHA: "LA", ImageReadMode.RGB: "RGB", ImageReadMode.RGB_ALPHA: "RGBA"}


def _decoded(source, mode):
    from wisp.vision.transforms.functional import pil_to_tensor

    mode = ImageReadMode[mode.upper()] if isinstance(mode, str) else mode
    with image_module("read_image").open(source) as picture:
        if mode is ImageReadMode.UNCHANGED:
            return pil_to_tensor(picture.convert("RGB") if picture.mode in ("P", "CMYK", "YCbCr") else picture)
        return pil_to_tensor(picture.convert(_MODES[mode]))


def read_image(path, mode=ImageReadMode.UNCHANGED, apply_exif_orientation=False):
    """The picture of a file as a tensor [C, H, W] of bytes."""
    return _decoded(path, mode)


def decode_image(input, mode=ImageReadMode.UNCHANGED, apply_exif_orientation=False):
    """The picture of a file, or of a tensor that holds a file's bytes."""
    return _decoded(_io.BytesIO(input.numpy().tobytes()) if isinstance(input, wisp.Tensor) else input, mode)


decode_jpeg = decode_png = decode_webp = decode_gif = decode_image


def _encoded(picture, format, **options):
    from wisp.vision.transforms.functional import to_pil_image

    if picture.dtype != wisp.uint8:
        raise RuntimeError(f"Input tensor dtype should be uint8, got {picture.dtype}")
    target = _io.BytesIO()
    to_pil_image(picture).save(target, format, **options)
    return target.getvalue()


def encode_png(input, compression_level=6):
    """The bytes of a PNG file as a tensor."""
    return wisp.frombuffer(bytearray(_encoded(input, "PNG", compress_level=compression_level)), dtype=wisp.uint8)


def encode_jpeg(input, quality=75):
    """The bytes of a JPEG file as a tensor."""
    return wisp.frombuffer(bytearray(_encoded(input, "JPEG", quality=quality)), dtype=wisp.uint8)


def write_png(input, filename, compression_level=6):
    """Save a picture [C, H, W] of bytes as PNG."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input, filename, quality=75):
    """Save a picture [C, H, W] of bytes as JPEG."""
    write_file(filename, encode_jpeg(input, quality))


def read_file(path):
    """The bytes of a file as a tensor."""
    with open(path, "rb") as file:
        return wisp.frombuffer(bytearray(file.read()), dtype=wisp.uint8)


def write_file(filename, data):
    """Write a tensor of bytes to a file."""
    with open(filename, "wb") as file:
        file.write(data.numpy().tobytes())


_reference.attach(__name__, globals())
