"""What all tests share: the seed is fixed, no test may leave tensors behind; `--device cuda` runs them on the GPU, and with
WISP_TEST_COMPILED=1 in the environment each runs in a compiled region."""

import gc
import os
import warnings

import numpy
import pytest

import wisp


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where tests make their tensors: cpu, cuda")
    parser.addoption("--share", default="1/1", help="2/8: the second of eight shares of the tests, for several processes")


def pytest_configure(config):
    device = config.getoption("--device")
    if device != "cpu":
        work_on(device)


def pytest_collection_modifyitems(config, items):
    which, parts = map(int, config.getoption("--share").split("/"))
    items[:] = items[which - 1 :: parts]
    if os.environ.get("WISP_TEST_COMPILED"):
        compile_tests(items)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """On a GPU, a test that met an operator without a kernel there is skipped: docs/coverage.md lists those."""
    outcome = yield
    error = call.excinfo and call.excinfo.value
    lacks = isinstance(error, NotImplementedError) and "there is no kernel for tensors on cuda" in str(error)
    if lacks and item.config.getoption("--device") != "cpu":
        report = outcome.get_result()
        report.outcome, report.longrepr = "skipped", (str(item.fspath), item.location[1] or 0, f"Skipped: {error}")


def compile_tests(items):
    """Each test runs in a compiled region, where operators on tensors of any size are noted."""
    wisp._core._set_worth_noting(0)
    for item in items:
        if isinstance(item, pytest.Function):
            item.obj = wisp.compile(item.obj)


def work_on(device):
    """Tensors are made on the device, also those from arrays; arrays and numbers come back from it by themselves."""
    wisp.set_default_device(device)
    from_numpy = wisp.from_numpy
    wisp.from_numpy = lambda array: from_numpy(array).to(device)
    numpy_of, array_of = wisp.Tensor.numpy, wisp.Tensor.__array__
    wisp._core._extend_tensor(
        {
            "numpy": lambda self, **options: numpy_of(self.cpu(), **options),
            "__array__": lambda self, *given, **options: array_of(self.cpu(), *given, **options),
        }
    )
    raises = pytest.raises
    pytest.raises = lambda *given, **named: WhenDone(raises(*given, **named)) if len(given) == 1 else raises(*given, **named)


class WhenDone:
    """pytest.raises that waits for the device: what is wrong with the values of a tensor is known there, later."""

    def __init__(self, expected):
        self.expected = expected

    def __enter__(self):
        return self.expected.__enter__()

    def __exit__(self, kind, error, trace):
        if kind is None:
            try:
                wisp.cuda.synchronize()
            except Exception as late:
                kind, error, trace = type(late), late, late.__traceback__
        return self.expected.__exit__(kind, error, trace)


@pytest.fixture(autouse=True, scope="session")
def _away_from_the_sources(tmp_path_factory):
    """Programs that tests start must find the installed package, not the sources in the current directory."""
    path = os.environ.get("PYTHONPATH")
    if path:
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep))
    os.chdir(tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture(autouse=True)
def _fixed_seed(request):
    wisp.manual_seed(0)
    numpy.random.seed(0)
    yield
    if request.config.getoption("--device") != "cpu":
        wisp.cuda.synchronize()  # what a kernel found wrong belongs to this test
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
