"""Hooks of mkdocs: pictures in the pages come from running their code, and the reference comes from the docstrings.

Nothing that is generated here lies in the source tree. See mkdocs.yml.
"""

import os
import pathlib
import re
import sys

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import docs_reference  # noqa: E402
import run_docs  # noqa: E402

_pictures = {}  # path within the site -> content


# --- pages with pictures


def on_page_markdown(markdown, page, config, files):
    if page.file.generated_by:
        return markdown
    path = pathlib.Path(config["docs_dir"]) / page.file.src_uri
    pieces, at = [], 0
    text = path.read_text(encoding="utf-8")
    up = "../" * page.url.count("/")
    for number, block in enumerate(run_docs.run(path)):
        pieces.append(text[at : block.start])
        pieces.append(f"```python\n{block.code}```\n")
        if block.picture is not None:
            pieces.append("\n" + _embedded(block.picture, f"{path.stem}-{number}", up) + "\n")
        elif block.shown:
            pieces.append(f"\n```text\n{block.shown}```\n")
        at = block.end
    return "".join(pieces) + text[at:]


def _embedded(picture, name, up):
    """A picture's place in a page: what can be folded and zoomed is a page of its own, the rest an image."""
    if hasattr(picture, "png"):
        _pictures[f"pictures/{name}.png"] = picture.png
        return f"<img src='{up}pictures/{name}.png' alt='{name}' width='{picture.width * 5}' style='image-rendering:pixelated'>\n"
    if type(picture).html is not type(picture).__mro__[1].html:
        _pictures[f"pictures/{name}.html"] = picture.html().encode()
        height = min(640, picture.height if type(picture).__name__ == "Timeline" else 560)
        return (
            f"<iframe src='{up}pictures/{name}.html' loading='lazy' title='{name}' "
            f"style='width:100%;height:{height}px;border:1px solid #8884;border-radius:6px'></iframe>\n"
        )
    _pictures[f"pictures/{name}.svg"] = picture.svg().encode()
    return f"<img src='{up}pictures/{name}.svg' alt='{name}' style='max-width:100%'>\n"


def on_post_build(config):
    for path, content in _pictures.items():
        target = pathlib.Path(config["site_dir"]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


# --- the reference, and the page for contributors


def on_files(files, config):
    nav, pages = docs_reference.pages()
    pages["contributing.md"] = _contributing(pathlib.Path(config["docs_dir"]).parent)
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    for entry in config["nav"]:
        if "Reference" in entry:
            entry["Reference"] = [{title: name} for title, name in nav]
    return files


def _contributing(root):
    """CONTRIBUTING.md, whose links lead to the files of the repository."""
    return re.sub(
        r"\]\((?:docs/)?(design\.md|LICENSE)\)",
        lambda m: f"]({m[1]})" if m[1].endswith("md") else "]",
        (root / "CONTRIBUTING.md").read_text(),
    )


def on_post_page(output, page, config):
    if page.file.src_uri.startswith("reference/") and len(output.encode()) > docs_reference.LARGEST:
        raise PluginError(f"{page.file.src_uri} has {len(output.encode())} bytes, more than {docs_reference.LARGEST}")
    return output
