"""Learn the basics: a small network, a loader, a loop."""

import wisp as torch
from wisp import nn
from wisp.utils.data import DataLoader, TensorDataset, random_split


class NeuralNetwork(nn.Module):
    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(nn.Linear(8 * 8, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.flatten(x)
        logits = self.linear_relu_stack(x)
        return logits


def train(
    dataloader: DataLoader[tuple[torch.Tensor, ...]], model: nn.Module, loss_fn: nn.Module, optimizer: torch.optim.Optimizer, device: str
) -> None:
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)
        pred = model(X)
        loss = loss_fn(pred, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 100 == 0:
            print(f"loss: {loss.item():>7f}  [{(batch + 1) * len(X):>5d}/{size:>5d}]")


@torch.no_grad()
def accuracy(dataloader: DataLoader[tuple[torch.Tensor, ...]], model: nn.Module) -> float:
    model.eval()
    correct, seen = 0.0, 0
    for X, y in dataloader:
        pred = model(X)
        correct += (pred.argmax(1) == y).type(torch.float).sum().item()
        seen += y.shape[0]
    return correct / seen


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = TensorDataset(torch.rand(200, 1, 8, 8), torch.randint(0, 10, (200,)))
    training, test = random_split(dataset, [160, 40], generator=torch.Generator().manual_seed(1))
    train_dataloader = DataLoader(training, batch_size=64, shuffle=True)
    test_dataloader = DataLoader(test, batch_size=64)
    for X, y in test_dataloader:
        print(f"Shape of X [N, C, H, W]: {X.shape}, shape of y: {y.shape} {y.dtype}")
        break
    model = NeuralNetwork().to(device)
    print(model, sum(p.numel() for p in model.parameters() if p.requires_grad))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(2):
        print(f"Epoch {epoch + 1}\n-------------------------------")
        train(train_dataloader, model, loss_fn, optimizer, device)
    print(f"Accuracy: {100 * accuracy(test_dataloader, model):>0.1f}%")


if __name__ == "__main__":
    main()
