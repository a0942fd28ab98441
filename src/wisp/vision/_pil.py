"""Pillow, where it is installed: imported when first needed, with a clear error where it is missing."""


def image_module(what):
    """The module PIL.Image."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{what} needs Pillow: pip install wisp[vision] (or pip install pillow)") from None
    return Image


def is_pil(value):
    """Whether the value is a Pillow image, without importing Pillow."""
    kind = type(value)
    return kind.__module__.startswith("PIL.") or any(base.__module__ == "PIL.Image" for base in kind.__mro__)
