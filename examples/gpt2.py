"""GPT-2, from a folder in the layout of Hugging Face (config.json, model.safetensors, tokenizer.json).

    python examples/gpt2.py path/to/gpt2 --prompt "The meaning of life is" --tokens 40 --top-k 40

Such a folder is what https://huggingface.co/openai-community/gpt2 holds: download those three files. Without a folder, a small
model with random weights is made, which babbles, but shows that everything works. The tokenizer needs `pip install wisp[examples]`;
without it, or without tokenizer.json, a token is a byte.

With the cache of keys and values, each new token costs one pass over that token alone instead of one over all of the text.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import wisp
from wisp import Tensor, nn
from wisp.nn import functional as F


class Conv1D(nn.Module):
    """A linear layer whose weight is stored as (inputs, outputs), as in the published files."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(wisp.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(wisp.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Cache:
    """The keys and values of all tokens so far, for every layer."""

    def __init__(self, config: dict[str, Any], batch: int = 1) -> None:
        shape = (config["n_layer"], 2, batch, config["n_head"], config["n_positions"], config["n_embd"] // config["n_head"])
        self.memory = wisp.empty(shape)
        self.length = 0  # how many tokens are in it

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put the newest keys and values in, and return all."""
        end = self.length + keys.shape[2]
        for part, new in enumerate((keys, values)):
            self.memory[layer, part, :, :, self.length : end] = new
        return self.memory[layer, 0, :, :, :end], self.memory[layer, 1, :, :, :end]


class Attention(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.heads = config["n_head"]
        self.c_attn = Conv1D(config["n_embd"], 3 * config["n_embd"])
        self.c_proj = Conv1D(config["n_embd"], config["n_embd"])

    def forward(self, x: Tensor, layer: int, cache: Cache | None = None) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        past = 0
        if cache is not None:
            past = cache.length
            key, value = cache.extend(layer, key, value)
        # Token i sees the tokens up to itself; row i of the mask belongs to token past + i.
        mask = wisp.ones(length, past + length, dtype=wisp.bool).tril(past)
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.c_fc = Conv1D(config["n_embd"], 4 * config["n_embd"])
        self.c_proj = Conv1D(4 * config["n_embd"], config["n_embd"])

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config["n_embd"], eps=config["layer_norm_epsilon"])
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config["n_embd"], eps=config["layer_norm_epsilon"])
        self.mlp = MLP(config)

    def forward(self, x: Tensor, layer: int, cache: Cache | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), layer, cache)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """The names of the parameters are those of the published files."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config: dict[str, Any] = {"layer_norm_epsilon": 1e-5, **config}
        self.wte = nn.Embedding(config["vocab_size"], config["n_embd"])
        self.wpe = nn.Embedding(config["n_positions"], config["n_embd"])
        self.h = nn.ModuleList(Block(self.config) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(config["n_embd"], eps=self.config["layer_norm_epsilon"])

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """(batch, length) tokens -> (batch, length, vocabulary) scores of what comes next."""
        past = 0 if cache is None else cache.length
        if past + tokens.shape[1] > self.config["n_positions"]:
            raise ValueError(f"the text has more than {self.config['n_positions']} tokens, which is all that this model can see")
        x = self.wte(tokens) + self.wpe(wisp.arange(past, past + tokens.shape[1]))
        for layer, block in enumerate(self.h):
            x = block(x, layer, cache)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.ln_f(x) @ self.wte.weight.T  # the last layer is the embedding again

    @wisp.no_grad()
    def generate(
        self,
        tokens: list[int],
        count: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
        cached: bool = True,
    ) -> Iterator[int]:
        """Yield `count` new tokens, one at a time; temperature 0 always takes the likeliest."""
        generator = wisp.Generator()
        generator.manual_seed(0 if seed is None else seed)
        cache = Cache(self.config) if cached else None
        text = wisp.tensor([tokens])
        new = text
        for _ in range(min(count, self.config["n_positions"] - len(tokens))):
            scores = self(new if cached else text, cache)[0, -1]
            if temperature == 0:
                token = scores.argmax()
            else:
                scores = scores / temperature
                if top_k is not None:
                    lowest = scores.topk(min(top_k, len(scores))).values[-1]
                    scores = scores.masked_fill(scores < lowest, -math.inf)
                token = wisp.multinomial(scores.softmax(0), 1, generator=generator)
            new = token.view(1, 1)
            text = wisp.cat([text, new], dim=1)
            yield token.item()


def load(folder: str) -> GPT2:
    """The model in a folder."""
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config.setdefault("n_positions", config.get("n_ctx"))
    model = GPT2(config)

    def rename(name: str) -> str | None:
        # Old files hold the causal mask of every layer, and the last layer, which is the embedding.
        is_mask = name.startswith("h.") and name.endswith((".attn.bias", ".attn.masked_bias"))
        return None if is_mask or name == "lm_head.weight" else name

    wisp.hub.load_safetensors(model, folder, prefix={"transformer.": ""}, rename=rename)
    return model.eval()


def make_small(folder: str, seed: int = 0) -> None:
    """A model with random weights in the layout of the published ones."""
    wisp.manual_seed(seed)
    config = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 256, "vocab_size": 256, "layer_norm_epsilon": 1e-5}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    wisp.hub.save_safetensors(GPT2(config), folder)


class Bytes:
    """The tokenizer for models without one: a token is a byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode("utf-8", "replace")


class BytePairs:
    """The byte-level BPE in tokenizer.json, by the `tokenizers` package."""

    def __init__(self, path: str) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(path)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)


def load_tokenizer(folder: str) -> Bytes | BytePairs:
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        return Bytes()
    try:
        return BytePairs(path)
    except ImportError:
        print("tokenizer.json needs the package tokenizers: pip install 'wisp[examples]'. Using bytes.", file=sys.stderr)
        return Bytes()


def main(arguments: list[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description="Continue a text with GPT-2.")
    parser.add_argument("folder", nargs="?", help="config.json, model.safetensors, tokenizer.json")
    parser.add_argument("--prompt", default="The meaning of life is")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-cache", action="store_true", help="compute everything again for every token")
    options = parser.parse_args(arguments)

    folder = options.folder
    if folder is None:
        folder = tempfile.mkdtemp()
        make_small(folder)
        print("no folder given: this is a small model with random weights")
    model, tokenizer = load(folder), load_tokenizer(folder)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {model.config['n_layer']} layers\n")

    tokens = tokenizer.encode(options.prompt)
    shown, start = "", time.perf_counter()
    new: list[int] = []
    for token in model.generate(tokens, options.tokens, options.temperature, options.top_k, options.seed, not options.no_cache):
        new.append(token)
        text = tokenizer.decode(tokens + new)
        if not text.endswith("\ufffd"):  # a character may take several tokens
            print(text[len(shown) :], end="", flush=True)
            shown = text
    print(f"\n\n{len(new) / (time.perf_counter() - start):.1f} tokens/s")
    return tokenizer.decode(tokens + new)


if __name__ == "__main__":
    main()
