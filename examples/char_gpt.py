"""Teaches a small GPT to add, one character at a time.

    python examples/char_gpt.py                      learns sums such as 47+85=132
    python examples/char_gpt.py --text book.txt      learns to write like a text of yours, and writes

The model sees nothing but characters; that 7+5 carries a one, it has to find out. It is shown a part of all sums of two numbers
below 100, and asked for the others: more than 95 % of them are right in the end. (The digits of a sum are written backwards, as we
add on paper: the carry then only depends on what was written before.)
"""

import argparse
from collections.abc import Callable

import wisp
from wisp import Tensor, nn, progress
from wisp.nn import functional as F


class Block(nn.Module):
    """Attention lets a character look at those before it; the MLP then thinks about what was seen."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = self.attention(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, characters: int, length: int, width: int = 96, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.length = length
        self.embedding = nn.Embedding(characters, width)
        self.position = nn.Parameter(wisp.randn(length, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        """(batch, length) characters -> (batch, length, characters) scores of the next one."""
        x = self.embedding(text) + self.position[: text.shape[1]]
        return self.output(self.norm(self.blocks(x)))

    @wisp.no_grad()
    def write(self, text: Tensor, count: int, temperature: float | None = None) -> Tensor:
        """Append `count` characters to each text: the likeliest ones, or drawn with a temperature."""
        for _ in range(count):
            scores = self(text[:, -self.length :])[:, -1]
            if temperature is None:
                character = scores.argmax(1, keepdim=True)
            else:
                character = wisp.multinomial((scores / temperature).softmax(1), 1)
            text = wisp.cat([text, character], dim=1)
        return text


def train(model: GPT, batches: Callable[[], tuple[Tensor, Tensor]], steps: int, rate: float) -> float:
    """`batches()` gives (characters, what comes next); where nothing is asked for, that is -1. -> the last loss."""
    optimizer = wisp.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = wisp.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=0.1)
    bar = progress.bar(range(steps), "training", unit="steps")
    for step in bar:
        text, target = batches()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text).flatten(0, 1), target.flatten(), ignore_index=-1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            bar.set(loss=loss)
    return loss.item()


# ---------------------------------------------------------------- sums
ALPHABET = "0123456789+="


def sums() -> Tensor:
    """All sums of two numbers below 100 as rows of characters: "47+85=231" for 47 + 85 = 132."""
    numbers = wisp.arange(10_000)
    a, b = numbers // 100, numbers % 100
    total = a + b
    columns = [a // 10, a % 10, wisp.full_like(a, 10), b // 10, b % 10, wisp.full_like(a, 11), total % 10, total // 10 % 10, total // 100]
    return wisp.stack(columns, dim=1)


def learn_sums(steps: int, batch: int, rate: float) -> tuple[float, float]:
    """Train on nine tenths of all sums -> (the share of the others that are right, the last loss)."""
    rows = sums()[wisp.randperm(10_000)]
    known, unknown = rows[:9000], rows[9000:]
    model = GPT(len(ALPHABET), length=8)
    print(f"{len(known)} sums to learn from, {len(unknown)} to be asked; {sum(p.numel() for p in model.parameters()):,} parameters")

    def batches() -> tuple[Tensor, Tensor]:
        chosen = known[wisp.randint(0, len(known), (batch,))]
        target = chosen[:, 1:].clone()
        target[:, :5] = -1  # only the answer is asked for
        return chosen[:, :-1], target

    loss = train(model, batches, steps, rate)

    answers = model.eval().write(unknown[:, :6], 3)
    right = (answers == unknown).all(dim=1)
    for row, good in zip(answers[:8].tolist(), right[:8].tolist()):
        text = "".join(ALPHABET[character] for character in row)
        print(f"   {text[:6]}{text[:5:-1].lstrip('0') or '0'}{'' if good else '   (wrong)'}")
    accuracy = right.float().mean().item()
    print(f"sums it has never seen: {accuracy:.1%} right")
    return accuracy, loss


# ---------------------------------------------------------------- a text of yours
def learn_text(path: str, steps: int, batch: int, rate: float, length: int = 64) -> float:
    """Train on a text, write something -> the last loss on a part that was kept back."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    alphabet = sorted(set(text))
    index = {character: i for i, character in enumerate(alphabet)}
    data = wisp.tensor([index[character] for character in text])
    if len(data) < 20 * length:
        raise SystemExit(f"{path} has {len(data)} characters; at least {20 * length} are needed")
    known, unknown = data[: -10 * length], data[-10 * length :]
    model = GPT(len(alphabet), length)

    def cut(source: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        rows = source[starts[:, None] + wisp.arange(length + 1)]
        return rows[:, :-1], rows[:, 1:]

    train(model, lambda: cut(known, wisp.randint(0, len(known) - length, (batch,))), steps, rate)

    model.eval()
    with wisp.no_grad():
        x, y = cut(unknown, wisp.arange(0, 9 * length, length))
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    written: list[int] = model.write(data[:1][None], 400, temperature=0.8)[0].tolist()
    print("".join(alphabet[character] for character in written))
    print(f"loss on a part it has not seen: {loss:.3f}")
    return loss


def main(arguments: list[str] | None = None) -> float | tuple[float, float]:
    parser = argparse.ArgumentParser(description="Train a small GPT on characters.")
    parser.add_argument("--text", help="a text file to learn from instead of sums")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    wisp.manual_seed(options.seed)
    if options.text:
        return learn_text(options.text, options.steps, max(1, options.batch // 4), options.rate)
    return learn_sums(options.steps, options.batch, options.rate)


if __name__ == "__main__":
    main()
