"""The examples in the docstrings of wisp.distributed, in a world of one process."""
import doctest
import importlib
import pkgutil

import pytest

import wisp.distributed

SKIPPED = ("_pmi", "launch", "run", "ray", "nccl")      # programs, and what needs more than Wisp
MODULES = [found.name for found in pkgutil.walk_packages(wisp.distributed.__path__, "wisp.distributed.")
           if not any(part.strip("_").startswith(SKIPPED) or part in SKIPPED for part in found.name.split(".")[2:])]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert not result.failed
