"""A program in the style of minGPT-ddp: a trainer class with snapshots, torchrun, mixed precision, a sampler. Unmodified PyTorch code."""

import os
import sys
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any, Optional

import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, random_split
from torch.utils.data.distributed import DistributedSampler


@dataclass
class GPTConfig:
    vocab_size: int = 0
    block_size: int = 16
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32
    dropout: float = 0.0


@dataclass
class OptimizerConfig:
    learning_rate: float = 3e-3
    weight_decay: float = 0.1


@dataclass
class TrainerConfig:
    max_epochs: int = 2
    batch_size: int = 16
    data_loader_workers: int = 0
    grad_norm_clip: float = 1.0
    snapshot_path: Optional[str] = None
    save_every: int = 1
    use_amp: bool = True


@dataclass
class Snapshot:
    model_state: "OrderedDict[str, torch.Tensor]"
    optimizer_state: dict[str, Any]
    finished_epoch: int


class CharDataset(Dataset):
    def __init__(self, text, block_size):
        chars = sorted(set(text))
        self.stoi = {ch: i for i, ch in enumerate(chars)}
        self.itos = dict(enumerate(chars))
        self.block_size, self.vocab_size, self.data = block_size, len(chars), text

    def __len__(self):
        return len(self.data) - self.block_size

    def __getitem__(self, idx):
        chunk = self.data[idx : idx + self.block_size + 1]
        dix = [self.stoi[s] for s in chunk]
        return torch.tensor(dix[:-1], dtype=torch.long), torch.tensor(dix[1:], dtype=torch.long)


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn = nn.MultiheadAttention(config.n_embd, config.n_head, dropout=config.dropout, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.ones(config.block_size, config.block_size, dtype=torch.bool), diagonal=1))

    def forward(self, x):
        t = x.size(1)
        return self.attn(x, x, x, attn_mask=self.mask[:t, :t], need_weights=False)[0]


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tok_emb = nn.Embedding(config.vocab_size, config.n_embd)
        self.pos_emb = nn.Parameter(torch.zeros(1, config.block_size, config.n_embd))
        self.blocks = nn.Sequential(*[Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(mean=0.0, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.data.zero_()

    def forward(self, idx, targets=None):
        x = self.tok_emb(idx) + self.pos_emb[:, : idx.size(1), :]
        logits = self.head(self.ln_f(self.blocks(x)))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


def create_optimizer(model, config):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95))


class Trainer:
    def __init__(self, config, model, optimizer, train_dataset, test_dataset=None):
        self.config = config
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.device_type = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(self.device_type, self.local_rank) if self.device_type == "cuda" else torch.device("cpu")
        self.train_loader = self._prepare_dataloader(train_dataset)
        self.test_loader = self._prepare_dataloader(test_dataset) if test_dataset else None
        self.epochs_run = 0
        self.model = model.to(self.device)
        self.optimizer = optimizer
        self.dtype = torch.bfloat16
        if self.config.use_amp:
            self.scaler = torch.amp.GradScaler(self.device_type, enabled=self.device_type == "cuda")
        if self.config.snapshot_path is None:
            self.config.snapshot_path = "snapshot.pt"
        self._load_snapshot()
        self.model = DDP(self.model, device_ids=[self.local_rank] if self.device_type == "cuda" else None)

    def _prepare_dataloader(self, dataset):
        return DataLoader(
            dataset,
            batch_size=self.config.batch_size,
            pin_memory=self.device_type == "cuda",
            shuffle=False,
            num_workers=self.config.data_loader_workers,
            sampler=DistributedSampler(dataset),
        )

    def _load_snapshot(self):
        try:
            snapshot_data = torch.load(self.config.snapshot_path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            print("Snapshot not found. Training model from scratch")
            return
        snapshot = Snapshot(**snapshot_data)
        self.model.load_state_dict(snapshot.model_state)
        self.optimizer.load_state_dict(snapshot.optimizer_state)
        self.epochs_run = snapshot.finished_epoch
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}")

    def _run_batch(self, source, targets, train=True):
        with torch.set_grad_enabled(train), torch.autocast(device_type=self.device_type, dtype=self.dtype, enabled=self.config.use_amp):
            _, loss = self.model(source, targets)
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            if self.config.use_amp:
                self.scaler.scale(loss).backward()
                self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
                self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch, loader, train=True):
        loader.sampler.set_epoch(epoch)
        self.model.train(train)
        losses = []
        for source, targets in loader:
            losses.append(self._run_batch(source.to(self.device), targets.to(self.device), train))
        kind = "Train" if train else "Eval"
        print(f"[RANK{self.global_rank}] Epoch {epoch} | {kind} Loss {losses[0]:.5f} -> {losses[-1]:.5f}")
        return losses

    def _save_snapshot(self, epoch):
        model = self.model
        raw_model = model.module if hasattr(model, "module") else model
        snapshot = Snapshot(model_state=raw_model.state_dict(), optimizer_state=self.optimizer.state_dict(), finished_epoch=epoch)
        torch.save(asdict(snapshot), self.config.snapshot_path)
        print(f"Snapshot saved at epoch {epoch}")

    def train(self):
        losses = []
        for epoch in range(self.epochs_run, self.config.max_epochs):
            epoch += 1
            losses += self._run_epoch(epoch, self.train_loader, train=True)
            if self.local_rank == 0 and epoch % self.config.save_every == 0:
                self._save_snapshot(epoch)
            if self.test_loader:
                self._run_epoch(epoch, self.test_loader, train=False)
        return losses


@record
def main(path, epochs):
    init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    text = "the quick brown fox jumps over the lazy dog. " * 12
    dataset = CharDataset(text, 16)
    train_set, test_set = random_split(dataset, [len(dataset) - 64, 64])
    model = GPT(GPTConfig(vocab_size=dataset.vocab_size))
    trainer = Trainer(
        TrainerConfig(max_epochs=epochs, snapshot_path=path), model, create_optimizer(model, OptimizerConfig()), train_set, test_set
    )
    losses = trainer.train()
    assert losses[-1] < losses[0], losses
    destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
