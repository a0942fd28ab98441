"""What all pictures share: escaping, texts of sizes, self-contained pages, frames in notebooks."""

import html
import json
import pathlib

__all__ = ["Picture", "bytes_text", "embed", "escape", "number_text", "page", "read", "shape_text"]

_HERE = pathlib.Path(__file__).parent
escape = html.escape


def read(name):
    """A file beside this one."""
    return (_HERE / name).read_text(encoding="utf-8")


def embed(value):
    """A value as JSON that may stand inside a script element."""
    return json.dumps(value).replace("<", "\\u003c")


def bytes_text(count):
    """1536 -> '1.5 KB'."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def number_text(value):
    """Three significant digits."""
    return f"{value:.3g}"


def shape_text(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


def page(title, body):
    """A whole HTML page that needs nothing else."""
    return (
        f"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'><meta name='color-scheme' content='light dark'></head>\n"
        f"<body style='margin:0'>\n{body}\n</body></html>\n"
    )


class Picture:
    """Something that is an SVG and a page."""

    title, height = "wisp", 480

    def svg(self):
        """The picture as the text of an SVG."""
        raise NotImplementedError

    def html(self):
        """The picture as the text of a page that needs nothing else."""
        return page(self.title, self.svg())

    def save(self, path):
        """Write the picture: SVG by the name's end .svg, else an HTML page."""
        text = self.svg() if str(path).endswith(".svg") else self.html()
        pathlib.Path(path).write_text(text, encoding="utf-8")

    def _repr_svg_(self):
        return self.svg()

    def _repr_html_(self):
        return (
            f'<iframe srcdoc="{escape(self.html())}" style=\'width:100%;height:{self.height}px;border:1px solid #d4d4d8;'
            f"border-radius:6px' sandbox='allow-scripts'></iframe>"
        )
