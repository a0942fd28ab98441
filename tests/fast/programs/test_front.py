"""The front of the package: few entries at its top, and PyTorch's further names behind one map."""

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys

import pytest

import wisp
from wisp import _compat
from wisp._compat.stubs import STUBS

PACKAGE = os.path.dirname(os.path.abspath(wisp.__file__))


def test_top_of_the_package_is_short():
    entries = [name for name in os.listdir(PACKAGE) if name != "__pycache__" and not name.endswith((".so", ".pyi"))]
    assert len(entries) <= 50, sorted(entries)


def test_every_name_of_the_map_is_somewhere():
    files = {name.partition(".")[0] for name in os.listdir(os.path.join(PACKAGE, "_compat", "modules"))} - {"__pycache__"}
    assert files == _compat.MODULES
    top = {name for name in STUBS if "." not in name}
    assert top - {"_C"} == _compat.TABLES
    assert {name.partition(".")[0] for name in STUBS if "." in name} & _compat.MODULES == _compat.PARENTS
    for name in STUBS:
        home = os.path.join(PACKAGE, *name.split(".")[:-1])
        assert name.rpartition(".")[0] in {*STUBS, *_compat.PARENTS} or os.path.isdir(home) or os.path.isfile(home + ".py"), name


@pytest.mark.parametrize("name", sorted((_compat.NAMES | set(STUBS)) - {"as_torch"}))
def test_modules_are_found_by_pytorch_s_names(name):
    module = importlib.import_module(f"wisp.{name}")
    assert module.__name__ == f"wisp.{name}" and module.__doc__ and importlib.util.find_spec(f"wisp.{name}") is not None
    found = wisp
    for part in name.split("."):
        found = getattr(found, part)
    assert found is module or callable(found)  # torch.nn.parallel.replicate is a function, and a module when it is imported
    assert name.partition(".")[0] in dir(wisp)
    assert all(hasattr(module, public) for public in getattr(module, "__all__", ()))


def python(code):
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(PACKAGE))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr


def test_import_is_light():
    python("""
import sys, wisp
slow = {"ast", "inspect", "json", "logging", "numpy", "pickle", "re", "subprocess", "typing", "unittest", "wisp._compat.stubs", "wisp.nn"}
assert not slow & set(sys.modules), slow & set(sys.modules)
""")


def test_what_a_module_says_it_has_is_there():
    python("""
import importlib, pkgutil, wisp
for info in pkgutil.walk_packages(wisp.__path__, "wisp."):
    if info.name not in ("wisp.__main__", "wisp.sklearn"):
        module = importlib.import_module(info.name)
        lacking = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        assert not lacking, (info.name, lacking)
""")


def test_modules_under_torch_s_name():
    python("""
import wisp.as_torch, importlib
import torch, torch._C, torch.xpu, torch._inductor.config as config, torch._dynamo.exc
from torch._subclasses.fake_tensor import FakeTensor, is_fake
from torch.storage import UntypedStorage
from torch.quantization import quantize_dynamic
assert torch.xpu is importlib.import_module("wisp.xpu") and not torch.xpu.is_available() and torch.mps.device_count() == 0
assert not isinstance(torch.ones(1), FakeTensor) and not is_fake(torch.ones(1))
assert not config.triton.cudagraphs and torch._C._nn._parse_to("cpu", torch.float16)[:2] == (torch.device("cpu"), torch.float16)
config.triton.cudagraphs = True
assert torch._inductor.config.triton.cudagraphs
try:
    torch.package.PackageExporter("x")
except NotImplementedError as error:
    assert "state_dict" in str(error)
else:
    raise SystemExit("not refused")
try:
    import torch.xpus
except ModuleNotFoundError as error:
    assert "closest: torch.xpu" in str(error), error
""")


def test_stubs_answer_and_say_why():
    assert wisp.mtia.device_count() == 0 and wisp.xpu.synchronize(device=0) is None and wisp._six.int_classes is int
    assert "CPU" in wisp.xpu.is_available.__doc__ and wisp.xpu.is_available.__module__ == "wisp.xpu"
    with pytest.raises(TypeError):
        wisp.xpu.manual_seed()
    assert wisp._dynamo.explain(wisp.exp)(wisp.zeros(1)).result.item() == 1
    f = object()
    assert wisp._dynamo.optimize("eager")(f) is f
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = wisp._dynamo.nothing
    names = {}
    exec("from wisp._C import *; from wisp.xpu import *; from wisp.quantization import *", names)
    assert {"Generator", "Size", "Graph", "is_available", "quantize_dynamic"} <= names.keys()
    assert pickle.loads(pickle.dumps(wisp.int3)) is wisp.int3
    assert pickle.loads(pickle.dumps(wisp._dynamo.OptimizedModule)) is wisp._dynamo.OptimizedModule
