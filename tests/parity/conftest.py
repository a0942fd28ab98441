"""Comparisons with PyTorch run where it is installed; Wisp itself never needs it."""
import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]
