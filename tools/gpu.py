"""All that a machine with a GPU can tell about Wisp, in one command: python tools/gpu.py.

Compiles nothing but kernels; Wisp must be installed. Runs the tests that need a GPU, then, where PyTorch with CUDA is installed, the
benchmarks beside it. `--tests` and `--benchmarks` run one of the two; what follows `--` goes to pytest. The exit status is 0 if
every test passed.
"""

import argparse
import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command):
    """The exit status of a Python command in the repository."""
    print("$ python", *command, flush=True)
    return subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="the tests alone")
    parser.add_argument("--benchmarks", action="store_true", help="the benchmarks alone")
    parser.add_argument("pytest", nargs="*", help="for pytest, behind --")
    given = parser.parse_args()
    import wisp

    if not wisp.cuda.is_available():
        sys.exit("there is no GPU here that Wisp can use; `wisp doctor` says what is missing")
    for i in range(wisp.cuda.device_count()):
        print(f"cuda:{i}: {wisp.cuda.get_device_name(i)}, {wisp.cuda.get_device_properties(i).total_memory >> 30} GiB", flush=True)
    status = 0
    if not given.benchmarks:
        status = run("-m", "pytest", "-q", "tests/cuda", *given.pytest)
    if not given.tests:
        if importlib.util.find_spec("torch"):
            status = run("benchmarks/cuda.py") or status
        else:
            print("no benchmarks: they compare with PyTorch, which is not installed", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
