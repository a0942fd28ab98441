"""Names that programs written for PyTorch 1.x import from here."""

import collections.abc as container_abcs  # noqa: F401
from math import inf, nan  # noqa: F401

string_classes = (str, bytes)
int_classes = int
PY3, PY37 = True, True
