"""What is said when ranks disagree, fail or are gone; nothing may stay behind."""

import os
import signal
import subprocess

import pytest
from ranks import ENVIRONMENT, PROGRAMS, command, launch, orphans, shared_memory

pytest.importorskip("mpi4py")

LINES = (PROGRAMS / "faults.py").read_text().splitlines()
CALLS = [f"faults.py:{1 + LINES.index('        ' + call)}" for call in ("dist.broadcast(wisp.ones(3), 0)", "dist.all_reduce(wisp.ones(3))")]
SAID = {
    "shape": ["the ranks call different collectives", "rank 0: all_reduce(SUM, float32 [3]) at", "rank 1: all_reduce(SUM, float32 [4]) at"],
    "dtype": ["rank 0: all_reduce(SUM, float32 [3]) at", "rank 1: all_reduce(SUM, float64 [3]) at"],
    "call": ["rank 0: all_reduce(SUM, float32 [3]) at", "rank 1: broadcast(src=0, float32 [3]) at", *CALLS],
    "kill": ["rank 1 is gone", "rank 1 (process", "was killed by SIGKILL", "rank 1: after barrier() at"],
    "midstep": ["rank 1 is gone", "all_reduce(SUM, float32", "was killed by SIGKILL"],
    "error": ["rank 1 said:\nTraceback", "ValueError: bad luck"],
    "never": ["not done after 3 s: rank 1 did not take part", "rank 1: after barrier() at"],
    "leave": ["rank 1 came to the end of the program without taking part"],
}


@pytest.mark.parametrize("what", list(SAID))
def test_fault(what):
    before = shared_memory()
    result = launch(2, "faults", what)
    assert result.returncode == (137 if what in ("kill", "midstep") else 1)
    for words in SAID[what]:
        assert words in result.stderr, result.stderr
    if what == "error":  # the first failing rank's traceback is the last thing said
        assert result.stderr.rstrip().endswith("ValueError: bad luck")
    assert not orphans() and shared_memory() <= before


def test_interrupt():
    before = shared_memory()
    process = subprocess.Popen(
        command("launch", "-n", 2, PROGRAMS / "faults.py", "wait"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert {process.stdout.readline().strip() for _ in range(2)} == {"[0] waits", "[1] waits"}
    children = _children(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130 and "stopped by SIGINT; every process was ended" in said
    assert len(children) >= 2 and not any(os.path.exists(f"/proc/{child}") for child in children)
    assert not orphans() and shared_memory() <= before


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()
