"""The suites of tests/fast with their tensors on the GPU: `pytest --device cuda` on each, in a process of its own.

What a suite tests of the CPU alone is left out here, by name.
"""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "fast"
SUITES = {
    "test_generated_operators": "",
    "test_generated": "",
    "test_autograd": "",
    "test_autograd_function": "",
    "test_autograd_inplace": "",
    "test_autograd_python": "",
    "test_broadcast": "",
    "test_distributions": "",
    "test_forward_ad": "",
    "test_func": "",
    "test_fused": "",
    "test_image": "",
    "test_indexing": "",
    "test_nn_hooks": "",
    "test_nn_module": "test_repr",
    "test_nn_state": "",
    "test_nn_utils": "",
    "test_optim": "",
    "test_pool": "",
    "test_reduce": "",
    "test_shape": "",
    "test_sort": "",
    "test_sparse": "test_documentation",
    "test_vmap": "",
}


@pytest.mark.parametrize("suite", SUITES)
def test_on_the_gpu(suite):
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--device", "cuda", str(FOLDER / f"{suite}.py")]
    if SUITES[suite]:
        command += ["-k", " and ".join(f"not {name}" for name in SUITES[suite].split())]
    done = subprocess.run(command, cwd=FOLDER.parent.parent, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
