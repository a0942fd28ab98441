"""The example of every operator, on the GPU: it shows what it shows on the CPU."""

import contextlib
import doctest
import io
import pathlib
import re

import numpy as np
import pytest

import wisp
from wisp import _core

MISSING = (pathlib.Path(__file__).parent / "missing.txt").read_text().split()
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\binf\b|\bnan\b)")
# What is shown is of the CPU: its memory, or numbers that come in no fixed order.
HOST_ONLY = {
    "is_pinned",
    "pin_memory",
    "data_ptr",
    "from_numpy",
    "frombuffer",
    "from_file",
    "asarray",
    "is_cuda",
    "is_cpu",
    "get_device",
    "device",
}


def shown(body, device):
    """What the statements of an example print, on a device."""
    text, space = io.StringIO(), {"wisp": wisp}
    wisp.manual_seed(0)
    wisp.set_default_device(device)
    try:
        for example in doctest.DocTestParser().get_examples(body):
            with contextlib.redirect_stdout(text):
                exec(compile(example.source, "example", "single"), space)
    finally:
        wisp.set_default_device("cpu")
    return " ".join(re.sub(r",\s*device='cuda:0'", "", text.getvalue()).split())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _core._operator_texts())
def test_example(name):
    body = _core._operator_texts()[name] + "\n"
    if name in HOST_ONLY:
        pytest.skip("about the CPU")
    try:
        gpu = shown(body, "cuda")
    except NotImplementedError as error:
        assert name in MISSING and "there is no kernel for tensors on cuda" in str(error), error
        return
    assert name not in MISSING, "has a kernel now: run tools/list_cuda_missing.py"
    cpu = shown(body, "cpu")
    bare = [re.sub(r"\s", "", NUMBER.sub("#", text)) for text in (cpu, gpu)]
    assert bare[0] == bare[1], (cpu, gpu)
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (cpu, gpu)]
    np.testing.assert_allclose(numbers[1], numbers[0], 1e-3, 1e-3)
