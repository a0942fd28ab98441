"""Every example runs, and learns what it says, in a shortened run."""

import pathlib
import runpy

import pytest

import wisp

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def run(name, *arguments):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](list(arguments))


def test_char_gpt(capsys, tmp_path):
    accuracy, loss = run("char_gpt", "--steps", "50", "--batch", "64")
    assert loss < 2.1 and 0 <= accuracy <= 1  # twelve characters: 2.48 at first
    assert "sums it has never seen" in capsys.readouterr().out
    path = tmp_path / "text.txt"
    path.write_text("all work and no play makes jack a dull boy\n" * 60)
    assert run("char_gpt", "--text", str(path), "--steps", "40", "--batch", "32") < 1.5
    module = runpy.run_path(str(EXAMPLES / "char_gpt.py"))
    row = module["sums"]()[4785].tolist()
    assert "".join(module["ALPHABET"][character] for character in row) == "47+85=231"


def test_vae(capsys):
    assert run("vae", "--epochs", "8") < 23
    assert "nats" in capsys.readouterr().out


def test_dcgan(capsys):
    recognised, kinds = run("dcgan", "--steps", "60")
    assert 0 <= recognised <= 1 and 0 <= kinds <= 10
    assert "forgeries" in capsys.readouterr().out


def test_lstm(capsys):
    ratio, grammatical = run("lstm", "--steps", "80")
    assert 1 - 1e-2 < ratio < 1.3 and grammatical > 0.2
    module = runpy.run_path(str(EXAMPLES / "lstm.py"))
    sentences = [module["Grammar"](seed).sentence() for seed in range(200)]
    assert all(module["is_grammatical"](words[:-1]) for words in sentences)
    for wrong in (
        "",
        "the",
        "the cat",
        "the cat sleep",
        "cat sleeps",
        "the cat near the dogs sleep",
        "the cat sleeps the dog",
        "the cat sees",
    ):
        assert not module["is_grammatical"](wrong.split())


def test_policy_gradient(capsys):
    assert run("policy_gradient", "--rounds", "25") > 60


def test_graph_convolution(capsys):
    assert run("graph_convolution") >= 31


def test_resnet(capsys):
    assert run("resnet", "--steps", "40", "--batch", "32") > 0.25
    images, labels = runpy.run_path(str(EXAMPLES / "resnet.py"))["make_images"](50)
    assert tuple(images.shape) == (50, 3, 20, 20) and images.isfinite().all() and set(labels.tolist()) == set(range(5))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_have_a_head_and_a_help(path, capsys):
    module = runpy.run_path(str(path))
    assert f"python examples/{path.name}" in module["__doc__"]
    with pytest.raises(SystemExit) as stopped:
        module["main"](["--help"])
    assert stopped.value.code == 0 and "--seed" in capsys.readouterr().out
    assert wisp.is_grad_enabled()
