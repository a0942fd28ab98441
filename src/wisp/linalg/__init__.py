"""Linear algebra: norms, decompositions, solvers."""

from wisp import _core, _reference

globals().update({name: f for name, f in _core._operators["linalg"].items() if not name.startswith("_")})
LinAlgError = _core._operators[""]["_linalg_error_class"]()

# Sentences that docstrings of programs put in, by PyTorch's names.
common_notes = {
    "experimental_warning": "The name may change, as PyTorch's may.",
    "sync_note": "On a GPU the host waits for the result to see whether it was found.",
    "sync_note_ex": "On a GPU the host waits for the result only with `check_errors=True`.",
    "sync_note_has_ex": "On a GPU the host waits for the result; the function whose name ends in `_ex` does not.",
}

from wisp.linalg.matrices import cond, matrix_exp, matrix_power, matrix_rank, pinv, tensorinv, tensorsolve  # noqa: E402, F401
from wisp.linalg.norms import matrix_norm, norm, vector_norm  # noqa: E402, F401
from wisp.linalg.vectors import cross, vander  # noqa: E402, F401

_reference.attach(__name__, globals())
