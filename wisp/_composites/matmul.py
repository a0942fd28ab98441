"""Composites of the family matmul."""

FUNCTIONS = []
METHODS = []
INPLACE = []
