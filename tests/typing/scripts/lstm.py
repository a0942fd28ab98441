"""Text with a recurrent network: embedding, packed sequences, a classifier and a tagger."""

import random
from collections.abc import Sequence

import wisp as torch
import wisp.nn as nn
import wisp.nn.functional as F
from wisp.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Tagger(nn.Module):
    def __init__(self, embedding_dim: int, hidden_dim: int, vocab_size: int, tagset_size: int) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.word_embeddings = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.hidden2tag = nn.Linear(2 * hidden_dim, tagset_size)

    def forward(self, sentences: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        embeds = self.word_embeddings(sentences)
        packed = pack_padded_sequence(embeds, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, (hidden, cell) = self.lstm(packed)
        padded, _ = pad_packed_sequence(out, batch_first=True)
        assert hidden.shape == cell.shape
        return F.log_softmax(self.hidden2tag(padded), dim=-1)


class CharRNN(nn.Module):
    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.i2h(torch.cat((input, hidden), 1)))
        return self.softmax(self.h2o(hidden)), hidden

    def init_hidden(self) -> torch.Tensor:
        return torch.zeros(1, self.hidden_size)


def to_ixs(sequence: Sequence[str], to_ix: dict[str, int]) -> torch.Tensor:
    return torch.tensor([to_ix[word] for word in sequence], dtype=torch.long)


def main() -> None:
    torch.manual_seed(1)
    data = [("the dog ate the apple".split(), [0, 1, 2, 0, 1]), ("everybody read".split(), [1, 2])]
    to_ix = {word: i + 1 for i, word in enumerate(sorted({word for words, _ in data for word in words}))}
    model = Tagger(6, 6, len(to_ix) + 1, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sentences = pad_sequence([to_ixs(words, to_ix) for words, _ in data], batch_first=True)
    lengths = torch.tensor([len(words) for words, _ in data])
    tags = pad_sequence([torch.tensor(t) for _, t in data], batch_first=True, padding_value=-100)
    for _ in range(3):
        model.zero_grad()
        scores = model(sentences, lengths)
        loss = F.nll_loss(scores.transpose(1, 2), tags, ignore_index=-100)
        loss.backward()
        optimizer.step()
    print(loss.item(), scores.argmax(-1).tolist())

    rnn = CharRNN(26, 16, 3)
    hidden = rnn.init_hidden()
    for letter in "wisp":
        line = torch.zeros(1, 26)
        line[0, ord(letter) - ord("a")] = 1
        output, hidden = rnn(line, hidden)
    guess_value, guess = output.topk(1)
    print(guess_value.item(), int(guess[0].item()), random.random() < 1)
    cell = nn.GRUCell(3, 4)
    state = torch.zeros(2, 4)
    for step in torch.randn(5, 2, 3).unbind(0):
        state = cell(step, state)
    gru = nn.GRU(3, 4)
    sequence, last = gru(torch.randn(5, 2, 3))
    print(state.shape, sequence.size(0), last.ndim)


if __name__ == "__main__":
    main()
