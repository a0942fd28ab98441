"""What the package promises to type checkers: programs in the style of PyTorch's tutorials have no errors, and wrong ones have."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import wisp

SCRIPTS = sorted((pathlib.Path(__file__).parent / "scripts").glob("*.py"))
EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "examples").glob("*.py"))
WRONG = """\
import wisp as torch
from wisp import nn
from wisp.utils.data import DataLoader, TensorDataset

x = torch.randn(3)
x.no_such_method()  # 1
torch.no_such_function(x)  # 2
torch.cat(1, x)  # 3
n: int = torch.zeros(2)  # 4
layer = nn.Linear(3, 4)
s: str = layer(x)  # 5
layer(x, 3)  # 6
loader = DataLoader(TensorDataset(x), shuffel=True)  # 7
torch.optim.Adam(layer.parameters()).step().item()  # 8
torch.linalg.norm(x).upper()  # 9
a, b, c = torch.sort(x)  # 10
"""


def run_mypy(stubs, *files):
    pytest.importorskip("mypy")
    settings = f"[mypy]\nstrict = True\nmypy_path = {stubs}\nfollow_imports = silent\nfollow_imports_for_stubs = True\n"
    (stubs / "mypy.ini").write_text(settings)
    command = [sys.executable, "-m", "mypy", "--config-file", stubs / "mypy.ini", "--cache-dir", stubs / "cache", *files]
    return subprocess.run(command, capture_output=True, text=True, cwd=stubs)


def run_pyright(stubs, *files):
    pytest.importorskip("pyright")
    # Rules of style for scripts: they say nothing of the package.
    style = dict.fromkeys(("reportConstantRedefinition", "reportUnusedVariable", "reportPossiblyUnboundVariable"), False)
    settings = {"extraPaths": [str(stubs)], "typeCheckingMode": "strict", "reportMissingModuleSource": False, **style}
    (stubs / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--project", stubs / "pyrightconfig.json", "--pythonpath", sys.executable, *files]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYRIGHT_PYTHON_IGNORE_WARNINGS="1"))


def test_there_are_enough_scripts():
    assert len(SCRIPTS) >= 10 and len(EXAMPLES) >= 9


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_scripts_run(script):
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(os.path.abspath(wisp.__file__))))
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("check", [run_mypy, run_pyright])
@pytest.mark.parametrize("files", [SCRIPTS, EXAMPLES], ids=["scripts", "examples"])
def test_programs_have_no_errors(check, files, stubs):
    run = check(stubs, *files)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("check", [run_mypy, run_pyright])
def test_mistakes_are_found(check, stubs):
    path = stubs / "wrong.py"
    path.write_text(WRONG)
    run = check(stubs, path)
    found = {int(line) for line in re.findall(r"wrong\.py:(\d+):.*error", run.stdout)}
    wanted = {number for number, line in enumerate(WRONG.splitlines(), 1) if "  # " in line}
    assert found == wanted, run.stdout


def test_an_installed_package_has_its_stubs(stubs):
    package = pathlib.Path(wisp.__file__).parent
    if package.parent.name == "src":
        pytest.skip("a source tree: tools/develop.py writes them there")
    written, installed = ({path.relative_to(folder) for path in folder.rglob("*.pyi")} for folder in (stubs / "wisp", package))
    assert written == installed and (package / "py.typed").exists()
