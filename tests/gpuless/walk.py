"""Calls the operators of the generated tests on the stand-in GPU, forward and backward, and prints what became of each.
Values mean nothing there: what shows is the host's side, and which kernels it asks for. Run by test_host.py."""

import json
import os
import sys

tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [tests, os.path.join(tests, "fast", "ops")]

import wisp  # noqa: E402

wisp.set_default_device("cuda")

import test_generated as table  # noqa: E402
import test_generated_operators as operators  # noqa: E402


def leaves(y):
    return [t for t in (y if isinstance(y, (tuple, list)) else [y]) if isinstance(t, wisp.Tensor)]


def walk(f, inputs):
    """Forward and backward; "fine", or what was raised."""
    try:
        given = [x.requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in inputs]
        made = [y for y in leaves(f(*given)) if y.requires_grad]
        for y in made[:1]:
            y.sum().abs().backward()
        wisp.cuda.synchronize()
        return "fine"
    except Exception as error:  # what it is is the result
        return f"{type(error).__name__}: {error}"


def others():
    """Layers, optimizers, random numbers and what else has kernels that the generated tests do not reach."""
    nn, F = wisp.nn, wisp.nn.functional
    ways = ({}, {"is_causal": True, "dropout_p": 0.1})  # these kernels are the slowest to compile
    for dtype, width, chosen in ((wisp.bfloat16, 64, ways), (wisp.float16, 128, ways[:1]), (wisp.float32, 64, ways[1:])):
        for options in chosen:
            given = [wisp.randn(2, 2, 64, width).to(dtype).requires_grad_() for _ in range(3)]
            yield "attention", lambda q, k, v, options=options: F.scaled_dot_product_attention(q, k, v, **options), given
    for dtype in (wisp.bfloat16, wisp.float32):
        few = [wisp.randn(2, 2, rows, 64, dtype=dtype) for rows in (1, 600, 600)]
        yield "attention of few queries", F.scaled_dot_product_attention, few
    yield "few rows", F.linear, [wisp.randn(2, 256, dtype=wisp.bfloat16), wisp.randn(64, 256, dtype=wisp.bfloat16)]
    sequence = wisp.randn(5, 3, 8)
    step_by_step = nn.GRU(8, 6), nn.RNN(8, 6)  # sizes that the kernels of whole sequences do not take
    for layer in (
        nn.LSTM(8, 16, 2, proj_size=4),
        nn.LSTM(8, 16),
        nn.GRU(8, 16, bidirectional=True),
        nn.RNN(8, 16),
        nn.GRU(8, 64),
        nn.GRU(8, 256),
        *step_by_step,
    ):
        yield "recurrent", lambda x, layer=layer: layer(x)[0], [sequence]
    x = wisp.randn(300, 300)

    def rows():
        parts = wisp.tensor([0, 1, 2], device="cpu"), wisp.tensor([0, 1], device="cpu"), wisp.ones(2, device="cpu")
        return wisp.sparse_csr_tensor(*parts, (2, 2), device="cpu").cuda().requires_grad_()

    def twice(x):
        (g,) = wisp.autograd.grad(F.max_pool2d(x[None, None], 2).square().sum(), x, create_graph=True)
        return g

    for dtype in (wisp.float32, wisp.float64, wisp.complex64, wisp.complex128):
        for hermitian in (False, True):

            def indefinite(a, hermitian=hermitian):
                return wisp.linalg.ldl_solve(*wisp.linalg.ldl_factor_ex(a, hermitian=hermitian)[:2], a, hermitian=hermitian)

            yield "indefinite", wisp.no_grad()(indefinite), [x[:4, :4].detach().to(dtype)]
    for f in (
        twice,
        lambda x: wisp.bernoulli(x),
        lambda x: wisp.binomial(x, x),
        lambda x: wisp.poisson(x),
        lambda x: wisp.randint(0, 9, (5,)),
        lambda x: wisp.randn(5),
        lambda x: wisp.rand(5),
        lambda x: x.clone().detach().exponential_(),
        lambda x: wisp.randperm(9),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.cumsum(0),
        lambda x: x.cumsum(1),
        lambda x: x.reshape(-1).cumsum(0),
        lambda x: x.long() @ x.long(),
        lambda x: F.cross_entropy(x, wisp.zeros(300, dtype=wisp.long), wisp.ones(300), label_smoothing=0.1),
        lambda x: F.fractional_max_pool2d(x[None], 2, output_size=9),
        lambda x: F.max_pool1d(x[None], 2, return_indices=True),
        lambda x: F.max_pool3d(x[None, None], 1, return_indices=True),
        lambda x: wisp.sparse.mm(rows(), x[:2]),
        lambda x: wisp.sparse.sampled_addmm(rows(), x[:2, :2], x[:2, :2]).values(),
        lambda x: wisp._core._padded_dense_to_jagged_forward(x[None], [wisp.tensor([0, 300])], 300),
        lambda x: wisp._core._jagged_to_padded_dense_forward(x, [wisp.tensor([0, 300])], [9]),
        lambda x: wisp.segment_reduce(x, "prod", lengths=wisp.tensor([100, 200]), unsafe=True),
        lambda x: x.mode(1)[0],
        lambda x: x.aminmax()[0] + x.aminmax(dim=1)[1],
        lambda x: wisp.zeros(40, 300).scatter_add(0, wisp.ones(300, 1, dtype=wisp.long).expand(-1, 300), x),
        lambda x: wisp.zeros(40, 299).index_add(0, wisp.ones(300, dtype=wisp.long), x[:, 1:]),
        lambda x: x.index_put((wisp.arange(300),), x.detach()),
        lambda x: x.scatter(1, wisp.ones(300, 3, dtype=wisp.long), 2.0),
        lambda x: wisp.take_along_dim(x.detach(), wisp.ones(300, 3, dtype=wisp.long), 1),
        lambda x: wisp.multinomial(x.detach(), 2, replacement=True),
        lambda x: wisp.multinomial(x.detach(), 1),
        lambda x: F.grid_sample(x[None, None], x.reshape(1, 3, -1, 2) + 0, mode="nearest"),
        lambda x: F.grid_sample(x[None, None], x.reshape(1, 3, -1, 2) + 0),
        lambda x: F.conv2d(x[None, :4, None].expand(1, 4, 9, 300), x[:4, :49].reshape(4, 1, 7, 7), groups=4, padding=3),
        lambda x: F.conv2d(x.reshape(1, 1, 300, 300).bfloat16(), x[:4, :100].reshape(4, 1, 10, 10).bfloat16(), x[0, :4].bfloat16(), 10),
        lambda x: F.conv2d(x.reshape(1, 1, 300, 300), x[:40, :9].reshape(40, 1, 3, 3), stride=2),
        lambda x: F.conv2d(x.reshape(1, 1, 300, 300).long(), x[:1, :4].reshape(1, 1, 2, 2).long()),
        lambda x: x.repeat(3, 3).flip(1) + x.repeat(3, 3).t(),
        lambda x: wisp._foreach_lerp_([x.detach(), x.detach().clone()], [x.detach(), x.detach()], 0.5)[0],
        lambda x: F.one_hot(x.detach().long(), 7),
        lambda x: wisp.bernoulli(x, 0.3),
        lambda x: x.detach().clone().bernoulli_(0.3),
        lambda x: wisp._core._sum_of_squares([x.detach()], None),
        lambda x: wisp._core._scale_tensors([x.detach()], 0.5),
        lambda x: F.layer_norm(x, (300,), x[0], x[1]),
        lambda x: F.rms_norm(x, (300,), x[0]),
        lambda x: x.sum(),
        lambda x: x.amax(),
        lambda x: F.layer_norm(x.reshape(-1), (90000,), x.reshape(-1), x.reshape(-1)),
        lambda x: x.reshape(1, -1).softmax(1),
        lambda x: x.reshape(-1, 2).log_softmax(0),
        lambda x: x.reshape(10, 9000).log_softmax(1),
        lambda x: x.reshape(2, -1).sum(1),
        lambda x: x.repeat(40, 40).sum(),
        lambda x: x.repeat(40, 40).sum(0),
        lambda x: x.repeat(400, 1).sum(0),
        lambda x: wisp.zeros(9, dtype=wisp.long).scatter_add(0, x[0].long(), x[0].long()),
        lambda x: wisp.zeros(300).scatter_reduce(0, x[0].long(), x[0].detach(), "amax"),
        lambda x: F.adaptive_avg_pool2d(x[None, None], 1),
        lambda x: wisp.bincount(x[0].long()),
        lambda x: x.histc(9),
        lambda x: x.reshape(-1).unique_consecutive(),
        lambda x: x.reshape(-1).unique_consecutive(return_counts=True)[0],
        lambda x: x.reshape(-1).topk(1000)[0],
        lambda x: x.repeat(20, 20).reshape(-1).kthvalue(7)[0],
        lambda x: x.reshape(-1).median(0)[0],
        lambda x: x.detach().clone().log_normal_(),
        lambda x: x.detach().to(wisp.float64).exponential_(),
        lambda x: x[:, :20].softmax(1),
        lambda x: x.detach().clone().cauchy_(),
        lambda x: wisp.multinomial(x, 2),
        lambda x: wisp._foreach_lerp([x, x], [x, x], 0.5)[0],
        lambda x: F.adaptive_avg_pool2d(x[None, None], 7),
        lambda x: x.reshape(4, -1).softmax(1),
        lambda x: F.ctc_loss(x.log_softmax(1)[:, None], wisp.ones(1, 20, dtype=wisp.long), [300], [20]),
    ):
        yield "of its own", f, [x.detach().clone()]
    for kind in (wisp.optim.Adam, wisp.optim.SGD):
        for dtype in (wisp.float32, wisp.bfloat16):

            def step(x, kind=kind):
                p = nn.Parameter(x.detach())
                p.grad = x.detach().clone()
                nn.utils.clip_grad_norm_([p], 1.0)
                optimizer, scaler = (
                    kind([p], lr=0.1, **({"capturable": True} if kind is wisp.optim.Adam else {})),
                    wisp.amp.GradScaler("cuda"),
                )
                scaler.scale(wisp.ones(()))
                scaler.unscale_(optimizer)
                optimizer.step()
                return p

            yield "step", step, [x[:4].detach().to(dtype)]


def fused():
    """Compiled regions: programs of rows, casts, choices and reductions, and their gradients."""
    F = wisp.nn.functional

    def softmax(x):
        e = wisp.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    functions = [
        lambda x: ((x * 2 + x[0]).tanh() - x).relu(),
        lambda x: F.gelu(x * wisp.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * x[0]) + x,
        softmax,
        lambda x: (x.float() * 2 + 1).to(wisp.bfloat16) * x,
        lambda x: wisp.where(x > 0, x.t() * 0.5, x[:, :1] + 1).clamp(-1, 1),
        lambda x: (x[:, :-1] * x[:, 1:]).sum(-1) * 2,
        lambda x: F.leaky_relu(x * wisp.tensor(2.0, device="cpu"), 0.1) + (x > 0).sum(-1, keepdim=True),
        lambda x: (x.to(wisp.complex64) * 2j).abs() + x.long() % 3,
        lambda x: ((x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + 1e-5).rsqrt() * x,
        lambda x: x + F.dropout(F.gelu(x), 0.1),
        lambda x: x * 2 + F.dropout(F.layer_norm(x, x.shape[-1:], x[0], x[1]), 0.1),
        lambda x: x * 2 + F.rms_norm(F.dropout(x, 0.1), x.shape[-1:], x[0]),
    ]
    for dtype in (wisp.float32, wisp.bfloat16):
        for f in functions:

            def forward_and_back(x, f=f):
                y = f(x)
                (g,) = wisp.autograd.grad(y.float().square().sum(-1).sum(), x)
                return y.detach(), g

            yield "fused", wisp.compile(forward_and_back), [wisp.randn(128, 128).to(dtype)]
            if wisp.finfo(dtype).bits == 16:
                yield "large product", wisp.compile(wisp.matmul), [wisp.zeros(2048, 1024, dtype=dtype), wisp.zeros(1024, 1024, dtype=dtype)]
            yield "fused odd", wisp.compile(forward_and_back), [wisp.randn(77, 77).to(dtype)]

    def rotated(x, angle):
        a, b = x.chunk(2, -1)
        return x * angle + wisp.cat([-b, a], -1) * angle

    for dtype in (wisp.float32, wisp.bfloat16):

        def token(x):  # queries and keys of other numbers of heads are one launch
            q, k = rotated(x[:8], x[8]), rotated(x[9:11], x[8])
            return k.sum(0), q.sum(0)

        yield "twins", wisp.compile(token), [wisp.randn(11, 64).to(dtype)]

    def normed_images(x, layer=wisp.nn.Conv2d(16, 16, 3, padding=1, dtype=wisp.bfloat16)):
        y = F.silu(F.group_norm(x, 4, wisp.ones(x.shape[1]).requires_grad_()))
        for _ in range(2):  # the images that a convolution gives have their channels last
            y = F.interpolate(F.group_norm(layer(y.bfloat16()), 4), scale_factor=2)
        y.sum().backward()
        return y.detach()

    for dtype in (wisp.bfloat16, wisp.float32):
        normed = wisp.compile(normed_images)
        for _ in range(2):
            yield "normed images", normed, [wisp.randn(2, 16, 8, 8).to(dtype)]
        yield "large images", lambda x: F.group_norm(x, 4), [wisp.randn(4, 16, 64, 64).to(dtype)]


def main():
    results = {}
    for number, (name, f, inputs) in enumerate([*others(), *fused()]):
        results[f"{name} {number}"] = walk(f, inputs)
    for case in operators.CASES.values() if isinstance(operators.CASES, dict) else operators.CASES:
        dtype = wisp.float64 if "weight" in case.name or case.name == "solve" else wisp.float32  # as their constants
        results[case.name] = walk(case.f, [wisp.tensor(a).to(dtype) for a in case.arrays()])
    for turn, name in enumerate(table.TABLE):
        made = [wisp.tensor(x.tolist()) for x in table.samples(name)]
        results[f"{name} float32"] = walk(table.caller(name), made)
        if turn % 5:  # the kernels for other layouts and dtypes differ by template arguments alone
            continue
        made = [x.detach().to(wisp.bfloat16).t() for x in made]
        results[f"{name} bfloat16 transposed"] = walk(table.caller(name), made)
    print(json.dumps(results))


main()
