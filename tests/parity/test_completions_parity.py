"""What an editor offers after `torch.`, `x.`, `F.` … beside what PyTorch has there."""

import inspect
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
import torch

import wisp

pytest.importorskip("jedi")
ROOT = pathlib.Path(__file__).parents[2]
HEAD = "import wisp as torch\nfrom wisp import nn, optim\nimport wisp.nn.functional as F\nx = torch.randn(3)\n"
PLACES = {
    "torch.": torch,
    "x.": torch.Tensor,
    "F.": torch.nn.functional,
    "nn.": torch.nn,
    "optim.": torch.optim,
    "torch.linalg.": torch.linalg,
    "torch.optim.lr_scheduler.": torch.optim.lr_scheduler,
    "torch.utils.data.": torch.utils.data,
    "torch.fft.": torch.fft,
    "torch.special.": torch.special,
    "torch.distributions.": torch.distributions,
}


def public_names(home):
    """What a program can use of PyTorch there: what it documents, and all that is not a function."""
    declared = set(getattr(home, "__all__", ()))
    for name in declared if declared and home is not torch else declared | set(dir(home)):
        if name.startswith("_") or name == "Tensor":
            continue
        value = getattr(home, name)
        foreign = not str(getattr(value, "__module__", None) or "torch").startswith("torch")
        if isinstance(value, types.ModuleType) or type(value).__name__ == "pybind11_type" or foreign:
            continue
        same = [getattr(place, name, None) for place in (home, torch, torch.Tensor, torch.nn.functional)]
        if not callable(value) or isinstance(value, type) or any(inspect.getdoc(found) for found in same if callable(found)):
            yield name


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stubs")
    core = pathlib.Path(wisp._core.__file__).resolve()
    subprocess.run([sys.executable, ROOT / "tools" / "make_stubs.py", "--core", core, folder / "wisp"], check=True)
    return folder


OFFERED = """
import jedi, json, sys
folder, places = sys.argv[1], json.loads(sys.argv[2])
project = jedi.Project(folder, sys_path=[folder, *sys.path[1:]])
print(json.dumps({place: [found.name for found in jedi.Script(%r + place, project=project).complete()] for place in places}))
"""


@pytest.fixture(scope="module")
def offered(stubs):
    """Asked in a process of its own: a package on PYTHONPATH would come before the stubs."""
    command = [sys.executable, "-c", OFFERED % HEAD, str(stubs), json.dumps(list(PLACES))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=stubs, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize("place", PLACES)
def test_completions(place, offered):
    wanted = set(public_names(PLACES[place]))
    lacking = sorted(wanted - set(offered[place]))
    assert len(lacking) <= 0.05 * len(wanted), f"{len(lacking)} of {len(wanted)}: {lacking}"
