"""Starts the programs of this folder as ranks."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import wisp

PROGRAMS = pathlib.Path(__file__).parent / "programs"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(wisp.__file__)))
MARK = f"WISP_TEST_RANKS={os.getpid()}"  # by which the processes that a test started are known
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT, **dict([MARK.split("=")])}


def command(*arguments):
    return [sys.executable, "-m", "wisp", *map(str, arguments)]


def run(arguments):
    """Run to the end; with what it printed."""
    return subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def launch(count, program, *arguments):
    """`wisp launch -n count programs/program.py arguments`."""
    return run(command("launch", "-n", count, PROGRAMS / f"{program}.py", *arguments))


def launch_on_machines(machines, count, program, *arguments, numbered=True):
    """A launcher per machine, `count` ranks each, all on this one; under host names of their own where that is allowed."""
    port, processes = free_port(), []
    own = subprocess.run(["unshare", "-u", "hostname", "node"], capture_output=True).returncode == 0 if shutil.which("unshare") else False
    for machine in range(machines):
        start = command(
            "launch",
            "--nnodes",
            machines,
            *(["--node-rank", machine] if numbered else []),
            "--nproc-per-node",
            count,
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"127.0.0.1:{port}",
            PROGRAMS / f"{program}.py",
            *arguments,
        )
        if own:
            start = ["unshare", "-u", "sh", "-c", f'hostname node{machine}; exec "$@"', "sh", *start]
        processes.append(subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT))
    results = [process.communicate() for process in processes]
    return [subprocess.CompletedProcess((), process.returncode, *result) for process, result in zip(processes, results)]


def orphans():
    """Processes that tests of this process started and that still run, once those that are about to end have ended."""
    for _ in range(200):
        found = []
        for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if MARK.encode() + b"\0" in environment.read_bytes():
                    found.append((environment.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass
        if not found:
            break
        time.sleep(0.1)
    return found


def good(result, lines=()):
    assert result.returncode == 0, result.stdout + result.stderr
    for line in lines:
        assert line in result.stdout, result.stdout + result.stderr
    return result


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def shared_memory():
    """What MPI and Wisp left in shared memory: files that no process has mapped."""
    found = {path.name for path in pathlib.Path("/dev/shm").glob("*") if path.name.startswith(("mpich_shm", "wisp-board"))}
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps") if found else ():
        try:
            text = maps.read_text()
        except OSError:
            continue
        found = {name for name in found if name not in text}
    return found
