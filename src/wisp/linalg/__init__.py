"""Linear algebra: norms, decompositions, solvers."""

from wisp import _core, _reference

globals().update({name: f for name, f in _core._operators["linalg"].items() if not name.startswith("_")})
LinAlgError = _core._operators[""]["_linalg_error_class"]()

from wisp.linalg.matrices import cond, matrix_exp, matrix_power, matrix_rank, pinv, tensorinv, tensorsolve  # noqa: E402, F401
from wisp.linalg.norms import matrix_norm, norm, vector_norm  # noqa: E402, F401
from wisp.linalg.vectors import cross, vander  # noqa: E402, F401

_reference.attach(__name__, globals())
