"""Saving and loading models: state dicts, checkpoints, parts of a model."""

import os
import tempfile
from collections import OrderedDict
from typing import Any

import wisp as torch
import wisp.nn as nn
import wisp.optim as optim


class TheModelClass(nn.Module):
    running: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.features = nn.Sequential(OrderedDict([("fc", nn.Linear(6, 4)), ("act", nn.ReLU())]))
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("running", torch.zeros(4), persistent=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv1(x).mean(dim=(2, 3))
        x = self.features(x) * self.scale
        if self.training:
            self.running = 0.9 * self.running + 0.1 * x.detach().mean(0)
        return x


def main() -> None:
    model = TheModelClass()
    optimizer = optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    print("Model's state_dict:")
    for param_tensor in model.state_dict():
        print(param_tensor, "\t", model.state_dict()[param_tensor].size())
    for var_name in optimizer.state_dict():
        print(var_name, "\t", optimizer.state_dict()[var_name])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.tar")
        loss = model(torch.randn(2, 3, 8, 8)).sum()
        loss.backward()
        optimizer.step()
        torch.save({"epoch": 5, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict(), "loss": loss}, path)
        checkpoint: dict[str, Any] = torch.load(path, map_location=torch.device("cpu"), weights_only=True)
        fresh = TheModelClass()
        fresh.load_state_dict(checkpoint["model_state_dict"])
        fresh.eval()
        other = optim.SGD(fresh.parameters(), lr=0.001, momentum=0.9)
        other.load_state_dict(checkpoint["optimizer_state_dict"])
        epoch: int = checkpoint["epoch"]
        result = fresh.load_state_dict({"scale": torch.zeros(4)}, strict=False)
        print(epoch, result.missing_keys, other.param_groups[0]["lr"])
        torch.save(model, os.path.join(folder, "model.pt"))
        whole = torch.load(os.path.join(folder, "model.pt"), weights_only=False)
        assert isinstance(whole, TheModelClass)
    for name, module in model.named_children():
        print(name, module.__class__.__name__)
    assert model.get_submodule("features.fc") is model.features[0]
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), whole.state_dict().values()))
    copied = torch.nn.utils.parameters_to_vector(model.parameters())
    torch.nn.utils.vector_to_parameters(copied, fresh.parameters())
    half = model.half().float().to(dtype=torch.float64, device="cpu")
    print(half.scale.dtype, copied.numel())


if __name__ == "__main__":
    main()
