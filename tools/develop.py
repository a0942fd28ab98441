"""Builds the core for editing: python tools/develop.py [--sanitize] [--symbols].

Compiles in build/develop only what changed, and links the core into src/wisp, so that `PYTHONPATH=src python` runs the tree as it is;
then writes the type stubs beside the sources.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tool(name):
    """A program beside this interpreter, or on the path."""
    beside = pathlib.Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    return found or sys.exit(f"tools/develop.py needs {name}: pip install {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sanitize", action="store_true", help="with the address and undefined-behaviour sanitizers, in build/sanitized")
    parser.add_argument("--symbols", action="store_true", help="keep symbols, for profilers and debuggers")
    given = parser.parse_args()
    folder = ROOT / "build" / ("sanitized" if given.sanitize else "develop")
    options = {"WISP_SANITIZE": given.sanitize, "WISP_SYMBOLS": given.symbols}
    if shutil.which("ccache"):
        options |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "WISP_PRECOMPILE": False}  # ccache knows nothing of precompiled headers
    settings = [f"-D{name}={value if isinstance(value, str) else 'ON' if value else 'OFF'}" for name, value in options.items()]
    command = [tool("cmake"), "-G", "Ninja", "-S", ROOT, "-B", folder, f"-DPython_EXECUTABLE={sys.executable}", *settings]
    subprocess.run([*command, f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([tool("ninja"), "-C", folder], check=True)
    name = "_core" + sysconfig.get_config_var("EXT_SUFFIX")
    link = ROOT / "src" / "wisp" / name
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(folder / name, link.parent))
    if not given.sanitize:  # that core can be imported only under the sanitizer
        subprocess.run([sys.executable, ROOT / "tools" / "make_stubs.py", link.parent], check=True, stdout=subprocess.DEVNULL)
    print(f"built {link.relative_to(ROOT)}; run the tree with PYTHONPATH=src")


if __name__ == "__main__":
    main()
