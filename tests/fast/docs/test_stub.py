"""The type stub of the core is what the registered signatures say."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]


def test_the_stub_is_fresh():
    if not (ROOT / "tools" / "make_stub.py").exists():
        pytest.skip("not a source tree")
    run = subprocess.run([sys.executable, ROOT / "tools" / "make_stub.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_stub_is_python():
    compile((ROOT / "src" / "wisp" / "_core.pyi").read_text(), "_core.pyi", "exec")
