"""Algorithms over process groups."""
