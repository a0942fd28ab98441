"""Comparisons with PyTorch run where it is installed; Wisp itself never needs it."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]
if not importlib.util.find_spec("expecttest"):  # PyTorch's own database of operators needs it
    collect_ignore_glob += ["test_bool_bytes_parity.py", "test_conjugate_parity.py", "test_forward_ad_parity.py", "test_vmap_parity.py"]
