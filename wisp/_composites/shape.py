"""Composites of the family shape."""

FUNCTIONS = []
METHODS = []
INPLACE = []
