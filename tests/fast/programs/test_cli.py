"""The command `wisp`."""

import os
import subprocess
import sys

import wisp

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(wisp.__file__)))


def run(*arguments):
    environment = dict(os.environ, PYTHONPATH=ROOT)
    return subprocess.run([sys.executable, "-m", "wisp", *arguments], capture_output=True, text=True, env=environment)


def test_doctor():
    result = run("doctor")
    assert result.returncode == 0 and "passed" in result.stdout and wisp.__version__ in result.stdout


def test_doctor_knows_what_to_compile():
    common = wisp._core._operators["_cuda"]["common_kernels"]()
    assert len(common) == len(set(common)) > 40
    result = run("doctor", "--warm")  # where there is no GPU, for none
    assert result.returncode == 0 and ("kernels for" in result.stdout or "no GPU" in result.stdout), result.stderr


def test_commands_are_listed():
    assert all(name in run().stdout for name in ("demo", "doctor", "run"))
    assert run("no-such-command").returncode != 0
    assert wisp.__version__ in run("--version").stdout


def test_run_a_torch_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import torch, torch.nn as nn\n"
        "from torch.utils.data import DataLoader\n"
        "import torch.optim.lr_scheduler as schedulers\n"
        "assert torch.nn is nn and __name__ == '__main__'\n"
        "print(torch.__name__, nn.Linear(2, 1)(torch.ones(3, 2)).shape, sys.argv[1:])\n"
        "try:\n"
        "    import torch.no_such_module\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    result = run("run", str(script), "--flag")
    assert result.returncode == 0, result.stderr
    assert "torch torch.Size([3, 1]) ['--flag']" in result.stdout
    assert "no module torch.no_such_module" in result.stdout
