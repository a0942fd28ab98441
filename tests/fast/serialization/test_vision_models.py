"""Whole models of `wisp.vision` in files: by the names that torchvision has for them, and read without having been imported."""

import pickletools
import subprocess
import sys
import zipfile

import pytest

import wisp
from wisp import vision


def globals_of(path):
    with zipfile.ZipFile(path) as file:
        data = file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))
    return {argument for code, argument, _ in pickletools.genops(data) if code.name == "GLOBAL"}


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "convnext_tiny"])
def test_a_whole_model_is_read_by_another_program(name, tmp_path):
    path = tmp_path / "model.pth"
    model = getattr(vision.models, name)(weights=None).eval()
    wisp.save(model, path)
    names = globals_of(path)
    assert not any(n.startswith("wisp") for n in names)
    expected = {
        "resnet18": "torchvision.models.resnet ResNet",
        "mobilenet_v2": "torchvision.models.mobilenetv2 MobileNetV2",
        "convnext_tiny": "torchvision.ops.stochastic_depth StochasticDepth",
    }
    assert expected[name] in names
    x = wisp.randn(1, 3, 32, 32)
    with wisp.no_grad():
        wisp.save([x, model(x)], tmp_path / "pair.pth")
    text = (
        "import sys, wisp\n"
        "x, y = wisp.load(sys.argv[2])\n"
        "model = wisp.load(sys.argv[1], weights_only=False)\n"
        "with wisp.no_grad(): print(type(model).__name__, wisp.allclose(model(x), y))\n"
    )
    done = subprocess.run([sys.executable, "-c", text, str(path), str(tmp_path / "pair.pth")], capture_output=True, text=True)
    assert done.stdout.split() == [type(model).__name__, "True"], done.stdout + done.stderr
