"""The programs of compile.py for the GPU, written once for both packages: make(lib) gives (step, what is compiled).

`step(compiled)` runs one step, with what the package's `compile` made of the second value: the model for PyTorch, whose compiler
stops at `backward`, the whole step for Wisp.
"""


def chain(lib):
    x, y = lib.randn(1 << 26, device="cuda"), lib.randn(1 << 26, device="cuda")
    return (lambda f: f()), lambda: (lib.tanh(x * 2 + y) - x) * y


def norm(lib):
    """RMSNorm by hand in float, of bf16, with backward."""
    x = lib.randn(8192, 2048, device="cuda", dtype=lib.bfloat16).requires_grad_()
    w = lib.ones(2048, device="cuda", dtype=lib.bfloat16).requires_grad_()
    g = lib.randn(8192, 2048, device="cuda", dtype=lib.bfloat16)

    def forward():
        h = x.float()
        return (h * lib.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w

    def step(f):
        x.grad = w.grad = None
        f().backward(g)

    return step, forward


# ---- language models


def rotated(lib, x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + lib.cat([-b, a], -1) * sin


def angles(lib, length, width):
    at = lib.arange(length, device="cuda").float()[:, None] * 1e4 ** (-lib.arange(0, width, 2, device="cuda").float() / width)
    at = lib.cat([at, at], -1)
    return at.cos().bfloat16(), at.sin().bfloat16()


def llama_parts(lib):
    nn, F = lib.nn, lib.nn.functional

    class RMSNorm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = nn.Parameter(lib.ones(width))

        def forward(self, x):
            h = x.float()
            return (h * lib.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight

    class Block(nn.Module):
        def __init__(self, width, heads, shared, hidden):
            super().__init__()
            self.heads, self.shared, self.size = heads, shared, width // heads
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, shared * self.size, bias=False) for _ in range(2))
            self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
            self.down = nn.Linear(hidden, width, bias=False)
            self.before_attention, self.before_mlp = RMSNorm(width), RMSNorm(width)

        def forward(self, x, cos, sin, cache=None):
            b, t, width = x.shape
            y = self.before_attention(x)
            q = rotated(lib, self.q(y).view(b, t, self.heads, self.size).transpose(1, 2), cos, sin)
            k = rotated(lib, self.k(y).view(b, t, self.shared, self.size).transpose(1, 2), cos, sin)
            v = self.v(y).view(b, t, self.shared, self.size).transpose(1, 2)
            if cache is None:
                k, v = (a.repeat_interleave(self.heads // self.shared, 1) for a in (k, v))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:  # memory of a fixed length, of which a mask shows what is filled
                keys, values, position, mask = cache
                keys.index_copy_(2, position, k)
                values.index_copy_(2, position, v)
                y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, width))
            y = self.before_mlp(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    return RMSNorm, Block


def trained(lib, model, x, y, loss_of):
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if lib.__name__ == "torch":

        def step(compiled):
            optimizer.zero_grad()
            loss = loss_of(compiled(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step, model

    def whole():
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return (lambda compiled: compiled()), whole


def llama(lib, layers=24, width=1024, batch=4, length=2048, words=32000):
    """350 M parameters: RMSNorm by hand in float, RoPE, keys shared by repeat_interleave, SwiGLU; bf16, fused AdamW."""
    nn, F = lib.nn, lib.nn.functional
    RMSNorm, Block = llama_parts(lib)
    cos, sin = angles(lib, length, width // 16)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
            self.blocks, self.norm = nn.ModuleList([Block(width, 16, 4, 2816) for _ in range(layers)]), RMSNorm(width)

        def forward(self, x):
            x = self.words(x)
            for block in self.blocks:
                x = block(x, cos, sin)
            return self.head(self.norm(x))

    model = Llama().to("cuda", lib.bfloat16)
    x, y = (lib.randint(0, words, (batch, length), device="cuda") for _ in range(2))
    return trained(lib, model, x, y, lambda out, y: F.cross_entropy(out.view(-1, words).float(), y.view(-1)))


def gpt2(lib, layers=12, width=768, batch=8, length=1024, words=50304):
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (a.view(b, t, 12, width // 12).transpose(1, 2) for a in self.qkv(self.norm1(x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(layers)]), nn.LayerNorm(width)

        def forward(self, x):
            x = self.blocks(self.words(x) + self.places.weight)
            return F.linear(self.norm(x), self.words.weight)

    model = GPT().to("cuda", lib.bfloat16)
    x, y = (lib.randint(0, words, (batch, length), device="cuda") for _ in range(2))
    return trained(lib, model, x, y, lambda out, y: F.cross_entropy(out.view(-1, words), y.view(-1)))


def decode(lib, batch=1, layers=16, width=2048, length=1024, words=32000):
    """A token of a 1 B model, with memory for keys and values of a fixed length."""
    nn, F = lib.nn, lib.nn.functional
    RMSNorm, Block = llama_parts(lib)
    with lib.no_grad():
        blocks = nn.ModuleList([Block(width, 32, 8, 8192) for _ in range(layers)]).to("cuda", lib.bfloat16)
        table, norm = nn.Embedding(words, width).to("cuda", lib.bfloat16), RMSNorm(width).to("cuda", lib.bfloat16)
    cos, sin = angles(lib, length, width // 32)
    kept = [[lib.zeros(batch, 8, length, width // 32, device="cuda", dtype=lib.bfloat16) for _ in range(2)] for _ in range(layers)]
    places = lib.arange(length, device="cuda")
    token, position = lib.zeros(batch, 1, device="cuda", dtype=lib.int64), lib.zeros(1, device="cuda", dtype=lib.int64)

    def next_token(token, position):
        x = table(token)
        mask, here = (places <= position)[None, None, None], (cos[position], sin[position])
        for block, (keys, values) in zip(blocks, kept):
            x = block(x, *here, (keys, values, position, mask))
        return F.linear(norm(x)[:, -1], table.weight).argmax(-1, keepdim=True)

    def step(f):
        with lib.no_grad():
            token.copy_(f(token, position))
            position.add_(1).remainder_(length)

    return step, next_token


# ---- others


def vit(lib, batch=64):
    """ViT-B/16 by nn.TransformerEncoder with dropout, in autocast."""
    nn, F = lib.nn, lib.nn.functional

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 768, 16, 16)
            self.places, self.first = nn.Parameter(lib.zeros(1, 197, 768)), nn.Parameter(lib.zeros(1, 1, 768))
            layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.1, "gelu", batch_first=True, norm_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(768, 1000)

        def forward(self, x):
            with lib.autocast("cuda", dtype=lib.bfloat16):
                x = self.patches(x).flatten(2).transpose(1, 2)
                x = lib.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
                return self.head(self.encoder(x)[:, 0])

    model = ViT().cuda()
    x, y = lib.randn(batch, 3, 224, 224, device="cuda"), lib.randint(0, 1000, (batch,), device="cuda")
    return trained(lib, model, x, y, lambda out, y: F.cross_entropy(out.float(), y))


def resnet(lib, batch=64):
    """ResNet-50 in bf16, channels last."""
    from cuda import resnet50

    F = lib.nn.functional
    model = resnet50(lib).to("cuda", lib.bfloat16).to(memory_format=lib.channels_last)
    x = lib.randn(batch, 3, 224, 224, device="cuda", dtype=lib.bfloat16).to(memory_format=lib.channels_last)
    return trained(lib, model, x, lib.randint(0, 1000, (batch,), device="cuda"), lambda out, y: F.cross_entropy(out, y))


def unet(lib, batch=32, size=64, width=128):
    """A diffusion UNet: residual blocks with group norm and the time of the noise, attention at a quarter of the size; autocast."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, come, go, attends):
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(32, come), nn.GroupNorm(32, go)
            self.conv1, self.conv2 = nn.Conv2d(come, go, 3, padding=1), nn.Conv2d(go, go, 3, padding=1)
            self.time, self.side = nn.Linear(4 * width, go), nn.Conv2d(come, go, 1) if come != go else nn.Identity()
            if attends:
                self.norm3, self.qkv, self.out = nn.GroupNorm(32, go), nn.Conv2d(go, 3 * go, 1), nn.Conv2d(go, go, 1)
            self.attends = attends

        def forward(self, x, t):
            h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
            x = self.side(x) + self.conv2(F.silu(self.norm2(h)))
            if self.attends:
                b, c, h, w = x.shape
                q, k, v = self.qkv(self.norm3(x)).view(b, 3, c // 64, 64, h * w).transpose(-1, -2).unbind(1)
                y = F.scaled_dot_product_attention(q, k, v)
                x = x + self.out(y.transpose(-1, -2).reshape(b, c, h, w))
            return x

    class UNet(nn.Module):
        def __init__(self, widths=(width, 2 * width, 2 * width, 4 * width)):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
            self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
            self.down, self.up, come, kept = nn.ModuleList(), nn.ModuleList(), width, [width]
            for level, go in enumerate(widths):
                for _ in range(2):
                    self.down.append(Block(come, go, level == 2))
                    kept.append(come := go)
                if level < 3:
                    self.down.append(nn.Conv2d(come, come, 3, 2, 1))
                    kept.append(come)
            self.middle = Block(come, come, True)
            for level, go in reversed(list(enumerate(widths))):
                for _ in range(3):
                    self.up.append(Block(come + kept.pop(), go, level == 2))
                    come = go
                if level > 0:
                    self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(come, come, 3, padding=1)))
            self.norm = nn.GroupNorm(32, come)

        def forward(self, given):
            x, t = given
            with lib.autocast("cuda", dtype=lib.bfloat16):
                at = t[:, None] * lib.exp(lib.arange(width // 2, device="cuda") * (-9.2 / (width // 2)))
                t = self.time(lib.cat([at.sin(), at.cos()], -1))
                x = self.first(x)
                kept = [x]
                for part in self.down:
                    x = part(x, t) if isinstance(part, Block) else part(x)
                    kept.append(x)
                x = self.middle(x, t)
                for part in self.up:
                    x = part(lib.cat([x, kept.pop()], 1), t) if isinstance(part, Block) else part(x)
                return self.last(F.silu(self.norm(x)))

    x, noise = (lib.randn(batch, 3, size, size, device="cuda") for _ in range(2))
    given = (x, lib.rand(batch, device="cuda") * 1000)
    return trained(lib, UNet().cuda(), given, noise, lambda out, y: F.mse_loss(out.float(), y))


def ppo(lib, batch=256):
    """An update of PPO: two small networks, a clipped loss, entropy, clipping of gradients."""
    nn = lib.nn

    def net(out):
        return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)).cuda()

    actor, critic = net(4), net(1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = lib.optim.Adam(parameters, lr=3e-4, fused=True)
    state, action = lib.randn(batch, 8, device="cuda"), lib.randint(0, 4, (batch,), device="cuda")
    old, gain, target = (lib.randn(batch, device="cuda") for _ in range(3))

    def loss():
        logs = actor(state).log_softmax(-1)
        ratio = (logs.gather(1, action[:, None])[:, 0] - old).exp()
        policy = -lib.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return policy + 0.5 * (critic(state)[:, 0] - target).square().mean() + 0.01 * (logs.exp() * logs).sum(-1).mean()

    def update(loss):
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()

    if lib.__name__ == "torch":
        return update, loss
    return (lambda compiled: compiled()), lambda: update(loss)
