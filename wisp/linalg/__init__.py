"""Linear algebra: norms, decompositions, solvers."""
from wisp import _core

globals().update(_core._operators["linalg"])

from wisp.linalg.norms import matrix_norm, norm, vector_norm  # noqa: E402, F401
from wisp.linalg.vectors import cross, vander  # noqa: E402, F401
