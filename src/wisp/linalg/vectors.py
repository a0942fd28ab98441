"""Cross products and Vandermonde matrices."""

from wisp._composites.measure import linalg_cross as cross
from wisp._composites.measure import linalg_vander as vander

__all__ = ["cross", "vander"]
