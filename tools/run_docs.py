"""Runs the code of a documentation page as a reader would: block by block, in one namespace.

What a block prints, and the value of its last expression, stand in the page in an `output` block after it; the tests compare.
A block that is meant to fail is marked `python raises`. `python tools/run_docs.py docs/tutorial/*.md` writes the outputs anew.
"""

import ast
import contextlib
import dataclasses
import doctest
import io
import linecache
import os
import pathlib
import re
import sys
import tempfile

_BLOCK = re.compile(r"^```python( raises)?\n(.*?)^```\n(?:\n?^```output\n(.*?)^```\n)?", re.M | re.S)


@dataclasses.dataclass
class Block:
    start: int  # of the whole match in the page
    end: int
    line: int  # of the first line of code
    raises: bool
    code: str
    shown: str | None  # the output in the page
    output: str = ""  # what it gave now
    picture: object = None  # the value of the last expression, if it is one


def blocks(text):
    """The Python blocks of a page."""
    return [
        Block(match.start(), match.end(), text[: match.start(2)].count("\n") + 1, bool(match[1]), match[2], match[3])
        for match in _BLOCK.finditer(text)
    ]


def _run(block, name, namespace):
    # As many empty lines in front as the page has: errors and pictures name the page's own lines.
    tree = ast.parse("\n" * (block.line - 1) + block.code, name)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    value = eval(compile(last, name, "eval"), namespace) if last is not None else None
    if hasattr(value, "svg") or hasattr(value, "png"):
        block.picture = value
    elif value is not None:
        print(repr(value))


def run(path):
    """Run a page in an empty folder, and return its blocks with what they gave."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    name = os.path.basename(path)
    linecache.cache[name] = (len(text), None, [line + "\n" for line in text.splitlines()], name)
    namespace = {"__name__": "__main__"}
    found = blocks(text)
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in found:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    try:
                        _run(block, name, namespace)
                    except Exception as error:
                        if not block.raises:
                            raise
                        print("\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]))
                    else:
                        if block.raises:
                            raise AssertionError(f"{name}:{block.line}: this block should raise an error")
                block.output = "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())
        finally:
            os.chdir(home)
    return found


def same(shown, output):
    """Whether an output is what the page shows: white space aside, `...` stands for anything, and of progress bars only the
    last state counts, without its numbers."""

    def settled(text):
        lines = [re.sub(r"━.*", "━ done", line) for line in text.splitlines() if "━" not in line or "100%" in line]
        return "\n".join(lines) + "\n"

    return doctest.OutputChecker().check_output(settled(shown), settled(output), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


def rewrite(path):
    """Put the outputs into the page."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    for block in reversed(run(path)):
        code = f"```python{' raises' if block.raises else ''}\n{block.code}```\n"
        output = block.shown if block.shown and same(block.shown, block.output) else block.output
        shown = f"\n```output\n{output}```\n" if output else ""
        text = text[: block.start] + code + shown + text[block.end :]
    pathlib.Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for page in sys.argv[1:]:
        rewrite(page)
