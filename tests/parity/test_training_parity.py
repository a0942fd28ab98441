"""Training follows PyTorch: the same model from the same weights on the same batches keeps PyTorch's loss for 200 steps.

The models are those of the benchmarks, some of them smaller.
"""

import numpy as np
import pytest
import torch

import wisp

STEPS = 200
OPTIMIZERS = {"SGD": dict(lr=0.01, momentum=0.9), "Adam": {}, "AdamW": {}}


def mlp(package):
    nn = package.nn
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn(package):
    nn, F = package.nn, package.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.pool, self.conv2 = nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5)
            self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

        def forward(self, x):
            x = self.pool(F.relu(self.conv1(x)))
            x = self.pool(F.relu(self.conv2(x)))
            x = package.flatten(x, 1)
            return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))

    return Net()


def lstm(package):
    nn = package.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(32, 64, 2, batch_first=True), nn.Linear(64, 10)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    return Net()


def gpt(package, vocab=64, context=16, d=32, heads=2, layers=2):
    nn, F = package.nn, package.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.ln2, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = [y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(context, d)
            self.blocks, self.ln = nn.Sequential(*[Block() for _ in range(layers)]), nn.LayerNorm(d)
            self.head = nn.Linear(d, vocab, bias=False)

        def forward(self, i):
            x = self.tok(i) + self.pos(package.arange(i.shape[1]))
            return self.head(self.ln(self.blocks(x))).flatten(0, 1)

    return GPT()


def batches(name):
    """Inputs with targets that can be learnt from them; a new batch for every step."""
    random = np.random.default_rng(7)
    if name == "gpt":
        for _ in range(STEPS):
            start = random.integers(0, 64, (8, 1))
            text = (start * 3 ** np.arange(17) + np.arange(17)) % 64
            yield text[:, :-1], text[:, 1:].reshape(-1)
        return
    shape = {"mlp": (32, 784), "cnn": (8, 3, 32, 32), "lstm": (16, 12, 32)}[name]
    teacher = random.standard_normal((int(np.prod(shape[1:])), 10))
    for _ in range(STEPS):
        x = random.standard_normal(shape).astype("float32")
        yield x, (x.reshape(shape[0], -1) @ teacher).argmax(1)


@pytest.fixture(autouse=True)
def one_torch_thread():
    """PyTorch's threads wait for one another by spinning: on a busy machine small models take minutes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(package, model, optimizer, data):
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = package.nn.functional.cross_entropy(model(package.from_numpy(x)), package.from_numpy(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name,make", [("mlp", mlp), ("cnn", cnn), ("lstm", lstm), ("gpt", gpt)])
def test_losses_follow_pytorch(name, make, optimizer):
    torch.manual_seed(3)
    data = list(batches(name))
    theirs, ours = make(torch), make(wisp)
    ours.load_state_dict({key: wisp.from_numpy(value.numpy().copy()) for key, value in theirs.state_dict().items()})
    options = OPTIMIZERS[optimizer]
    expected = train(torch, theirs, getattr(torch.optim, optimizer)(theirs.parameters(), **options), data)
    got = train(wisp, ours, getattr(wisp.optim, optimizer)(ours.parameters(), **options), data)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    if name == "gpt":  # and there is something to learn
        assert expected[-10:].mean() < 0.95 * expected[:10].mean()
