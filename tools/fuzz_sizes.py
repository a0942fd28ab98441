"""The kind `sizes` of tools/fuzz.py: families of operators at sizes from one element to a million, beside PyTorch in float64.

Kernels choose their way by size: what is cut among threads, packed, sorted by digits, or done in pieces that depend on a length. Each
case is one family (`FAMILIES`) at random lengths, next to powers of two as often as not, with operands that are transposed or cut out, on a
random number of threads, forward or with gradients. Wrong is what lies further from float64's result than float32 explains, and than
PyTorch's own float32 result does.
"""

import math

import numpy as np

import wisp


def length(r, most):
    """From 1 to `most`, small ones as often as large ones, half of them a power of two or next to one."""
    n = int(2 ** r.uniform(0, math.log2(most)))
    if r.random() < 0.5:
        n = 2 ** round(math.log2(n)) + r.choice([-1, 0, 0, 1])
    return max(1, min(n, most))


def shape(r, dims, most):
    sizes = []
    for i in range(dims):
        sizes.append(length(r, max(1, most if i == dims - 1 else int(most ** r.uniform(0, 1)))))
        most = max(1, most // sizes[-1])
    r.shuffle(sizes)
    return tuple(sizes)


class Given:
    """The operands of one case, as arrays of float64 with how each is seen by the operator."""

    def __init__(self, r):
        self.r, self.random, self.arrays, self.views = r, np.random.default_rng(r.randrange(2**32)), [], []

    def add(self, array, plain=False):
        way = 0 if plain or array.ndim == 0 or array.dtype == bool else self.r.choice([0, 0, 0, 1, 2, 3])
        if way == 1:  # transposed in memory
            array, view = np.ascontiguousarray(np.moveaxis(array, -1, 0)), lambda t: t.movedim(0, -1)
        elif way == 2:  # every second element of rows twice as long
            array, view = np.repeat(array, 2, -1), lambda t: t[..., ::2]
        elif way == 3:  # begins and ends inside
            array, view = np.concatenate([array[:1], array, array[:1]]), lambda t: t[1:-1]
        else:
            view = lambda t: t
        self.arrays.append(array)
        self.views.append(view)

    def floats(self, *sizes, plain=False):
        self.add(self.random.standard_normal(sizes, dtype=np.float32).astype(np.float64), plain)  # float32 can say them

    def distinct(self, *sizes):
        self.add(self.random.permutation(math.prod(sizes)).reshape(sizes).astype(np.float64))

    def near_one(self, *sizes):
        self.add((1 + self.random.standard_normal(sizes, dtype=np.float32) / 1024).astype(np.float64))

    def positive(self, *sizes):
        self.add(self.random.random(sizes) + 0.01)

    def below(self, high, *sizes):
        self.add(self.random.integers(0, high, sizes), plain=True)

    def tensors(self, lib, dtype, device):
        """-> the operands, and the leaves that they are views of"""
        leaves, made = [], []
        for array, view in zip(self.arrays, self.views):
            leaf = lib.from_numpy(array.copy()).to(device)
            if array.dtype == np.float64:
                leaf = leaf.to(dtype).requires_grad_()
                leaves.append(leaf)
            made.append(view(leaf))
        return made, leaves


FAMILIES = {}


def family(function):
    """Registers f(given, r), which adds operands and returns (lib, operands) -> results."""
    FAMILIES[function.__name__] = function
    return function


MOST = 1 << 20  # elements of an operand


@family
def reductions(given, r):
    sizes = shape(r, r.randrange(1, 5), MOST)
    name = r.choice("sum mean prod amax amin std var logsumexp norm median nansum argmax argmin count_nonzero aminmax".split())
    (given.near_one if name == "prod" else given.floats)(*sizes)
    dims = sorted(r.sample(range(len(sizes)), r.randrange(1, len(sizes) + 1)))
    if name in ("median", "argmax", "argmin", "prod", "aminmax"):
        dims = dims[0]

    def run(lib, x):
        if name in ("std", "var"):
            return getattr(x, name)(dims, unbiased=False)
        if name == "norm":
            return lib.linalg.vector_norm(x, order, dims)
        if name == "aminmax":
            return tuple(x.aminmax(dim=dims))
        found = getattr(x, name)(dims)
        return found.values if name == "median" else found

    order = r.choice([1, 2, 3, math.inf])
    return run


@family
def running(given, r):
    sizes = shape(r, r.randrange(1, 4), MOST)
    name, dim = r.choice("cumsum cumprod logcumsumexp cummax cummin softmax log_softmax".split()), r.randrange(len(sizes))
    (given.near_one if name == "cumprod" else given.floats)(*sizes)
    return lambda lib, x: getattr(x, name)(dim)[0] if name in ("cummax", "cummin") else getattr(x, name)(dim)


@family
def products(given, r):
    work = 1 << 25
    m, k, n = (length(r, 1 << r.choice([2, 6, 10, 18])) for _ in range(3))
    while m * k * n > work or max(m * k, k * n, m * n) > MOST:
        m, k, n = max(1, m // 2), k if k > m and k * n <= MOST else max(1, k // 2), max(1, n // 2)
    form = r.choice("mm linear mv dot bmm addmm outer einsum".split())
    if form == "dot":
        k = length(r, MOST)
        given.floats(k), given.floats(k)
        return lambda lib, a, b: lib.dot(a, b)
    if form == "mv":
        given.floats(m, k), given.floats(k)
        return lambda lib, a, b: a @ b
    if form == "outer":
        given.floats(m), given.floats(n)
        return lambda lib, a, b: lib.outer(a, b)
    if form in ("bmm", "einsum"):
        b = length(r, max(1, min(work // (m * k * n), MOST // max(m * k, k * n, m * n))))
        given.floats(b, m, k), given.floats(b, k, n)
        return (lambda lib, a, c: lib.bmm(a, c)) if form == "bmm" else lambda lib, a, c: lib.einsum("bmk,bkn->mbn", a, c)
    if form == "linear":
        given.floats(m, k), given.floats(n, k), given.floats(n)
        return lambda lib, x, w, b: lib.nn.functional.linear(x, w, b)
    given.floats(m, k), given.floats(k, n)
    if form == "addmm":
        given.floats(n)
        return lambda lib, a, b, c: lib.addmm(c, a, b, beta=0.5, alpha=2)
    return lambda lib, a, b: a @ b


@family
def convolutions(given, r):
    dims, work = r.choice([1, 2, 2, 2, 3]), 1 << 24
    groups = r.choice([1, 1, 1, 2, 4])
    come, go = groups * length(r, 64 // groups), groups * length(r, 64 // groups)
    if r.random() < 0.2:
        groups = come = go  # for each channel
    kernel, stride, dilation = (tuple(r.choice(of) for _ in range(dims)) for of in ([1, 2, 3, 3, 5, 7], [1, 1, 2, 3], [1, 1, 2]))
    padding = tuple(r.randrange(0, 4) for _ in range(dims))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    left = max(1, work // (come * go // groups * math.prod(kernel)))
    sizes = [n + length(r, max(1, int(left ** (1 / dims)))) for n in least]
    batch = length(r, max(1, min(16, left // math.prod(sizes))))
    turned = r.random() < 0.25
    given.floats(batch, come, *sizes)
    given.floats(*((come, go // groups) if turned else (go, come // groups)), *kernel)
    given.floats(go)
    name = f"conv_transpose{dims}d" if turned else f"conv{dims}d"
    padding = tuple(min(p, (n - 1) // 2) for p, n in zip(padding, least)) if turned else padding
    given_ = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return lambda lib, x, w, b: getattr(lib.nn.functional, name)(x, w, b, **given_)


@family
def pools(given, r):
    dims = r.choice([1, 2, 2, 3])
    sizes = [7 + length(r, int(30000 ** (1 / dims))) for _ in range(dims)]
    given.floats(length(r, 8), length(r, 16), *sizes)
    name = r.choice(["max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool"])
    if name == "lp_pool":
        dims_, kernel = dims, r.randrange(2, 5)
        return lambda lib, x: getattr(lib.nn.functional, f"lp_pool{dims_}d")(x.abs() + 0.1, 2.0, kernel)
    if name.startswith("adaptive"):
        out = [r.randrange(1, 8) for _ in range(dims)]
        return lambda lib, x: getattr(lib.nn.functional, f"{name}{dims}d")(x, out)
    kernel, stride = [r.randrange(1, 5) for _ in range(dims)], [r.randrange(1, 4) for _ in range(dims)]
    padding, ceil = [k // 2 for k in kernel], r.random() < 0.3
    return lambda lib, x: getattr(lib.nn.functional, f"{name}{dims}d")(x, kernel, stride, padding, ceil_mode=ceil)


@family
def norms(given, r):
    name = r.choice("layer_norm rms_norm group_norm batch_norm instance_norm normalize".split())
    if name in ("layer_norm", "rms_norm", "normalize"):
        rows, width = shape(r, 2, MOST)
        width = max(width, 2)
        given.floats(rows, width), given.floats(width), given.floats(width)
        if name == "normalize":
            return lambda lib, x, w, b: lib.nn.functional.normalize(x, dim=-1)
        if name == "rms_norm":
            return lambda lib, x, w, b: lib.nn.functional.rms_norm(x, (width,), w)
        return lambda lib, x, w, b: lib.nn.functional.layer_norm(x, (width,), w, b)
    groups = length(r, 8)
    channels = groups * length(r, 16)
    sizes = shape(r, r.randrange(1, 4), max(2, MOST // (8 * channels)))
    given.floats(length(r, 8) + 1, channels, *sizes[:-1], sizes[-1] + 1), given.floats(channels), given.floats(channels)
    if name == "group_norm":
        return lambda lib, x, w, b: lib.nn.functional.group_norm(x, groups, w, b)
    if name == "batch_norm":
        return lambda lib, x, w, b: lib.nn.functional.batch_norm(x, None, None, w, b, True)
    return lambda lib, x, w, b: lib.nn.functional.instance_norm(x, weight=w, bias=b)


@family
def sorting(given, r):
    sizes = shape(r, r.randrange(1, 3), MOST)
    dim, down = r.randrange(len(sizes)), r.random() < 0.5
    n = sizes[dim]
    given.distinct(*sizes)
    k, name = length(r, n), r.choice("sort topk kthvalue quantile argsort".split())
    if name == "topk":
        return lambda lib, x: x.topk(k, dim, down)[0]
    if name == "kthvalue":
        return lambda lib, x: x.kthvalue(k, dim)[0]
    if name == "quantile":
        return lambda lib, x: x.quantile(0.3, dim=dim)
    return lambda lib, x: x.sort(dim, down)[0] if name == "sort" else x.argsort(dim=dim, descending=down, stable=True)


@family
def counting(given, r):
    n, high = length(r, MOST), length(r, MOST)
    given.below(high, n), given.floats(n)
    name = r.choice("unique bincount histc searchsorted nonzero mask masked_scatter isin weighted".split())
    return {
        "unique": lambda lib, i, x: lib.unique(i, return_inverse=True, return_counts=True),
        "bincount": lambda lib, i, x: lib.bincount(i, minlength=5),
        "weighted": lambda lib, i, x: lib.bincount(i, x.detach()),
        "histc": lambda lib, i, x: lib.histc(i.to(x.dtype), 17),
        "searchsorted": lambda lib, i, x: lib.searchsorted(i.sort()[0], i.flip(0)),
        "nonzero": lambda lib, i, x: (i > high // 2).nonzero(),
        "mask": lambda lib, i, x: x[i > high // 2],
        "masked_scatter": lambda lib, i, x: x.masked_scatter(i > high // 2, x.flip(0)),
        "isin": lambda lib, i, x: lib.isin(i, i[: n // 3]),
    }[name]


@family
def indexing(given, r):
    rows, width = shape(r, 2, MOST)
    many = length(r, max(1, MOST // width))
    given.floats(rows, width), given.below(rows, many), given.floats(many, width), given.below(width, many), given.below(width, rows, 3)
    name = r.choice("rows columns pairs gather scatter_add index_add put amax embedding bag take select_copy".split())
    return {
        "rows": lambda lib, x, i, y, j, g: x[i],
        "columns": lambda lib, x, i, y, j, g: x[:, j[: 1 + MOST // rows]],
        "pairs": lambda lib, x, i, y, j, g: x[i, j],
        "gather": lambda lib, x, i, y, j, g: x.gather(1, g),
        "scatter_add": lambda lib, x, i, y, j, g: x.scatter_add(0, i[:, None].expand(-1, width), y),
        "index_add": lambda lib, x, i, y, j, g: x.index_add(0, i, y, alpha=2),
        "put": lambda lib, x, i, y, j, g: x.index_put((i, j), y[:, 0], accumulate=True),
        "amax": lambda lib, x, i, y, j, g: x.scatter_reduce(0, i[:, None].expand(-1, width), y, "amax"),
        "embedding": lambda lib, x, i, y, j, g: lib.nn.functional.embedding(i, x),
        "bag": lambda lib, x, i, y, j, g: lib.nn.functional.embedding_bag(i, x, lib.arange(0, many, 3), mode="mean"),
        "take": lambda lib, x, i, y, j, g: x.take(i),
        "select_copy": lambda lib, x, i, y, j, g: x.index_select(0, i).index_copy(0, lib.arange(many), y),
    }[name]


@family
def moving(given, r):
    sizes = shape(r, r.randrange(2, 5), MOST // 4)
    dim = r.randrange(len(sizes))
    given.floats(*sizes), given.floats(*sizes)
    order, shift = r.sample(range(len(sizes)), len(sizes)), r.randrange(-50, 50)
    pads = [r.randrange(0, 3) for _ in range(4)]
    choice = r.choice("cat stack roll flip tril permute repeat interleave pad diff add where transposed".split())
    return {
        "cat": lambda lib, x, y: lib.cat([x, y, x], dim),
        "stack": lambda lib, x, y: lib.stack([x, y], dim),
        "roll": lambda lib, x, y: x.roll(shift, dim),
        "flip": lambda lib, x, y: x.flip(dim),
        "tril": lambda lib, x, y: x.tril(shift),
        "permute": lambda lib, x, y: x.permute(order).contiguous(),
        "repeat": lambda lib, x, y: x.repeat(*[2 if d == dim else 1 for d in range(len(sizes))]),
        "interleave": lambda lib, x, y: x.repeat_interleave(2, dim),
        "pad": lambda lib, x, y: lib.nn.functional.pad(x, pads, value=0.5),
        "diff": lambda lib, x, y: x.diff(dim=dim),
        "add": lambda lib, x, y: (x * y.narrow(dim, 0, 1) + 1).tanh() - y,
        "where": lambda lib, x, y: lib.where(x > y, x, y * 2),
        "transposed": lambda lib, x, y: x.permute(order) * y.permute(order).flip(0),
    }[choice]


@family
def pictures(given, r):
    height, width = (2 + length(r, 200) for _ in range(2))
    channels = length(r, max(1, min(32, MOST // (height * width * 4))))
    given.floats(length(r, 4), channels, height, width)
    given.add(given.random.random((1, length(r, 100), length(r, 100), 2)) * 2.2 - 1.1)
    name = r.choice("nearest bilinear bicubic area smaller unfold reflect grid shuffle".split())
    to, half, mode = (length(r, 300), length(r, 300)), (1 + height // 2, 1 + width // 2), name
    return {
        **dict.fromkeys(("nearest", "bilinear", "bicubic", "area"), lambda lib, x, g: lib.nn.functional.interpolate(x, size=to, mode=mode)),
        "smaller": lambda lib, x, g: lib.nn.functional.interpolate(x, size=half, mode="bilinear", antialias=True),
        "unfold": lambda lib, x, g: lib.nn.functional.unfold(x, 2, stride=2),
        "reflect": lambda lib, x, g: lib.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
        "grid": lambda lib, x, g: lib.nn.functional.grid_sample(x[:1], g, align_corners=False),
        "shuffle": lambda lib, x, g: lib.nn.functional.pixel_unshuffle(x[:, :, : height // 2 * 2, : width // 2 * 2], 2),
    }[name]


@family
def attention(given, r):
    batch, heads, width = length(r, 3), length(r, 4), length(r, 150)
    queries, keys = (length(r, 700) for _ in range(2))
    given.floats(batch, heads, queries, width), given.floats(batch, heads, keys, width), given.floats(batch, heads, keys, width)
    given.floats(queries, keys)
    kind = r.choice(["full", "causal", "mask", "bools"])

    def run(lib, q, k, v, m):
        mask = {"mask": m, "bools": (m > 0) | (lib.arange(keys) == 0)}.get(kind)
        return lib.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal")

    return run


@family
def losses(given, r):
    rows, classes = shape(r, 2, MOST)
    classes = max(classes, 2)
    given.floats(rows, classes), given.below(classes, rows), given.positive(rows, classes)
    smoothing, reduction = r.choice([0.0, 0.1]), r.choice(["mean", "sum", "none"])
    name = r.choice("cross nll mse l1 huber kl bce".split())
    F = lambda lib: lib.nn.functional
    return {
        "cross": lambda lib, x, i, y: F(lib).cross_entropy(x, i, label_smoothing=smoothing, reduction=reduction),
        "nll": lambda lib, x, i, y: F(lib).nll_loss(x, i, reduction=reduction),
        "mse": lambda lib, x, i, y: F(lib).mse_loss(x, y, reduction=reduction),
        "l1": lambda lib, x, i, y: F(lib).smooth_l1_loss(x, y, reduction=reduction),
        "huber": lambda lib, x, i, y: F(lib).huber_loss(x, y, reduction=reduction),
        "kl": lambda lib, x, i, y: F(lib).kl_div(x, y, reduction=reduction),
        "bce": lambda lib, x, i, y: F(lib).binary_cross_entropy_with_logits(x, y.detach().clamp(0, 1), reduction=reduction),
    }[name]


@family
def recurrent(given, r):
    kind, hidden, come = r.choice(["RNN", "LSTM", "GRU"]), length(r, 140), length(r, 60)
    steps, batch, both = length(r, 40), length(r, 40), r.random() < 0.3
    gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[kind]
    given.floats(steps, batch, come)
    for _ in range(1 + both):
        for sizes in ((gates * hidden, come), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)):
            given.add(given.random.standard_normal(sizes) / 8, plain=True)

    def run(lib, x, *weights):
        layer = getattr(lib.nn, kind)(come, hidden, bidirectional=both)
        return lib.func.functional_call(layer, dict(zip(dict(layer.named_parameters()), weights)), (x,))[0]

    return run


@family
def transforms(given, r):
    rows, n = shape(r, 2, MOST // 4)
    given.floats(rows, n)
    name, dim = r.choice(["fft", "rfft", "ifft", "fft2", "hfft"]), r.choice([0, 1])

    def run(lib, x):
        found = lib.fft.fft2(x) if name == "fft2" else getattr(lib.fft, name)(x, dim=dim)
        return lib.view_as_real(found) if found.is_complex() else found

    return run


@family
def matrices(given, r):
    n, batch, columns = length(r, 200), length(r, 3), length(r, 50)
    given.floats(batch, n, n), given.floats(batch, n, columns)
    name = r.choice("solve inv cholesky det triangular svdvals eigvalsh lstsq".split())

    def run(lib, a, b):
        L, spd = lib.linalg, a @ a.mT / n + 2 * lib.eye(n, dtype=a.dtype)
        apart = lib.diag(lib.arange(n, dtype=a.dtype))  # the gradients of values that lie close together have few digits
        return {
            "solve": lambda: L.solve(spd, b),
            "inv": lambda: L.inv(spd),
            "cholesky": lambda: L.cholesky(spd),
            "det": lambda: L.slogdet(spd)[1],
            "triangular": lambda: L.solve_triangular(spd, b, upper=True),
            "svdvals": lambda: L.svdvals(a + 20 * apart),
            "eigvalsh": lambda: L.eigvalsh(spd + 20 * apart),
            "lstsq": lambda: L.lstsq(spd, b)[0],
        }[name]()

    return run


def told(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def results(given, run, lib, dtype, backward, pushed, device="cpu"):
    """-> the results and, with `backward`, the gradients of the leaves"""
    with lib.device(device):  # of what a family makes itself
        operands, leaves = given.tensors(lib, dtype, device)
        out = told(run(lib, *operands))
        ways = [t for t in out if t.requires_grad and t.numel()] if backward else []
        gradients = []
        if ways:
            pushes = [lib.from_numpy(pushed(tuple(t.shape), i)).to(device, t.dtype) for i, t in enumerate(ways)]
            gradients = lib.autograd.grad(ways, leaves, pushes, allow_unused=True)
        return [t.detach().cpu() for t in (*out, *(lib.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves)))]


def difference(mine, theirs, exact):
    """What is wrong with a result, or None: it may be as far from float64's as float32 explains, or four times as far as PyTorch's is.
    A product of n numbers near 1 is off by n times some 1e-9 in float32."""
    if tuple(mine.shape) != tuple(exact.shape):
        return f"the shape is {tuple(mine.shape)} for {tuple(exact.shape)}"
    a, b, c = (t.numpy() for t in (mine, theirs, exact))
    if c.dtype.kind not in "fc":
        at = np.flatnonzero(a != c)
        return f"element {at[0]} of {c.size} is {a.flat[at[0]]} for {c.flat[at[0]]}, {len(at)} differ" if len(at) else None
    if c.size == 0:
        return None
    a, b = a.astype(c.dtype), b.astype(c.dtype)
    scale, rms = np.abs(c).max(), math.sqrt(float(np.mean(np.abs(c) ** 2)))
    off, theirs_off = np.abs(a - c), np.abs(b - c)
    bound = 1e-3 * np.abs(c) + 2e-5 * max(rms, 1e-3 * scale) + 4 * theirs_off.max() + 3e-5
    at = np.flatnonzero(~(off <= bound) & ~(np.isnan(a) & np.isnan(c)) & ~(a == c))
    return f"element {at[0]} of {c.size} is {a.flat[at[0]]} for {c.flat[at[0]]}, {len(at)} are off" if len(at) else None


class Sizes:
    """One family at random sizes."""

    def __init__(self, planted, random, device):
        import torch

        torch.set_num_threads(1)
        wisp.backends.cudnn.allow_tf32 = wisp.backends.cuda.matmul.allow_tf32 = False
        self.random, self.names, self.device = random, ["reductions"] if planted else list(FAMILIES), device
        if planted:
            whole = wisp.Tensor.sum
            wisp.Tensor.sum = lambda x, *dims: whole(x, *dims) * (1.01 if x.numel() > 1 << 17 else 1)

    def run(self, number, keep, say):
        import torch

        r = self.random(number)
        name, given = r.choice(self.names), Given(r)
        run = FAMILIES[name](given, r)
        threads, backward = r.choice([1, 2, 3, 4, 7]), r.random() < 0.5
        say("pieces", 0)
        say("text", f"{name} of {[a.shape for a in given.arrays]}, {threads} threads{', with gradients' if backward else ''}")

        def pushed(sizes, i):
            return np.random.default_rng(number + i).standard_normal(sizes)

        wisp.set_num_threads(threads)
        try:
            exact = results(given, run, torch, torch.float64, backward, pushed)
            theirs = results(given, run, torch, torch.float32, backward, pushed)
        except (RuntimeError, IndexError, ValueError):
            return None  # sizes that do not go together
        try:
            mine = results(given, run, wisp, wisp.float32, backward, pushed, self.device)
        except Exception as error:
            return f"{name}: refused by Wisp alone: {error!r}"[:500]
        for i, parts in enumerate(zip(mine, theirs, exact)):
            if (wrong := difference(*parts)) is not None:
                return f"{name}, result {i}: {wrong}"
        return None
