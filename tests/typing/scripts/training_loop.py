"""A training loop with all that one has: containers, buffers, hooks, mixed precision, clipping, schedules, averaging, checkpoints."""

import copy
import math
import os
import tempfile
from collections import OrderedDict, defaultdict
from contextlib import nullcontext
from typing import Any, Optional

import numpy as np

import wisp as torch
import wisp.nn as nn
import wisp.nn.functional as F
from wisp import Tensor
from wisp.optim import Optimizer
from wisp.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, OneCycleLR, ReduceLROnPlateau, SequentialLR
from wisp.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from wisp.utils.checkpoint import checkpoint
from wisp.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    position: Tensor

    def __init__(self, width: int, heads: int, *, causal: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleDict({"attention": nn.LayerNorm(width), "mlp": nn.LayerNorm(width)})
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mlp = nn.Sequential(
            OrderedDict([("up", nn.Linear(width, 4 * width)), ("act", nn.GELU()), ("down", nn.Linear(4 * width, width))])
        )
        self.gains = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(2)])
        self.biases = nn.ParameterDict({"out": nn.Parameter(torch.zeros(width))})
        self.causal = causal
        self.register_buffer("position", torch.arange(16, dtype=torch.float32), persistent=False)
        self.cache: Optional[Tensor] = None

    def attend(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return out.transpose(1, 2).contiguous().view(B, T, C)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gains[0] * self.attend(self.norms["attention"](x))
        return x + self.gains[1] * self.mlp(self.norms["mlp"](x)) + self.biases["out"] + 0 * self.position[0]


class Model(nn.Module):
    def __init__(self, width: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(depth))
        self.head = nn.Linear(width, 3)
        self.apply(self._init_weights)

    @staticmethod
    def _init_weights(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, x: Tensor, targets: Optional[Tensor] = None) -> tuple[Tensor, Optional[Tensor]]:
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        logits = self.head(x.mean(dim=1))
        return logits, None if targets is None else F.cross_entropy(logits, targets)


def configure(model: Model, lr: float) -> Optimizer:
    decay = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
    rest = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.99), fused=False)


def schedules(optimizer: Optimizer, steps: int) -> dict[str, LRScheduler]:
    warm = LinearLR(optimizer, start_factor=0.1, total_iters=2)
    cosine = CosineAnnealingLR(optimizer, T_max=steps)
    return {
        "sequential": SequentialLR(optimizer, [warm, cosine], milestones=[2]),
        "lambda": LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps))),
    }


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]]) -> dict[str, float]:
    model.eval()
    sums: defaultdict[str, float] = defaultdict(float)
    for x, y in loader:
        logits, loss = model(x, y)
        assert loss is not None
        sums["loss"] += loss.item() * len(x)
        sums["right"] += (logits.argmax(-1) == y).float().sum().item()
        sums["count"] += x.size(0)
    model.train()
    return {"loss": sums["loss"] / sums["count"], "accuracy": sums["right"] / sums["count"]}


def main() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    model = Model()
    x = torch.from_numpy(np.random.randn(48, 5, 4).astype(np.float32))
    y = (x.sum(dim=(1, 2)) > 0).long() + (x[:, 0, 0] > 1).to(torch.long)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, num_workers=0, pin_memory=False)
    optimizer = configure(model, 3e-3)
    scheduler = schedules(optimizer, 20)["sequential"]
    scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    autocast = torch.autocast(device_type=device_type, dtype=torch.bfloat16) if device_type == "cpu" else nullcontext()
    norms: list[float] = []
    handle = model.blocks[0].register_forward_hook(lambda module, args, output: norms.append(output.norm().item()))

    for epoch in range(2):
        for step, (inputs, targets) in enumerate(loader):
            with autocast:
                logits, loss = model(inputs, targets)
            assert loss is not None
            scaler.scale(loss / 2).backward()
            if (step + 1) % 2 == 0:
                scaler.unscale_(optimizer)
                total = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
                assert total.ndim == 0 and not math.isnan(total.item())
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                scheduler.step()
                average.update_parameters(model)
        lr = scheduler.get_last_lr()[0]
        print(f"epoch {epoch}: lr {lr:.2e}, {optimizer.param_groups[0]['lr']:.2e}", evaluate(model, loader))
    handle.remove()
    assert norms

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        state: dict[str, Any] = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "scaler": scaler.state_dict(),
            "rng": torch.get_rng_state(),
        }
        torch.save(state, path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
        fresh = Model()
        missing, unexpected = fresh.load_state_dict(loaded["model"], strict=False)
        assert not missing and not unexpected
        fresh_optimizer = configure(fresh, 1e-3)
        fresh_optimizer.load_state_dict(loaded["optimizer"])
        torch.set_rng_state(loaded["rng"])
    model.eval()
    fresh.eval()
    with torch.inference_mode():
        assert torch.allclose(model(x)[0], fresh(x)[0])

    frozen = copy.deepcopy(model).requires_grad_(False).to(dtype=torch.float64)
    assert sum(p.numel() for p in frozen.parameters() if p.requires_grad) == 0
    count = sum(p.numel() for p in model.parameters())
    names = [name for name, module in model.named_modules() if isinstance(module, (nn.Linear, nn.LayerNorm))]
    print(f"{count:,} parameters, {len(names)} layers, buffers {[b.shape for b in model.buffers()]}")

    plateau = ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1)
    for value in (1.0, 1.0, 1.0, 1.0):
        plateau.step(value)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    one_cycle = OneCycleLR(sgd, max_lr=0.1, total_steps=10)
    sgd.step()
    one_cycle.step()
    lbfgs = torch.optim.LBFGS(fresh.head.parameters(), max_iter=2)

    def closure() -> Tensor:
        lbfgs.zero_grad()
        loss = F.cross_entropy(fresh(x)[0], y)
        loss.backward()
        return loss

    lbfgs.step(closure)
    values, indices = torch.topk(torch.softmax(fresh(x)[0], dim=-1), k=2, dim=-1)
    best = values.max(dim=-1)
    assert best.values.shape == best.indices.shape == indices[:, 0].shape
    matrix = torch.zeros(3, 3, dtype=torch.int64).index_put_((y, indices[:, 0]), torch.tensor(1), accumulate=True)
    print(matrix.tolist(), np.asarray(values.detach()).mean() > 0)


if __name__ == "__main__":
    main()
