"""A program in the style of PyTorch's FSDP2 example: meta device, fully_shard, prefetching, mixed precision, DCP. Unmodified PyTorch code."""

import argparse
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed._composable.fsdp import fully_shard as old_name
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    def reset_parameters(self):
        for module in (self.norm, self.up, self.down):
            module.reset_parameters()


class Transformer(nn.Module):
    def __init__(self, vocab=32, dim=16, layers=3):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(layers))
        self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h)).float()

    def reset_parameters(self):
        self.tok_embeddings.reset_parameters()
        self.norm.reset_parameters()
        self.output.reset_parameters()
        for layer in self.layers:
            layer.reset_parameters()


class AppState(Stateful):
    def __init__(self, model, optimizer=None):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model_state_dict, optimizer_state_dict = get_state_dict(self.model, self.optimizer)
        return {"model": model_state_dict, "optim": optimizer_state_dict}

    def load_state_dict(self, state_dict):
        set_state_dict(self.model, self.optimizer, model_state_dict=state_dict["model"], optim_state_dict=state_dict["optim"])


def set_modules_to_forward_prefetch(model, num_to_forward_prefetch):
    for i, layer in enumerate(model.layers):
        if i >= len(model.layers) - num_to_forward_prefetch:
            break
        layer.set_modules_to_forward_prefetch([model.layers[i + j] for j in range(1, num_to_forward_prefetch + 1)])


def set_modules_to_backward_prefetch(model, num_to_backward_prefetch):
    for i, layer in enumerate(model.layers):
        if i < num_to_backward_prefetch:
            continue
        layer.set_modules_to_backward_prefetch([model.layers[i - j] for j in range(1, num_to_backward_prefetch + 1)])


def inspect_model(model):
    assert isinstance(model, Transformer) and isinstance(model, FSDPModule)
    if torch.distributed.get_rank() == 0:
        print(model)
    for param in model.parameters():
        assert param.placements == (Shard(0),)
        assert param.dtype == torch.float32


@contextmanager
def only_on_rank0(rank):
    yield rank == 0


def main(args):
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{rank}") if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group(backend="nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    with torch.device("meta"):
        model = Transformer()
    fsdp_kwargs = {"mesh": mesh}
    if args.mixed_precision:
        fsdp_kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    assert old_name is fully_shard
    inspect_model(model)
    set_modules_to_forward_prefetch(model, num_to_forward_prefetch=2)
    set_modules_to_backward_prefetch(model, num_to_backward_prefetch=2)
    model.to_empty(device=device)
    model.reset_parameters()
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    if os.path.exists(os.path.join(args.folder, ".metadata")):
        dcp.load({"app": AppState(model, optim)}, checkpoint_id=args.folder)
        print("resumed")
    model.unshard(async_op=True)
    losses = []
    for _ in range(10):
        x = torch.randint(0, 32, (4, 8), device=device, generator=torch.Generator().manual_seed(rank))
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
        total_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        if isinstance(total_norm, DTensor):
            total_norm = total_norm.full_tensor()
        optim.step()
        optim.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    dcp.save({"app": AppState(model, optim)}, checkpoint_id=args.folder)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    full, full_optim = get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optim, options=options)
    if rank == 0:
        torch.save(full, args.folder + "/model_state_dict.pt")
        torch.save(full_optim, args.folder + "/optim_state_dict.pt")
    dist.barrier()
    full = torch.load(args.folder + "/model_state_dict.pt", mmap=True, weights_only=True, map_location="cpu")
    set_model_state_dict(model=model, model_state_dict=full, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    full_optim = torch.load(args.folder + "/optim_state_dict.pt", mmap=True, weights_only=True, map_location="cpu")
    set_optimizer_state_dict(
        model=model,
        optimizers=optim,
        optim_state_dict=full_optim,
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
    sharded = {}
    for name, value in model.state_dict().items():
        sharded[name] = nn.Parameter(distribute_tensor(full[name], value.device_mesh, value.placements))
    model.load_state_dict(sharded, strict=False, assign=True)
    with torch.no_grad():
        after = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).item()
    assert after < losses[0], (after, losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--mixed-precision", action="store_true", default=False)
    main(parser.parse_args())
