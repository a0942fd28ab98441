"""Where LAPACK comes from: the scipy-openblas32 wheel, opened on first use."""
import glob
import os

from wisp import _core


def find():
    """The path of the shared library, or None."""
    if "WISP_LAPACK" in os.environ:
        return os.environ["WISP_LAPACK"]
    try:
        import scipy_openblas32
    except ImportError:
        return None
    found = sorted(glob.glob(os.path.join(scipy_openblas32.get_lib_dir(), "*scipy_openblas*")))
    return found[0] if found else None


def open():
    """Called by the core before the first routine."""
    path = find()
    if path is None:
        raise RuntimeError("wisp.linalg needs LAPACK, which comes with the package scipy-openblas32: pip install "
                           "scipy-openblas32")
    problem = _core._operators[""]["_open_lapack"](path)
    if problem:
        raise RuntimeError(f"wisp.linalg could not use the LAPACK library {path}: {problem}. pip install "
                           f"--force-reinstall scipy-openblas32")
