"""Every example in the docstrings of wisp.nn runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import wisp.nn


def _modules():
    found = [wisp.nn]
    for info in pkgutil.walk_packages(wisp.nn.__path__, "wisp.nn."):
        if not info.name.startswith(("wisp.nn.functional", "wisp.nn.parallel")):
            found.append(importlib.import_module(info.name))
    return found


@pytest.mark.parametrize("module", _modules(), ids=lambda module: module.__name__)
@pytest.mark.filterwarnings("ignore")
def test_examples(module):
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
