"""Every Python block of the README and of docs/ runs."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_blocks(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S):
        exec(compile(block, str(page), "exec"), {"__name__": "__main__"})


def test_commands_are_there():
    text = (ROOT / "README.md").read_text()
    assert "wisp demo" in text and ".venv/bin/pytest" in text
