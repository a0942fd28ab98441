"""Disks that are full, cannot be written to, or take a file away under a program: an exception, and nothing that was there before is lost."""

import os
import subprocess
import sys

import pytest

import wisp
from wisp.utils.safetensors import load_file, save_file


def child(code, *args):
    """Runs in a process of its own, which must not die."""
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(wisp.__file__)))
    result = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, (result.returncode, result.stdout, result.stderr)
    return result.stdout


FULL = """
import resource, signal, sys, wisp
from wisp.utils.safetensors import save_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # what is written beyond is refused, as by a full disk
for save in (wisp.save, save_file):
    try:
        save({"w": wisp.zeros(1 << 20)}, sys.argv[1])
    except OSError as error:
        print("refused")
"""


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.pt"
    wisp.save({"w": wisp.ones(3)}, path)
    assert child(FULL, path).split() == ["refused", "refused"]
    assert wisp.load(path)["w"].tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_file_object_on_a_full_disk():
    with pytest.raises(OSError, match="No space left"), open("/dev/full", "wb") as file:
        wisp.save({"w": wisp.zeros(1 << 20)}, file)


def test_a_place_that_cannot_be_written_to():
    with pytest.raises((OSError, RuntimeError), match="/proc/model.pt|Parent directory"):
        wisp.save({"w": wisp.zeros(3)}, "/proc/model.pt")


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
@pytest.mark.parametrize("where", ["wisp.set_num_threads(1)", "wisp.set_num_threads(2)"])
def test_a_file_that_is_cut_short_while_it_is_mapped(tmp_path, kind, where):
    path = tmp_path / f"model.{kind}"
    (wisp.save if kind == "pt" else save_file)({"w": wisp.ones(1 << 20), "b": wisp.ones(3)}, path)
    said = child(
        f"""
import os, sys, wisp
from wisp.utils.safetensors import load_file
{where}
state = wisp.load(sys.argv[1], mmap=True) if sys.argv[1].endswith("pt") else load_file(sys.argv[1], mmap=True)
print(state["w"].sum().item())
os.truncate(sys.argv[1], 8192)
for _ in range(2):
    try:
        state["w"].sum()
        for _ in range(10): pass
    except OSError as error:
        print(error)
print(wisp.ones(5).sum().item())
""",
        path,
    ).splitlines()
    assert said[0] == "1048576.0" and said[-1] == "5.0"
    assert len(said) == 3 and "was cut short while it was mapped" in said[1] and str(path) in said[1]


def test_a_file_is_mapped_once_more_after_its_end(tmp_path):
    path = tmp_path / "model.safetensors"
    for value in (1.0, 2.0):
        save_file({"w": wisp.full((1 << 18,), value)}, path)
        state = load_file(path, mmap=True)
        state["w"][0] = 7  # a private copy: the file keeps its own
        assert state["w"].sum() == value * ((1 << 18) - 1) + 7 and load_file(path)["w"][0] == value
        del state
