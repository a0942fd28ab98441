"""Every Python block of the README and of docs/ runs, and gives what the page says."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import run_docs  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_blocks(page):
    for block in run_docs.run(page):
        assert run_docs.same(block.shown or "", block.output), (
            f"{page.name}:{block.line} gave\n{block.output}\nbut the page says\n{block.shown}"
        )


def test_commands_are_there():
    text = (ROOT / "README.md").read_text()
    assert "wisp demo" in text and ".venv/bin/pytest" in text
