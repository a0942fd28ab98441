"""Composites of the family reduce."""

FUNCTIONS = []
METHODS = []
INPLACE = []
