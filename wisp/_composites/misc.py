"""Composites of the family misc."""

FUNCTIONS = []
METHODS = []
INPLACE = []
