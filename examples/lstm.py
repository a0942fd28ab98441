"""An LSTM learns a small language, word by word.

    python examples/lstm.py

The sentences come from a grammar with probabilities, in which verbs agree with nouns that stand some words before them. Because we
know the grammar, we know how well any model can do at best: the entropy of the language. The perplexity of the LSTM on sentences it
has not seen comes within 5 % of that limit, and what it writes is grammatical more than 95 times in a hundred.
"""

import argparse
import math
import random

import wisp
from wisp import Tensor, nn, progress
from wisp.nn import functional as F

NOUNS = {"singular": ["cat", "dog", "poet", "robot"], "plural": ["cats", "dogs", "poets", "robots"]}
VERBS = {"singular": ["sleeps", "sings", "waits"], "plural": ["sleep", "sing", "wait"]}
SEEING = {"singular": ["sees", "likes"], "plural": ["see", "like"]}
ADJECTIVES = ["small", "old", "quiet"]
END = "."
WORDS = sorted({word for table in (NOUNS, VERBS, SEEING) for words in table.values() for word in words} | {*ADJECTIVES, "the", "near", END})
INDEX = {word: i for i, word in enumerate(WORDS)}


class Grammar:
    """Draws sentences, and keeps account of how surprising each choice was: the entropy of the language."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nats = 0.0

    def pick(self, choices: list[str]) -> str:
        self.nats += math.log(len(choices))
        return self.random.choice(choices)

    def flip(self, probability: float) -> bool:
        result = self.random.random() < probability
        self.nats -= math.log(probability if result else 1 - probability)
        return result

    def noun_phrase(self, number: str) -> list[str]:
        words = ["the"]
        if self.flip(0.4):
            words.append(self.pick(ADJECTIVES))
        return words + [self.pick(NOUNS[number])]

    def sentence(self) -> list[str]:
        number = "singular" if self.flip(0.5) else "plural"
        words = self.noun_phrase(number)
        if self.flip(0.3):  # another noun between the subject and its verb, which must not confuse
            words += ["near", *self.noun_phrase("singular" if self.flip(0.5) else "plural")]
        if self.flip(0.5):
            words += [self.pick(VERBS[number])]
        else:
            words += [self.pick(SEEING[number]), *self.noun_phrase("singular" if self.flip(0.5) else "plural")]
        return words + [END]

    def text(self, count: int) -> tuple[list[str], float]:
        """-> (words of about `count` words of sentences, the entropy per word in nats)."""
        self.nats = 0.0
        words: list[str] = []
        while len(words) < count:
            words += self.sentence()
        return words, self.nats / len(words)


def is_grammatical(words: list[str]) -> bool:
    """Whether a sentence (without its full stop) follows the grammar."""

    def noun_phrase(rest: list[str]) -> tuple[str | None, list[str]]:
        if rest[:1] != ["the"]:
            return None, rest
        rest = rest[2:] if rest[1:2] and rest[1] in ADJECTIVES else rest[1:]
        number = next((number for number, nouns in NOUNS.items() if rest[:1] and rest[0] in nouns), None)
        return number, rest[1:]

    number, rest = noun_phrase(words)
    if number is not None and rest[:1] == ["near"]:
        other, rest = noun_phrase(rest[1:])
        number = None if other is None else number
    if number is None or not rest:
        return False
    if rest[0] in VERBS[number]:
        return len(rest) == 1
    other, rest = noun_phrase(rest[1:]) if rest[0] in SEEING[number] else (None, rest)
    return other is not None and not rest


State = tuple[Tensor, Tensor]


class Model(nn.Module):
    def __init__(self, words: int, width: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=0.1)
        self.output = nn.Linear(width, words)

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        x, state = self.lstm(self.embedding(words), state)
        return self.output(x), state


def train(model: Model, data: Tensor, steps: int, batch: int = 32, length: int = 32) -> None:
    """Truncated backpropagation through time: the state goes on from piece to piece, the gradient does not."""
    columns = data[: len(data) // batch * batch].view(batch, -1)
    optimizer = wisp.optim.Adam(model.parameters(), lr=5e-3)
    schedule = wisp.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-4)
    state: State | None = None
    place = 0
    bar = progress.bar(range(steps), "training", unit="steps")
    for step in bar:
        if place + length + 1 > columns.shape[1]:
            state, place = None, 0
        x, y = columns[:, place : place + length], columns[:, place + 1 : place + length + 1]
        place += length
        if state is not None:
            state = state[0].detach(), state[1].detach()
        optimizer.zero_grad()
        scores, state = model(x, state)
        loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            bar.set(perplexity=math.exp(loss.item()))


@wisp.no_grad()
def perplexity(model: Model, data: Tensor) -> float:
    scores, _ = model(data[None, :-1])
    return math.exp(F.cross_entropy(scores[0], data[1:]).item())


@wisp.no_grad()
def write(model: Model, count: int) -> list[list[str]]:
    """Sentences that the model writes, as lists of words without the full stop."""
    word, state = wisp.tensor([[INDEX[END]]]), None
    sentences: list[list[str]] = []
    words: list[str] = []
    while len(sentences) < count:
        scores, state = model(word, state)
        word = wisp.multinomial(scores[0].softmax(dim=1), 1)
        words.append(WORDS[int(word.item())])
        if words[-1] == END or len(words) > 50:
            sentences.append(words[:-1])
            words = []
    return sentences


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description="Train an LSTM language model on a small language.")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    wisp.manual_seed(options.seed)
    train_words, _ = Grammar(options.seed).text(60_000)
    test_words, entropy = Grammar(options.seed + 1).text(6_000)
    train_data, test_data = (wisp.tensor([INDEX[word] for word in words]) for words in (train_words, test_words))
    model = Model(len(WORDS))
    print(f"{len(train_data):,} words to learn from, {len(WORDS)} different ones; the best possible perplexity is {math.exp(entropy):.3f}")
    train(model, train_data, options.steps)

    model.eval()
    reached = perplexity(model, test_data)
    sentences = write(model, 200)
    grammatical = sum(map(is_grammatical, sentences)) / len(sentences)
    print("\n" + "\n".join(f"   {' '.join(words)}." for words in sentences[:5]) + "\n")
    print(f"perplexity on sentences it has not seen: {reached:.3f} ({reached / math.exp(entropy) - 1:.1%} above the limit)")
    print(f"of the sentences it writes, {grammatical:.1%} are grammatical")
    return reached / math.exp(entropy), grammatical


if __name__ == "__main__":
    main()
