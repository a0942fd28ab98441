"""The loss of 50 steps of several ranks beside that of one process on the whole batch; run as ranks by test_ddp.py and test_shard.py.

curves.py [--shard] [--more]     DistributedDataParallel, or fully_shard
"""

import contextlib
import sys

import wisp
import wisp.distributed as dist
from wisp import nn
from wisp.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from wisp.nn import functional as F
from wisp.nn.parallel import DistributedDataParallel

SHARD = "--shard" in sys.argv


class GPT(nn.Module):
    """A small transformer; the embedding and the last layer share their weights."""

    def __init__(self, words=24, width=16, length=8):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)]
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.1)
        self.register_buffer("mask", wisp.ones(length, length, dtype=wisp.bool).triu(1))

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return self.head(self.norm(x)).flatten(0, 1)


def mlp():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def cnn(train=True, kink=nn.ReLU):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), kink(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), kink(), nn.Flatten(), nn.Linear(128, 4)
    )
    return model.train(train)


def numbers(step):
    generator = wisp.Generator().manual_seed(step)
    return wisp.randn(16, 8, generator=generator), wisp.randint(0, 4, (16,), generator=generator)


def images(step):
    generator = wisp.Generator().manual_seed(step)
    return wisp.randn(8, 3, 8, 8, generator=generator) + 3, wisp.randint(0, 4, (8,), generator=generator)


def words(step):
    tokens = wisp.randint(0, 24, (8, 9), generator=wisp.Generator().manual_seed(step))
    return tokens[:, :-1], tokens[:, 1:]


def distribute(model, hook=None, units=True, **options):
    """A model in DistributedDataParallel, or cut: its layers apart, then the rest."""
    if SHARD:
        if units:
            layers = model.layers if isinstance(model, GPT) else [layer for layer in model if list(layer.parameters())]
            for layer in layers:
                fully_shard(layer, **options)
        return fully_shard(model, **options)
    model = DistributedDataParallel(model, **options)
    if hook is not None:
        model.register_comm_hook(None, hook)
    return model


@contextlib.contextmanager
def no_sync(model):
    if SHARD:
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)
    else:
        with model.no_sync():
            yield


def losses(make, batch, parallel, accumulate=1, convert=False, steps=50, lr=0.05, optimizer=None, clip=None, **options):
    """Train for 50 steps; `accumulate` cuts each batch into parts whose gradients are added."""
    wisp.manual_seed(3 + (parallel and not SHARD and dist.get_rank()))  # rank 0's weights count
    model = make()
    if parallel:
        model = distribute(nn.SyncBatchNorm.convert_sync_batchnorm(model) if convert else model, **options)
    optimizer = optimizer(model.parameters()) if optimizer else wisp.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    result = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        total = 0.0
        for number, (part, target) in enumerate(zip(x.chunk(accumulate), y.chunk(accumulate))):
            if parallel:
                part, target = (t.chunk(dist.get_world_size())[dist.get_rank()] for t in (part, target))
            if parallel and number < accumulate - 1:
                with no_sync(model):
                    loss = F.cross_entropy(model(part), target.flatten()) / accumulate
                    loss.backward()
            else:
                loss = F.cross_entropy(model(part), target.flatten()) / accumulate
                loss.backward()
            total = total + loss.detach()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if parallel:
            dist.all_reduce(total, dist.ReduceOp.AVG)
        result.append(total.item())
    return result


def compare(name, make, batch, bound=1e-6, accumulate=1, **options):
    both = {name: options[name] for name in ("steps", "lr", "optimizer", "clip") if name in options}
    one = losses(make, batch, False, accumulate, **both)
    many = losses(make, batch, True, accumulate, **options)
    worst = max(abs(a - b) for a, b in zip(one, many))
    assert worst <= bound, f"{name}: the losses differ by {worst}"
    if dist.get_rank() == 0:
        print(f"{name}: {worst:.1e} over {len(one)} steps, from {one[0]:.3f} to {one[-1]:.3f}")


def more_of_ddp():
    from wisp.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks

    compare("MLP in small buckets", mlp, numbers, bucket_cap_mb=0.001)
    compare("gradient_as_bucket_view", mlp, numbers, gradient_as_bucket_view=True)
    compare("views with no_sync", mlp, numbers, accumulate=2, gradient_as_bucket_view=True, steps=10)
    compare("find_unused_parameters", mlp, numbers, find_unused_parameters=True, steps=10)
    compare("static_graph", GPT, words, static_graph=True, steps=10)
    compare("allreduce_hook", mlp, numbers, hook=hooks.allreduce_hook, steps=10)
    compare("bf16_compress_hook", mlp, numbers, hook=hooks.bf16_compress_hook, bound=3e-2, bucket_cap_mb=0.001)
    compare("fp16_compress_wrapper", mlp, numbers, hook=hooks.fp16_compress_wrapper(hooks.allreduce_hook), bound=1e-2, steps=10)


def more_of_shards():
    optim, size = wisp.optim, dist.get_world_size()
    compare("MLP in one unit", mlp, numbers, units=False)
    compare("reshard_after_forward=False", GPT, words, reshard_after_forward=False, steps=10)
    compare("clipped", mlp, numbers, clip=0.1, steps=10)
    for name, make in (
        ("Adam, fused", lambda p: optim.Adam(p, lr=1e-3, fused=True)),
        ("AdamW", lambda p: optim.AdamW(p, lr=1e-3, amsgrad=True)),
        ("RMSprop", lambda p: optim.RMSprop(p, lr=1e-3, momentum=0.5)),
        ("Adagrad", optim.Adagrad),
        ("NAdam", optim.NAdam),
        ("Adamax", optim.Adamax),
        ("Adadelta", optim.Adadelta),
        ("RAdam", optim.RAdam),
        ("ASGD", optim.ASGD),
        ("Rprop", optim.Rprop),
    ):
        compare(name, mlp, numbers, optimizer=make, steps=10, bound=1e-5 if name == "Rprop" else 1e-6)  # Rprop looks at signs alone
    low = MixedPrecisionPolicy(param_dtype=wisp.bfloat16, reduce_dtype=wisp.float32, output_dtype=wisp.float32)
    compare("MLP in bfloat16", mlp, numbers, mp_policy=low, bound=3e-2)
    compare("replicas and parts", mlp, numbers, mesh=dist.init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicate", "shard")))
    compare("replicas alone", mlp, numbers, mesh=dist.init_device_mesh("cpu", (size, 1)), steps=10)


def main():
    dist.init_process_group("mpi")
    compare("MLP", mlp, numbers)
    compare("MLP with no_sync", mlp, numbers, accumulate=2)
    compare("CNN in eval", lambda: cnn(False), images)
    # a ReLU whose input is 0 but for rounding sends the two runs different ways: float64 for it, a smooth function in float32
    compare("CNN with SyncBatchNorm", lambda: cnn(kink=nn.Tanh), images, convert=True, lr=0.01)
    compare("GPT", GPT, words)
    if "--more" in sys.argv:
        compare(
            "CNN with SyncBatchNorm and ReLU",
            lambda: cnn().double(),
            lambda step: (images(step)[0].double(), images(step)[1]),
            convert=True,
        )
        (more_of_shards if SHARD else more_of_ddp)()


if __name__ == "__main__":
    main()
