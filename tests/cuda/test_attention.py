"""Attention on the GPU against the formula in float64 on the CPU: results and gradients, all options, layouts and lengths."""

import math

import pytest

import wisp
import wisp.nn.functional as F
from wisp import nn

TOLERANCE = {wisp.float64: 1e-10, wisp.float32: 2e-5, wisp.bfloat16: 2.5e-2, wisp.float16: 4e-3}
DTYPES = [wisp.bfloat16, wisp.float16, wisp.float32, wisp.float64]


def reference(q, k, v, mask, causal, scale, kept):
    """The formula; `kept` multiplies the weights as dropout does."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    if causal:
        mask = wisp.ones(q.shape[2], k.shape[2], dtype=wisp.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == wisp.bool else scores + mask.double()
    blind = scores.detach().amax(-1, keepdim=True) == -math.inf
    weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return (weights if kept is None else weights * kept) @ v


def distance(got, expected):
    got, expected = got.detach().cpu().double(), expected.detach().double()
    assert got.shape == expected.shape
    assert got.isfinite().all()
    return ((got - expected).norm() / (expected.norm() + 0.01 * math.sqrt(expected.numel()))).item()  # gradients may be zero


def check(q, k, v, dtype, mask=None, causal=False, scale=None, dropout=0.0, view=None):
    """Tensors of the CPU; `view` makes the layout to test from contiguous ones."""
    q, k, v = (t.to(dtype) for t in (q, k, v))
    on_gpu = [(view(t.cuda()) if view else t.cuda()).requires_grad_() for t in (q, k, v)]
    gpu_mask = None if mask is None else mask.cuda()

    def attention():
        return F.scaled_dot_product_attention(*on_gpu, gpu_mask, dropout, causal, scale, enable_gqa=q.shape[1] != k.shape[1])

    wisp.manual_seed(5)
    y = attention()
    kept = None
    if dropout:
        wisp.manual_seed(5)
        kept = F.dropout(wisp.ones(*q.shape[:3], k.shape[2], dtype=wisp.float64), dropout)
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    expected = reference(*wide, mask, causal, scale, kept)
    wisp.manual_seed(6)
    g = wisp.randn(y.shape).to(dtype)
    grads = wisp.autograd.grad(y, on_gpu, g.cuda())
    expected_grads = wisp.autograd.grad(expected, wide, g.double())
    assert y.dtype == dtype
    assert distance(y, expected) < TOLERANCE[dtype]
    for name, a, b in zip("qkv", grads, expected_grads):
        assert distance(a, b) < 2 * TOLERANCE[dtype], f"gradient of {name}"
    wisp.manual_seed(5)
    assert all(wisp.equal(a, b) for a, b in zip(grads, wisp.autograd.grad(attention(), on_gpu, g.cuda())))


def qkv(batch=2, heads=3, queries=70, keys=70, width=64, value_width=None, key_heads=None):
    wisp.manual_seed(1)
    key_heads = key_heads or heads
    return (
        wisp.randn(batch, heads, queries, width),
        wisp.randn(batch, key_heads, keys, width),
        wisp.randn(batch, key_heads, keys, value_width or width),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [8, 64, 80, 128, 200])
def test_widths(dtype, width):
    for causal in (False, True):
        check(*qkv(width=width, queries=130, keys=130), dtype, causal=causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 300), (129, 64), (64, 129), (200, 333), (333, 200)])
def test_lengths(dtype, queries, keys):
    for causal in (False, True):
        check(*qkv(queries=queries, keys=keys), dtype, causal=causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_tiles(dtype):
    check(*qkv(1, 2, 700, 700), dtype, causal=True)
    check(*qkv(1, 2, 300, 700, 128), dtype)


def test_gradients_of_some_heads_at_a_time():
    """Those of all scores would take 320 MB, so there are two launches for them; of one batch, one."""
    q, k, v = (t.bfloat16().cuda().requires_grad_() for t in qkv(8, 80, 500, 500, 72, key_heads=40))
    g = wisp.randn(q.shape).bfloat16().cuda()

    def gradients(q, k, v, g):
        return wisp.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (q, k, v), g)

    whole = gradients(q, k, v, g)
    for i in range(8):
        part = gradients(*(t[i : i + 1].detach().requires_grad_() for t in (q, k, v)), g[i : i + 1])
        assert all(wisp.equal(a[i : i + 1], b) for a, b in zip(whole, part))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_tiles_of_two_halves_and_wide_rows(dtype, width):
    if dtype == wisp.float64 and width == 256:
        return  # by the formula
    check(*qkv(1, 2, 260, 190, width), dtype, causal=True)
    check(*qkv(1, 2, 190, 260, width), dtype)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("width", [64, 80, 128, 256])
def test_long_rows(dtype, width):
    """Which a library may take, alone and with gradients, in the layouts that layers make."""
    q, k, v = wisp.randn(2, 4, 515, width), wisp.randn(2, 2, 600, width), wisp.randn(2, 2, 600, width)
    check(q, k, v, dtype)
    check(q, k, v, dtype, causal=True)
    check(k, q[:, :2], v[:, :, :515], dtype, causal=True)  # more queries than keys
    check(q, k, v, dtype, scale=0.1, view=lambda t: t.transpose(1, 2).contiguous().transpose(1, 2))
    with wisp.no_grad():
        given = [t.to(dtype).cuda() for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*given, enable_gqa=True)
        assert wisp.equal(y, F.scaled_dot_product_attention(*given, enable_gqa=True))
    expected = reference(*(t.to(dtype).double() for t in (q, k, v)), None, False, None, None)
    assert distance(y, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [64, 80, 128, 256])
def test_gradients_of_long_rows(width, causal):
    """After a forward pass that may be a library's; ten runs have the same bits, whatever else is going on."""
    q, k, v = qkv(2, 5, 1152, 640, width)
    check(q, k, v, wisp.bfloat16, causal=causal)
    check(q, k, v, wisp.float16, causal=causal, view=lambda t: t.transpose(1, 2).contiguous().transpose(1, 2))
    given = [t.bfloat16().cuda().requires_grad_() for t in (q, k, v)]
    g = wisp.randn(q.shape).bfloat16().cuda()
    runs = []
    for _ in range(10):
        busy = wisp.randn(512, 512, device="cuda")
        (busy @ busy).sum()
        runs.append(wisp.autograd.grad(F.scaled_dot_product_attention(*given, is_causal=causal), given, g))
    assert all(wisp.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries, heads, key_heads", [(1, 2, 2), (1, 6, 2), (3, 2, 1), (40, 2, 2)])
def test_few_queries_and_many_keys(dtype, queries, heads, key_heads):
    """The keys are cut into pieces, and heads with one query each that share keys are rows of one tile."""
    args = qkv(1, heads, queries, 1500, 64, key_heads=key_heads)
    wisp.manual_seed(3)
    mask = wisp.rand(1, heads, queries, 1500) > 0.3
    mask[..., 300:900] = False  # whole pieces see nothing
    mask[:, 0, 0] = False
    check(*args, dtype)
    check(*args, dtype, mask=mask)
    check(*args, dtype, mask=wisp.randn(heads, queries, 1500).to(dtype), dropout=0.2)
    check(*qkv(1, heads, queries, 1300, 128, 72, key_heads=key_heads), dtype)


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float16], ids=str)
@pytest.mark.parametrize("keys", [3, 130, 700, 20000])
@pytest.mark.parametrize("batch, heads, key_heads", [(1, 1, 1), (3, 20, 10), (2, 24, 24), (20, 32, 8), (1, 16, 1)])
def test_blocks_share_the_keys_of_few_queries(dtype, keys, batch, heads, key_heads):
    """One, two, four or eight of them in a cluster, or pieces of very many keys."""
    if batch * heads * keys > 2**21:
        return
    for width, value_width in [(64, 64), (40, 128)]:
        args = qkv(batch, heads, 1, keys, width, value_width, key_heads=key_heads)
        check(*args, dtype, view=lambda t: t.transpose(1, 2).contiguous().transpose(1, 2))
        check(*args, dtype, mask=wisp.arange(keys)[None, None, None] < keys - keys // 3)


def test_float_is_exact_to_its_last_bits():
    """Sums of positive numbers, which the tensor cores cut off, do not drift with the length."""
    q, k, v = qkv(1, 1, 64, 6000)
    v = v.abs() + 1
    y = F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda()).cpu().double()
    expected = reference(q.double(), k.double(), v.double(), None, False, None, None)
    assert ((y - expected) / expected).abs().max().item() < 2e-6
    large = F.scaled_dot_product_attention(q.cuda(), k.cuda(), (v * 2.0**110).cuda()).cpu().double() / 2.0**110
    assert ((large - expected) / expected).abs().max().item() < 2e-6


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(90, 70), (1, 70), (2, 1, 90, 70), (1, 3, 1, 70), (2, 3, 90, 1)], ids=str)
def test_masks(dtype, shape):
    args = qkv(queries=90, keys=70)
    wisp.manual_seed(2)
    mask = wisp.rand(shape) > 0.4
    check(*args, dtype, mask=mask)
    check(*args, dtype, mask=wisp.randn(shape).to(dtype))
    check(*args, dtype, mask=wisp.where(mask, 0.0, -math.inf))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [128, 256])
def test_masks_and_dropout_of_wide_heads(dtype, width):
    """With keys in pairs that masks are read by, and numbers of dropout that warps make for each other."""
    if dtype == wisp.float64 and width == 256:
        return
    args = qkv(1, 2, 100, 192, width)
    wisp.manual_seed(2)
    mask = wisp.rand(2, 1, 100, 192)[:1] > 0.4
    check(*args, dtype, mask=mask)
    check(*args, dtype, mask=wisp.randn(100, 192).to(dtype), dropout=0.3)
    check(*args, dtype, mask=wisp.randn(192, 100).t().to(dtype))
    check(*args, dtype, dropout=0.3, causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_see_nothing_are_zero(dtype):
    q, k, v = qkv()
    mask = wisp.ones(70, 70, dtype=wisp.bool)
    mask[3] = mask[65:] = False
    check(q, k, v, dtype, mask=mask)
    assert (
        F.scaled_dot_product_attention(q.cuda().to(dtype), k.cuda().to(dtype), v.cuda().to(dtype), mask.cuda())[:, :, 3].abs().sum().item()
        == 0
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [0.5, -0.3, 0.0])
def test_scale(dtype, scale):
    check(*qkv(width=32), dtype, scale=scale)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("keys", [128, 75])
def test_dropout_drops_what_the_cpu_drops(dtype, keys):
    check(*qkv(keys=keys), dtype, dropout=0.3)
    check(*qkv(keys=keys), dtype, dropout=0.3, causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shared_heads_and_other_widths_of_values(dtype):
    check(*qkv(heads=6, key_heads=2, queries=150, keys=100), dtype, causal=True)
    check(*qkv(heads=4, key_heads=1, value_width=48), dtype)
    check(*qkv(width=20, value_width=72), dtype)


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float32, wisp.float64])
@pytest.mark.parametrize("case", ["causal", "mask", "dropout", "whole", "few", "written", "seen", "of memory"])
def test_heads_that_repeat_in_a_region(case, dtype):
    """Their copies are not made, and nothing else changes: results and gradients have eager's bits."""
    options = {"mask": {"attn_mask": wisp.ones(70, 70, dtype=wisp.bool, device="cuda").tril(3)}, "dropout": {"dropout_p": 0.3}}
    options = options.get(case, {"is_causal": case not in ("whole", "few")})
    wisp.manual_seed(0)
    q = wisp.randn(2, 8, 1 if case == "few" else 70, 64, device="cuda").to(dtype).requires_grad_()
    rows = [wisp.randn(2, 70, 2 * 64, device="cuda").to(dtype).requires_grad_() for _ in range(2)]

    def attend():
        wisp.manual_seed(1)
        few = [t.view(2, 70, 2, 64).transpose(1, 2) for t in rows]
        few = few if case == "of memory" else [t * 1.5 for t in few]
        keys, values = (t.repeat_interleave(4, 1) for t in few)
        y = F.scaled_dot_product_attention(q, keys, values, **options)
        if case == "written":
            with wisp.no_grad():
                few[0].mul_(3)
        others = (keys * 2,) if case == "seen" else ()
        grads = wisp.autograd.grad((y.float() ** 2).sum(), [q, *rows])
        return [t.detach() for t in (y, *grads, *others)]

    expected = attend()
    compiled = wisp.compile(attend)
    for _ in range(3):
        for got, right in zip(compiled(), expected):
            assert wisp.equal(got, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(dtype):
    def heads_inside(t):  # (batch, rows, heads, width), as a layer makes it
        return t.transpose(1, 2).contiguous().transpose(1, 2)

    def odd_rows(t):
        return F.pad(t, (0, 3))[..., :-3]

    def shifted(t):
        return F.pad(t, (1, 7))[..., 1:-7]

    def columns_apart(t):
        return t.transpose(-1, -2).contiguous().transpose(-1, -2)

    for view in (heads_inside, odd_rows, shifted, columns_apart):
        check(*qkv(), dtype, causal=True, view=view)
    q, k, v = (t.to(dtype).cuda() for t in qkv())
    packed = wisp.stack([q, k, v], 2).transpose(1, 3).contiguous()  # one tensor, unbound along an inner dimension
    parts = packed.transpose(1, 3).unbind(2)
    assert wisp.equal(F.scaled_dot_product_attention(*parts), F.scaled_dot_product_attention(q, k, v))
    assert wisp.equal(F.scaled_dot_product_attention(q[0], k[0], v[0]), F.scaled_dot_product_attention(q, k, v)[0])
    assert wisp.equal(F.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0]), F.scaled_dot_product_attention(q, k, v)[0, 0])


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float16])
def test_scores_of_the_formula_are_not_rounded(dtype):
    q, k, v = (9 * wisp.rand(shape).to(dtype) for shape in ((4, 3, 8), (1, 6, 8), (1, 6, 8)))  # batches that are spread: no kernel
    got = F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda())
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert got.dtype is dtype and (got.double().cpu() - expected).abs().max() < 9 * wisp.finfo(dtype).eps


def test_empty():
    q, k = wisp.zeros(2, 3, 0, 8, device="cuda"), wisp.zeros(2, 3, 5, 8, device="cuda")
    assert F.scaled_dot_product_attention(q, k, k).shape == (2, 3, 0, 8)
    assert F.scaled_dot_product_attention(k, q, q).abs().sum().item() == 0


def test_second_derivative_and_gradient_of_the_mask():
    q, k, v = (t[:1, :1, :6, :4].double().cuda().requires_grad_() for t in qkv())
    mask = wisp.randn(6, 6, dtype=wisp.float64, device="cuda", requires_grad=True)
    assert wisp.autograd.gradcheck(lambda *x: F.scaled_dot_product_attention(*x), (q, k, v, mask))
    assert wisp.autograd.gradgradcheck(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), (q, k, v))


def test_memory_is_linear():
    q, k, v = (wisp.randn(1, 4, 8192, 64, device="cuda", dtype=wisp.bfloat16, requires_grad=True) for _ in range(3))
    wisp.cuda.synchronize()
    wisp.cuda.reset_peak_memory_stats()
    before = wisp.cuda.memory_allocated()
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    assert wisp.cuda.max_memory_allocated() - before < 12 * q.numel() * 2  # the weights alone would be 128 times q


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.bfloat16], ids=str)
def test_multihead_attention(dtype):
    wisp.manual_seed(0)
    layer, x = nn.MultiheadAttention(64, 4, batch_first=True), wisp.randn(3, 50, 64)
    padding = wisp.zeros(3, 50, dtype=wisp.bool)
    padding[1, 40:] = True
    causal = nn.Transformer.generate_square_subsequent_mask(50)
    for options in ({}, {"key_padding_mask": padding}, {"attn_mask": causal, "is_causal": True}):
        expected = layer(x, x, x, need_weights=False, **options)[0]
        gpu = nn.MultiheadAttention(64, 4, batch_first=True)
        gpu.load_state_dict(layer.state_dict())
        gpu = gpu.to("cuda", dtype)
        y = x.cuda().to(dtype)
        moved = {name: t.cuda() if isinstance(t, wisp.Tensor) else t for name, t in options.items()}
        assert distance(gpu(y, y, y, need_weights=False, **moved)[0], expected) < (1e-5 if dtype == wisp.float32 else 2e-2)
