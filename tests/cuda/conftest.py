"""Tests that need a GPU: `pytest tests/cuda` on a machine that has one; elsewhere they are not collected."""

import wisp

if not wisp.cuda.is_available():
    collect_ignore_glob = ["*"]
