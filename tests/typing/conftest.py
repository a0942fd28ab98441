"""The stubs as they are written from this tree, in a folder where type checkers look first."""

import pathlib
import subprocess
import sys

import pytest

import wisp

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """A folder that has `wisp` with nothing but its stubs."""
    folder = tmp_path_factory.mktemp("stubs")
    core = pathlib.Path(wisp._core.__file__).resolve()
    subprocess.run([sys.executable, ROOT / "tools" / "make_stubs.py", "--core", core, folder / "wisp"], check=True)
    return folder
