"""Hooks on modules and tensors, containers of modules, pruning and parametrisation."""

from typing import Any

import wisp as torch
import wisp.nn as nn
import wisp.nn.utils.parametrize as parametrize
import wisp.nn.utils.prune as prune
from wisp import Tensor
from wisp.utils.hooks import RemovableHandle


class Symmetric(nn.Module):
    def forward(self, X: Tensor) -> Tensor:
        return X.triu() + X.triu(1).transpose(-1, -2)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
        self.acts = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d_model=4, nhead=2, dim_feedforward=8, batch_first=True), 1)

    def forward(self, x: Tensor, which: str = "a") -> Tensor:
        for i, act in enumerate(self.acts):
            x = act(self.layers[which](x)) * self.scales[i]
        attended, weights = self.attention(x, x, x, need_weights=True)
        assert weights is not None and weights.dim() == 3
        return self.encoder(attended)


def main() -> None:
    activations: dict[str, Tensor] = {}
    handles: list[RemovableHandle] = []

    def remember(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            activations[name] = output.detach()

        return hook

    model = Model()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            handles.append(module.register_forward_hook(remember(name)))
    x = torch.randn(2, 3, 4, requires_grad=True)
    x.register_hook(lambda grad: grad * 2)
    grads: list[tuple[Tensor | None, ...]] = []
    handles.append(model.register_full_backward_hook(lambda m, gi, go: grads.append(gi)))
    model(x, which="b").sum().backward()
    print(sorted(activations), len(grads), x.grad is not None and x.grad.norm().item())
    for handle in handles:
        handle.remove()

    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    A = layer.weight
    assert torch.allclose(A, A.T)
    pruned = prune.l1_unstructured(nn.Linear(4, 4), name="weight", amount=0.3)
    print(float((pruned.weight == 0).sum()) / pruned.weight.nelement())
    lazy = nn.LazyLinear(2)
    print(lazy(torch.ones(1, 5)).shape, nn.utils.get_total_norm([torch.ones(4)]))
    with torch.profiler.profile(record_shapes=True) as prof:
        model(x)
    print(len(prof.key_averages().table(sort_by="cpu_time_total", row_limit=3)) > 0)


if __name__ == "__main__":
    main()
