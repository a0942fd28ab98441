"""The operators' docstrings: signature, a sentence, and an example that gives what it says."""

import doctest

import pytest

import wisp
from wisp import _core


@pytest.mark.parametrize("letter", sorted({path[0] for path in _core._operator_texts()}))
@pytest.mark.filterwarnings("ignore")
def test_examples(letter):
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    for path, text in _core._operator_texts().items():
        if path[0] == letter:
            example = parser.get_doctest(text + "\n", {"wisp": wisp}, path, None, 0)
            assert example.examples, path
            runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


def test_every_operator_is_described():
    missing = []
    for space, operators in _core._operators.items():
        if space.startswith("_"):
            continue  # what only the package itself calls
        for name, operator in operators.items():
            if not name.startswith("_") and "\n\n" not in operator.__doc__:
                missing.append(f"{space}.{name}".lstrip("."))
    for name, method in vars(wisp.Tensor).items():
        if not name.startswith("_") and type(method).__name__ == "builtin_method" and "\n\n" not in method.__doc__:
            missing.append("Tensor." + name)
    assert missing == []


@pytest.mark.parametrize(
    "kind", [wisp.Tensor, wisp.dtype, wisp.device, wisp.memory_format, wisp.layout, wisp.Size, wisp.Generator, _core.Node]
)
def test_types(kind):
    example = doctest.DocTestParser().get_doctest(kind.__doc__, {"wisp": wisp}, kind.__name__, None, 0)
    result = doctest.DocTestRunner(verbose=False).run(example)
    assert result.failed == 0 and result.attempted > 0


def test_named_results():
    assert doctest.testmod(wisp.return_types, extraglobs={"wisp": wisp}).failed == 0 and "max" in dir(wisp.return_types)


def test_docstrings():
    assert wisp.add.__doc__.startswith("add(") and "input + alpha * other" in wisp.add.__doc__ and ">>> wisp.add" in wisp.add.__doc__
    assert wisp.Tensor.add_.__doc__.startswith("add_(") and "itself is changed" in wisp.Tensor.add_.__doc__
    assert "Convolution of images" in wisp.nn.functional.conv2d.__doc__ and "solution X" in wisp.linalg.solve.__doc__
