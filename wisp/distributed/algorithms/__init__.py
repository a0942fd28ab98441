"""Algorithms of communication."""
