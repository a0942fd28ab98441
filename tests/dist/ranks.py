"""Starts the programs of this folder as ranks."""
import os
import pathlib
import socket
import subprocess
import sys

import wisp

PROGRAMS = pathlib.Path(__file__).parent / "programs"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(wisp.__file__)))
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT}


def command(*arguments):
    return [sys.executable, "-m", "wisp", *map(str, arguments)]


def run(arguments):
    """Run to the end; with what it printed."""
    return subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def launch(count, program, *arguments):
    """`wisp launch -n count programs/program.py arguments`."""
    return run(command("launch", "-n", count, PROGRAMS / f"{program}.py", *arguments))


def good(result, lines=()):
    assert result.returncode == 0, result.stdout + result.stderr
    for line in lines:
        assert line in result.stdout, result.stdout + result.stderr
    return result


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def shared_memory():
    """What MPI and Wisp keep in shared memory right now."""
    folder = pathlib.Path("/dev/shm")
    return {path.name for path in folder.glob("*") if path.name.startswith(("mpich_shm", "wisp-board"))} if folder.is_dir() else set()
