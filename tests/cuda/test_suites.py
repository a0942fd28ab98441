"""The suites of tests/fast with their tensors on the GPU: `pytest --device cuda --share i/n`, in as many processes as
there are processors, since most of the time goes into compiling kernels.

Tests that need an operator without a kernel are skipped by their error (see tests/conftest.py); what a suite tests of
the CPU alone is left out here, by name.
"""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "fast"
SUITES = {
    "operators": "ops/generated_operators ops/broadcast ops/empty ops/formulas ops/fused ops/image ops/indexing ops/pool "
    "ops/reduce ops/shape ops/sort autograd/backward autograd/function autograd/inplace autograd/python_side autograd/forward_ad "
    "core/conjugate core/stored_dtypes func/func func/vmap nn/hooks nn/module nn/state nn/nn_utils distributions optim sparse",
    "pointwise table": "ops/generated",
    "compiled regions": "compile/regions compile/programs",
}
IN_REGIONS = "ops/generated_operators ops/formulas ops/fused ops/reduce autograd/backward autograd/function autograd/inplace"
# The last two: GPUs fuse these, and an index's error is told by a later call.
OF_THE_CPU = "test_repr test_documentation test_shares_memory test_products_of_complex_numbers test_an_index_of_index_add_out_of_range"


@pytest.mark.parametrize("suites", SUITES)
def test_on_the_gpu(suites):
    run(SUITES[suites])


def test_in_compiled_regions():
    run(IN_REGIONS, WISP_TEST_COMPILED="1")


def run(names, **environment):
    paths = [FOLDER / f"{name}.py" for name in names.split()]
    files = [str(path.with_name(f"test_{path.name}")) for path in paths]
    assert all(map(os.path.exists, files))
    chosen = " and ".join(f"not {name}" for name in OF_THE_CPU.split())
    parts = min(16, os.cpu_count() or 1)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--device", "cuda"]
            + ["--share", f"{i + 1}/{parts}", "-k", chosen, *files],
            cwd=FOLDER.parent.parent,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(parts)
    ]
    said = [process.communicate()[0] for process in started]
    failed = [s[-6000:] for s, process in zip(said, started) if process.returncode != 0]
    assert not failed, "\n".join(failed)
