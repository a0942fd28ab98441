"""What all tests share: the seed is fixed, and no test may leave tensors behind."""

import gc
import os
import warnings

import numpy
import pytest

import wisp


@pytest.fixture(autouse=True, scope="session")
def _away_from_the_sources(tmp_path_factory):
    """Programs that tests start must find the installed package, not the sources in the current directory."""
    path = os.environ.get("PYTHONPATH")
    if path:
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep))
    os.chdir(tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture(autouse=True)
def _fixed_seed():
    wisp.manual_seed(0)
    numpy.random.seed(0)
    yield
    if not wisp.is_grad_enabled():
        wisp.set_grad_enabled(True)
        pytest.fail("the test left gradients disabled")


@pytest.fixture
def no_leaks():
    """The number of live tensors after the test is the one before it."""
    gc.collect()
    before = wisp._core._live_tensors()
    yield
    gc.collect()
    assert wisp._core._live_tensors() == before


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
