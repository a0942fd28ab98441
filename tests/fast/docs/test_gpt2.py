"""examples/gpt2.py: from a file in Hugging Face's layout to text, with the cache and without."""

import json
import pathlib
import runpy

import pytest

import wisp
from wisp.utils import safetensors

ROOT = pathlib.Path(__file__).parents[3]
CONFIG = {"n_layer": 3, "n_head": 4, "n_embd": 48, "n_positions": 64, "vocab_size": 300, "layer_norm_epsilon": 1e-5}


@pytest.fixture(scope="module")
def gpt2():
    return runpy.run_path(str(ROOT / "examples" / "gpt2.py"))


def weights(config, make):
    """A state in the published layout, mask and all; `make(*shape)` makes a tensor."""
    width = config["n_embd"]
    state = {
        "wte.weight": make(config["vocab_size"], width),
        "wpe.weight": make(config["n_positions"], width),
        "ln_f.weight": make(width),
        "ln_f.bias": make(width),
    }
    for i in range(config["n_layer"]):
        for name, shape in {
            "ln_1.weight": (width,),
            "ln_1.bias": (width,),
            "ln_2.weight": (width,),
            "ln_2.bias": (width,),
            "attn.c_attn.weight": (width, 3 * width),
            "attn.c_attn.bias": (3 * width,),
            "attn.c_proj.weight": (width, width),
            "attn.c_proj.bias": (width,),
            "mlp.c_fc.weight": (width, 4 * width),
            "mlp.c_fc.bias": (4 * width,),
            "mlp.c_proj.weight": (4 * width, width),
            "mlp.c_proj.bias": (width,),
            "attn.bias": (1, 1, config["n_positions"], config["n_positions"]),
        }.items():
            state[f"h.{i}.{name}"] = make(*shape)
    return state


def folder_with(path, config=CONFIG, prefix=""):
    wisp.manual_seed(3)
    state = weights(config, lambda *shape: wisp.randn(*shape) * 0.3)
    safetensors.save_file({prefix + name: tensor for name, tensor in state.items()}, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(config))
    return state


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_layout(gpt2, tmp_path, prefix):
    state = folder_with(tmp_path, prefix=prefix)
    model = gpt2["load"](str(tmp_path))
    for name, parameter in model.named_parameters():
        assert wisp.equal(parameter, state[name])
    assert not any(name.endswith(".attn.bias") for name in model.state_dict())


def test_cache(gpt2, tmp_path):
    """Cached and uncached generation agree, and so do the scores."""
    folder_with(tmp_path)
    model = gpt2["load"](str(tmp_path))
    tokens = wisp.randint(0, 300, (1, 20))
    with wisp.no_grad():
        whole = model(tokens)
        cache = gpt2["Cache"](model.config)
        parts = [model(part, cache) for part in tokens.split([7, 1, 1, 11], dim=1)]
    wisp.testing.assert_close(wisp.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-4)
    for options in ({"temperature": 0}, {"temperature": 0.9, "top_k": 10, "seed": 1}, {"seed": 2}):
        results = [list(model.generate([1, 2, 3], 30, cached=cached, **options)) for cached in (True, False)]
        assert results[0] == results[1] and len(results[0]) == 30
    assert list(model.generate([1], 9, seed=1)) == list(model.generate([1], 9, seed=1)) != list(model.generate([1], 9, seed=2))
    allowed = model(wisp.tensor([[5]]))[0, -1].topk(3).indices.tolist()
    assert {next(model.generate([5], 1, top_k=3, seed=seed)) for seed in range(20)} <= set(allowed)


def test_length(gpt2, tmp_path):
    folder_with(tmp_path)
    model = gpt2["load"](str(tmp_path))
    assert len(list(model.generate([1, 2], 1000))) == 62
    with pytest.raises(ValueError, match="64 tokens"):
        model(wisp.zeros(1, 65, dtype=wisp.int64))


def test_program(gpt2, capsys):
    text = gpt2["main"](["--tokens", "5", "--prompt", "hello"])
    assert text.startswith("hello") and "tokens/s" in capsys.readouterr().out


def test_byte_pairs(gpt2, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["the cat sat on the mat, the cat ate the rat"] * 20, vocab_size=290, min_frequency=1)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    folder_with(tmp_path)
    codec = gpt2["load_tokenizer"](str(tmp_path))
    tokens = codec.encode("the cat – ü")
    assert len(tokens) < len("the cat – ü".encode()) and codec.decode(tokens) == "the cat – ü"
    assert gpt2["main"]([str(tmp_path), "--prompt", "the cat", "--tokens", "3"]).startswith("the cat")


def test_against_torch(gpt2, tmp_path):
    """The scores are those of the same model computed by PyTorch, from the same file, written independently."""
    torch = pytest.importorskip("torch")
    import numpy

    state = {name: torch.from_numpy(numpy.array(tensor.numpy())) for name, tensor in folder_with(tmp_path).items()}
    tokens = torch.arange(0, 290, 29)[None]
    width, heads = CONFIG["n_embd"], CONFIG["n_head"]

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (width,), state[name + ".weight"], state[name + ".bias"])

    def linear(x, name):
        return torch.addmm(state[name + ".bias"], x.reshape(-1, x.shape[-1]), state[name + ".weight"]).view(*x.shape[:-1], -1)

    x = state["wte.weight"][tokens] + state["wpe.weight"][: tokens.shape[1]]
    for i in range(CONFIG["n_layer"]):
        q, k, v = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(width, 2)
        q, k, v = (part.reshape(1, -1, heads, width // heads).transpose(1, 2) for part in (q, k, v))
        scores = q @ k.transpose(2, 3) / (width // heads) ** 0.5
        scores = scores.masked_fill(torch.triu(torch.ones_like(scores, dtype=torch.bool), 1), -torch.inf)
        x = x + linear((scores.softmax(3) @ v).transpose(1, 2).reshape(1, -1, width), f"h.{i}.attn.c_proj")
        hidden = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        hidden = 0.5 * hidden * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)))
        x = x + linear(hidden, f"h.{i}.mlp.c_proj")
    expected = norm(x, "ln_f") @ state["wte.weight"].T
    with wisp.no_grad():
        scores = gpt2["load"](str(tmp_path))(wisp.from_numpy(tokens.numpy()))
    numpy.testing.assert_allclose(scores.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
