"""Where LAPACK comes from: the scipy-openblas32 wheel, opened on first use."""

import glob
import importlib.util
import os

from wisp import _core


def find():
    """The path of the shared library, or None."""
    if "WISP_LAPACK" in os.environ:
        return os.environ["WISP_LAPACK"]
    # Found but not imported: that would open the library before the core can say how long its threads may spin.
    wheel = importlib.util.find_spec("scipy_openblas32")
    if wheel is None:
        return None
    folder = os.path.join(wheel.submodule_search_locations[0], "lib")
    found = sorted(glob.glob(os.path.join(folder, "*scipy_openblas*")))
    return found[0] if found else None


def open():
    """Called by the core before the first routine."""
    path = find()
    if path is None:
        raise RuntimeError("wisp.linalg needs LAPACK, which comes with the package scipy-openblas32: pip install scipy-openblas32")
    problem = _core._operators[""]["_open_lapack"](path)
    if problem:
        raise RuntimeError(
            f"wisp.linalg could not use the LAPACK library {path}: {problem}. pip install --force-reinstall scipy-openblas32"
        )
