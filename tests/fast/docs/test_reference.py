"""The reference: every argument of every public name is explained, by the texts of `wisp._reference`, in pages and in `help()`."""

import doctest
import enum
import functools
import importlib
import inspect
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

import wisp
from wisp import _reference

SPACES = """wisp Tensor nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrize nn.utils.parametrizations nn.utils.prune nn.utils.stateless
    nn.parallel nn.attention optim optim.lr_scheduler optim.swa_utils utils.data utils.checkpoint linalg fft special signal.windows
    distributions autograd autograd.graph autograd.functional autograd.profiler func cuda amp sparse profiler viz serialization random
    utils.cpp_extension testing progress distributed distributed.fsdp distributed.checkpoint distributed.tensor multiprocessing vision vision.datasets
    vision.transforms vision.models vision.ops vision.utils vision.io sklearn hub utils.tensorboard nested masked onnx jit fx export
    library overrides compiler""".split()


def public(space, enums=False):
    """Names and values of what a module offers for calling."""
    module = getattr(wisp, space, wisp) if space in ("wisp", "Tensor") else importlib.import_module("wisp." + space)
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    for name in sorted(set(names) - (wisp._SUBMODULES if module is wisp else set())):
        value = getattr(module, name, None)
        own = (getattr(value, "__module__", None) or "wisp").startswith(("wisp", "builtins", "torch"))
        own = own and (enums or not isinstance(value, enum.EnumMeta))
        if callable(value) and not inspect.ismodule(value) and own:
            yield name, value


@pytest.mark.parametrize("space", SPACES)
def test_every_argument_is_explained(space):
    missing, known = [], ("self", "args", "kwargs")
    for name, value in public(space):
        names = list(_reference.signature(value.__doc__ or "", name)) or _reference.parameters(value)
        path = name if space == "wisp" else f"{space}.{name}"
        explained = _reference.about(path, names)[0]
        missing += [f"{path}({word})" for word in names if word.lstrip("*") not in explained and word not in known]
    assert missing == []


def test_arguments_of_calls_are_explained():
    """What a layer is called with is told where it is more than one tensor, on the page and in `help()`."""
    for name in ("MultiheadAttention", "Transformer", "LSTM", "GRUCell", "CrossEntropyLoss", "EmbeddingBag", "ConvTranspose2d"):
        layer = getattr(wisp.nn, name)
        names = [word for word in inspect.signature(layer.forward).parameters if word != "self"]
        assert [*_reference.called(f"nn.{name}", layer)] == names and "Arguments of a call" in inspect.getdoc(layer)
    assert "num_layers=1" in str(inspect.signature(wisp.nn.LSTM)).replace(" ", "")


def paths():
    """{path: value} of all public names."""
    return {name if space == "wisp" else f"{space}.{name}": value for space in SPACES for name, value in public(space, enums=True)}


def test_texts_speak_of_names_that_are_there():
    def there(path):  # also what Python itself has made, which explains its arguments itself: enums, locks, queues
        space, _, name = path.rpartition(".")
        return hasattr(importlib.import_module(f"wisp.{space}" if space in SPACES else "wisp"), name)

    known = paths()
    _reference.about("abs", ())
    exact, patterns = _reference._entries
    assert [name for name in exact if name not in known and not hasattr(wisp.Tensor, name.rpartition(".")[2]) and not there(name)] == []
    assert all(len(entry) for entries in exact.values() for entry in entries) and all(entry for _, entry in patterns)


@functools.cache
def pages():
    sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tools"))
    import docs_reference

    return docs_reference.pages()[1]


def test_pages_lead_to_pages():
    """Functions of nn.functional have pages of their own, and links between pages have their ends."""
    links = {(page, link) for page, text in pages().items() for link in re.findall(r"\]\(([^)]+\.md)\)", text)}
    assert [(page, link) for page, link in links if posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) not in pages()] == []
    assert "training=True" in pages()["reference/nn.functional/dropout.md"] and "nn.functional/elu.md" in pages()["reference/nn/ELU.md"]


def test_pages_have_examples():
    """All but lists of names."""
    apart = "\n| name | what it does |\n"
    missing = {page for page, text in pages().items() if "\n## Example\n" not in text and apart not in text}
    assert [page for page in missing if not page.endswith("/index.md")] == []


def test_pages_name_what_is_preset():
    """Not the address of a function or the file of a module; the members of an enum, not how Python makes one."""
    assert [page for page, text in pages().items() if re.search(r" at 0x[0-9a-f]{6}|=<class |<module '", text)] == []
    assert "\nInterpolationMode.NEAREST\n" in pages()["reference/vision.transforms/InterpolationMode.md"]
    assert "loader=pil_loader" in pages()["reference/vision.datasets/ImageFolder.md"]
    assert "Arguments" not in inspect.getdoc(wisp.vision.transforms.InterpolationMode)


def test_examples_run(tmp_path, monkeypatch):
    """Those of the texts, and one for several names (`{name}`) for each of them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _reference.about("abs", ())
    exact, patterns = _reference._entries
    entries = [entry for found in exact.values() for entry in found] + [entry for _, entry in patterns]
    examples = {entry["Example"]: None for entry in entries if "{name}" not in entry.get("Example", "{name}")}
    for path, value in paths().items():
        example, doc = _reference.example(path), inspect.getdoc(value) or ""
        if example and (">>> " not in doc or example.splitlines()[1] in doc):  # what its docstring shows itself goes before it
            examples[example.removeprefix(">>> import wisp\n")] = None
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    for number, text in enumerate(examples):
        if "build_directory" not in text or any(map(shutil.which, ("c++", "g++", "clang++"))):
            runner.run(parser.get_doctest(text + "\n", {"wisp": wisp}, text, None, number))
    assert len(examples) > 100 and runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("space", ["nn", "optim", "optim.lr_scheduler", "utils.data", "linalg", "signal.windows", "vision.models"])
def test_names_have_examples(space):
    """In `help()` too."""
    assert [name for name, value in public(space) if ">>> " not in inspect.getdoc(value)] == []


def test_help_has_the_arguments():
    convolution = wisp.nn.Conv2d.__doc__
    assert convolution.startswith("Cross-correlation") and "stride: how far" in convolution and "L_out = " in convolution
    assert "num_layers:" in inspect.getdoc(wisp.nn.LSTM) and "betas: how slowly" in inspect.getdoc(wisp.optim.Adam)
    assert "size_average, " not in inspect.getdoc(wisp.nn.functional.smooth_l1_loss) and "beta: up to" in inspect.getdoc(
        wisp.nn.SmoothL1Loss
    )
    assert "mat2: a matrix" in wisp.addmm.__doc__ and "\n    input: " not in wisp.Tensor.addmm.__doc__
    assert "mat2: a matrix" in inspect.getdoc(wisp.nn.Parameter.addmm)  # of a subclass of Tensor
    assert "from where to where" in inspect.getdoc(wisp.nn.init.uniform_)  # a function of Python


def test_a_subclass_has_its_own_text():
    class Mine(wisp.nn.Conv2d):
        """Mine."""

    assert Mine.__doc__ == "Mine." and wisp.nn.Conv2d(1, 1, 1).__doc__ == wisp.nn.Conv2d.__doc__


def test_importing_reads_no_text():
    code = "import wisp, wisp.nn, wisp.optim, wisp.utils.data, wisp.distributions, wisp.vision; assert wisp._reference._entries is None"
    subprocess.run([sys.executable, "-c", code], check=True)
