"""The command `wisp`."""

import functools
import os
import signal
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


def one_sentence(result, *parts):
    assert result.returncode != 0 and not result.stdout and result.stderr.count("\n") == 1, result.stdout + result.stderr
    assert all(part in result.stderr for part in parts), result.stderr


def test_what_is_wrong_is_told_in_a_sentence():
    one_sentence(run("dmo"), "there is no command 'dmo'", "did you mean `wisp demo`")
    one_sentence(run("--fast"), "no option '--fast'")
    one_sentence(run("demo", "--epochs", "many"), "wisp demo:", "'many'")
    one_sentence(run("demo", "--epochs", "-1"), "wisp demo:", "from 1 on")
    one_sentence(run("doctor", "--warm", "abc"), "wisp doctor:", "'abc' is no architecture")
    one_sentence(run("launch", "-n", "none", "x.py"), "wisp launch:", "'none'")
    one_sentence(run("launch", "--nnodes", "2", "--rdzv-endpoint", "here:there", "x.py"), "host:port")
    one_sentence(run("check"), "wisp check:")
    one_sentence(run("check", "/no/such/folder"), "there is no '/no/such/folder'")


def test_an_interrupted_command_says_so():
    environment = dict(os.environ, PYTHONPATH=ROOT, PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", "wisp", "demo", "--epochs", "100000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background job of a shell ignores it, and so do its children
    with subprocess.Popen(command, preexec_fn=heed, **pipes) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and error.endswith("wisp demo: interrupted\n") and "Traceback" not in error, error


def test_a_reader_may_leave():
    command = [sys.executable, "-m", "wisp", "check", wisp.__path__[0]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=ROOT))
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 1
    process.stderr.close()


def test_interrupted_ranks_are_silent(tmp_path):
    script = tmp_path / "wait.py"
    script.write_text("import time\nprint('waits', flush=True)\ntime.sleep(1000)\n")
    command = [sys.executable, "-m", "wisp.run", str(script)]
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it, and so do its children
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=ROOT))
    finally:
        signal.signal(signal.SIGINT, heard)
    assert process.stdout.readline() == b"waits\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"") and process.returncode == 130


def test_several_processes_need_mpi(tmp_path):
    """Told before any of them starts."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mpi4py'] = None\n")
    (tmp_path / "program.py").write_text("raise SystemExit('started')\n")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path), ROOT]))
    command = [sys.executable, "-m", "wisp", "launch", "-n", "2", str(tmp_path / "program.py")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    one_sentence(result, "wisp launch:", "need MPI", "wisp[mpi]")
