"""The host's side of CUDA on a stand-in GPU, and every kernel that it asks for through the real compiler."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import nvrtc
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHITECTURES = (80, 90, 100)  # in CI every kernel for each of them, elsewhere in turn: the compiler takes a tenth of a second


@pytest.fixture(scope="session")
def walked(stand_in):
    return json.loads(stand_in.run(os.path.join(HERE, "walk.py"), FAKE_CUDA_ZEROS="1"))


def test_operators_run_or_say_uniformly_that_they_cannot(walked):
    assert len(walked) > 350
    missing = {name: text for name, text in walked.items() if "there is no kernel" in text}
    for name, text in missing.items():
        assert text.startswith("NotImplementedError") and ".cpu()" in text, (name, text)
    assert len(missing) < 0.05 * len(walked), sorted(missing)
    # Kernels that do nothing leave nonsense behind, which checks of values may refuse; nothing else may go wrong.
    refused = [name for name, text in walked.items() if text != "fine" and name not in missing]
    assert len(refused) < 0.1 * len(walked), refused
    assert not [name for name in refused if "CUDA error" in walked[name] or "stand-in" in walked[name]]


# Launched only for a count that a kernel made, which is zero here.
BY_VALUE = {"cuda/kernels/scan.cuh": {"masked_select<4>", "nonzero"}}


def asked_for(stand_in):
    return {file: names | BY_VALUE.get(file, set()) for file, names in stand_in.noted().items()}


def compile_batch(batch):
    return nvrtc.compile(*batch)


def test_every_kernel_compiles(walked, stand_in):
    batches = []
    for file, instances in asked_for(stand_in).items():
        for turn, arch in enumerate(ARCHITECTURES):
            mine = sorted(instances) if os.environ.get("CI") else sorted(instances)[turn::3]
            batches += [(file, mine[i : i + 40], arch) for i in range(0, len(mine), 40)]
    assert sum(len(instances) for _, instances, _ in batches) > 250
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for batch, log in zip(batches, pool.map(compile_batch, batches)):
            assert log == "", (batch[0], batch[2], log[:3000])


def test_doctor_compiles_ahead_for_a_named_architecture(tmp_path):
    environment = dict(os.environ, WISP_CACHE=str(tmp_path))
    for expected in ("of them new", " 0 of them new"):
        command = [sys.executable, "-m", "wisp", "doctor", "--warm", "sm_90"]
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert result.returncode == 0 and expected in result.stdout, result.stderr


def test_every_kernel_is_asked_for(walked, stand_in):
    """Every `__global__` function of every file: what is not asked for would not be compiled above."""
    folder = pathlib.Path(HERE).parent.parent / "csrc" / "cuda" / "kernels"
    attributes = r"(?:WISP_CLUSTER\([\w, ]+\)\s*)?(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?"
    pattern = re.compile(rf"__global__\s+void\s+{attributes}(\w+)\s*\(")
    asked = {re.split(r"[<\s]", name)[0].split("::")[-1] for names in asked_for(stand_in).values() for name in names}
    written = {name for file in folder.glob("*.cuh") for name in pattern.findall(file.read_text())}
    assert len(written) > 90 and written <= asked, " ".join(sorted(written - asked))


def test_a_kernel_that_does_not_compile_is_seen():
    log = nvrtc.compile("cuda/kernels/pointwise.cuh", ["pointwise_flat<rows::no_such_row, 0, float, 4, 2, float, float>"], 90)
    assert "no_such_row" in log


# A gradient that is a product, one that changes nothing, and a sum, in one program.
JOINED = """
import wisp
wisp._core._set_worth_noting(0)
a, b, c = (wisp.zeros(50, device="cuda", dtype=wisp.float64, requires_grad=True) for _ in range(3))
first, second = (a - b).exp(), a * c
wisp.compile(lambda: wisp.autograd.grad((first, second), a, (b.detach(), b.detach())))()
"""


def test_products_are_not_joined_with_sums(stand_in):
    """What an operator gives does not depend on the program that it is in: products are rounded before they are added."""
    stand_in.run("-c", JOINED)
    program = next(text for text in stand_in.noted()["cuda/kernels/program.cuh"] if re.match(r"/\* mul' exp' sub' add \*/", text))
    log, made = nvrtc.instructions("cuda/kernels/program.cuh", [program], 90)
    assert log == "" and "mul.f64" in made and "add.f64" in made and "fma.rn" not in made


DEVICES = """
import wisp
assert wisp.cuda.device_count() == 2 and wisp.cuda.get_device_name() == "Stand-in GPU"
a, b = wisp.zeros(3, device="cuda:0"), wisp.zeros(3, device="cuda:1")
try:
    a + b
except RuntimeError as error:
    assert "cuda:0" in str(error) and "cuda:1" in str(error), error
else:
    raise AssertionError("tensors on two devices were mixed")
try:
    wisp.zeros(3, device="cuda:7")
except RuntimeError as error:
    assert "invalid device ordinal" in str(error), error
x = wisp.arange(12.0).reshape(3, 4)
assert (x.cuda().cpu() == x).all() and x.cuda(1).device.index == 1
assert (x.cuda().to("cuda:1").cpu() == x).all()
import copy, pickle
assert pickle.loads(pickle.dumps(b)).device == copy.deepcopy(b).device == b.device
"""

MEMORY = """
import gc, wisp
def step():
    x = wisp.zeros(1000, 1000, device="cuda", requires_grad=True)
    (x * x).sum().backward()
for _ in range(3): step()
gc.collect()
held, reserved = wisp.cuda.memory_allocated(), wisp.cuda.memory_reserved()
for _ in range(300): step()
gc.collect()
assert wisp.cuda.memory_allocated() == held and wisp.cuda.memory_reserved() == reserved
try:
    wisp.empty(1 << 34, device="cuda")
except wisp.cuda.OutOfMemoryError as error:
    assert "Tried to allocate" in str(error) and "held by tensors" in str(error), error
else:
    raise AssertionError("64 GiB came out of 8")
big = [wisp.empty(1 << 30, dtype=wisp.uint8, device="cuda") for _ in range(6)]
del big
whole = wisp.empty(7 << 30, dtype=wisp.uint8, device="cuda")  # only if the cache is given back first
del whole
wisp.cuda.empty_cache()
assert wisp.cuda.memory_reserved() <= reserved
"""

STREAMS = """
import threading, wisp
side = wisp.cuda.Stream()
x = wisp.ones(1000, device="cuda")
with wisp.cuda.stream(side):
    y = x * 2
    x.record_stream(side)
wisp.cuda.current_stream().wait_stream(side)
event = wisp.cuda.Event(enable_timing=True); event.record(); event.synchronize(); assert event.query()
failures = []
def work():
    try:
        for _ in range(200):
            a = wisp.ones(64, 64, device="cuda", requires_grad=True)
            (a @ a).sum().backward()
    except Exception as error:
        failures.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert not failures, failures
"""

FORKED = """
import os, wisp
wisp.ones(3, device="cuda")
child = os.fork()
if child == 0:
    try:
        wisp.ones(3, device="cuda")
    except RuntimeError as error:
        os._exit(0 if "spawn" in str(error) else 2)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""

TRAINING = """
import wisp
from wisp import nn
for make in (lambda: nn.Sequential(nn.Conv2d(3, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1176, 10)),
             lambda: nn.Sequential(nn.Flatten(), nn.Linear(3072, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 10))):
    for optimizer in (wisp.optim.SGD, wisp.optim.Adam, wisp.optim.AdamW, wisp.optim.RMSprop, wisp.optim.Adagrad):
        model = make().cuda()
        step = optimizer(model.parameters(), lr=0.01)
        for _ in range(2):
            step.zero_grad()
            loss = nn.functional.cross_entropy(model(wisp.randn(4, 3, 32, 32, device="cuda")), wisp.zeros(4, dtype=wisp.long, device="cuda"))
            loss.backward()
            step.step()
        assert all(p.grad.device == p.device for p in model.parameters())
"""


LIBRARIES = """
import gc, wisp
from wisp import nn
F, last = nn.functional, wisp.channels_last
net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 32, 1),
                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda().to(memory_format=last)
x = wisp.randn(4, 3, 32, 32).cuda().to(memory_format=last)
seen = []
for layer in net[:5]:
    layer.register_forward_hook(lambda m, i, o: seen.append(o.is_contiguous(memory_format=last)))
optimizer, scaler = wisp.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), wisp.amp.GradScaler()
for _ in range(2):
    with wisp.autocast("cuda", dtype=wisp.bfloat16):
        y = net(x)
        loss = F.cross_entropy(y, wisp.zeros(4, dtype=wisp.long, device="cuda"))
    assert y.dtype == wisp.bfloat16 and loss.dtype == wisp.float32
    scaler.scale(loss).backward()
    scaler.step(optimizer); scaler.update()
assert all(seen) and net[0].weight.grad.stride() == net[0].weight.stride() and net[0].weight.grad.dtype == wisp.float32
for options in ({"padding": "same"}, {"groups": 4, "padding": 1}, {"dilation": 2}):
    for dtype in (wisp.float32, wisp.float64):
        a = wisp.zeros(2, 8, 9, 9, dtype=dtype, device="cuda", requires_grad=True)
        w = wisp.zeros(8, 8 // options.get("groups", 1), 4 if "same" in options.values() else 3, 3, dtype=dtype, device="cuda", requires_grad=True)
        F.conv2d(a, w, **options).sum().backward()
        assert a.grad.shape == a.shape and w.grad.shape == w.shape
F.conv_transpose2d(wisp.zeros(2, 6, 5, 5, device="cuda"), wisp.zeros(6, 4, 3, 3, device="cuda"), stride=1, dilation=3, output_padding=2)
for layer in (nn.LSTM(8, 16, 2, proj_size=4), nn.GRU(8, 16, bidirectional=True), nn.RNN(8, 16)):
    given = wisp.zeros(5, 3, 8, device="cuda", requires_grad=True)
    layer.cuda()(given)[0].sum().backward()
    packed = nn.utils.rnn.pack_padded_sequence(given, wisp.tensor([5, 2, 3]), enforce_sorted=False)
    layer(packed)[0].data.sum().backward()
z = wisp.zeros(2, 3, 4, 5, 6, dtype=wisp.complex64, device="cuda", requires_grad=True)
wisp.fft.irfftn(wisp.fft.fftn(z, dim=(0, 1, 2, 3)), dim=(1, 2)).sum().backward()
p = wisp.ones(1000, 100).pin_memory()
assert p.is_pinned() and wisp.rand(4, pin_memory=True).is_pinned() and p.cuda(non_blocking=True).is_cuda and p.clone().is_pinned() is False
del p; gc.collect()
assert wisp.empty(100000, pin_memory=True).is_pinned()
batches = list(wisp.utils.data.DataLoader(wisp.arange(10), batch_size=4, num_workers=2, pin_memory=True))
assert [b.tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and all(b.is_pinned() for b in batches)
graph = wisp.cuda.CUDAGraph()
offset = wisp._core._operators["_cuda"]["random_state"]()[1]
with wisp.cuda.graph(graph):
    F.dropout(x), wisp.rand(5, device="cuda")
assert wisp._core._operators["_cuda"]["random_state"]()[1] == offset
graph.replay(); graph.replay()
assert wisp._core._operators["_cuda"]["random_state"]()[1] == offset + 4
from wisp.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    (x * 2).sum()
assert any(e.kernels for e in prof.events())
print(prof.key_averages().table())
a = wisp.eye(4, device="cuda").expand(3, 4, 4) * 2
for f in (wisp.linalg.lu_factor_ex, wisp.linalg.qr, wisp.linalg.cholesky_ex, wisp.linalg.inv_ex, lambda a: wisp.linalg.solve_triangular(a, a, upper=True)):
    f(a)
"""


# A launch costs the host four microseconds, a call of a library several times that: how many there are is the speed of small networks.
LAUNCHES = """
import ctypes, os, wisp
from wisp import nn
count = ctypes.CDLL(os.path.join(os.environ["WISP_CUDA_PATH"], "libcuda.so.1")).fake_launches
count.restype = ctypes.c_long
lenet = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
         nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
block = [nn.Embedding(100, 64), nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 100), nn.Flatten(0, 1)]
for layers, x, most in ((lenet, wisp.randn(4, 3, 32, 32), 35), (block, wisp.zeros(2, 8, dtype=wisp.long), 20)):
    model, x = nn.Sequential(*layers).cuda(), x.cuda()
    y = wisp.zeros(len(model(x)), dtype=wisp.long, device="cuda")
    optimizer = wisp.optim.Adam(model.parameters())
    for step in range(3):
        before = count()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert count() - before <= most, (count() - before, most)
def rotated(x, angle):
    a, b = x.chunk(2, -1)
    return x * angle + wisp.cat([-b, a], -1) * angle
def token(q, k, angle, kept, other=rotated):  # queries and keys of a token are made by one launch, in which their sizes may differ
    q, k = rotated(q, angle), other(k, angle)
    return kept.index_copy_(1, place, k), q
sizes, place = ((32, 1, 64), (8, 1, 64), (64,), (8, 100, 64)), wisp.zeros(1, dtype=wisp.long, device="cuda")
arguments = [wisp.zeros(size, dtype=wisp.bfloat16, device="cuda") for size in sizes]
launches = []
for other in (rotated, lambda k, angle: rotated(k, angle) * 2):
    f = wisp.compile(lambda: token(*arguments, other=other))
    for step in range(2):
        before = count()
        f()
    launches.append(count() - before)
assert launches[1] == launches[0] + 1, launches
"""


# Heads of keys and values that repeat are read where they are copied from, forward and backward: in a region nobody makes the copies.
REPEATED = """
import ctypes, os, wisp
F = wisp.nn.functional
count = ctypes.CDLL(os.path.join(os.environ["WISP_CUDA_PATH"], "libcuda.so.1")).fake_launches
count.restype = ctypes.c_long
def make(*size):
    return wisp.zeros(*size, dtype=wisp.bfloat16, device="cuda", requires_grad=True)
q, k, v = make(2, 8, 64, 64), make(2, 2, 64, 64), make(2, 2, 64, 64)
def attention(times):
    keys, values = ((t * 2).repeat_interleave(times, 1) if times else t * 2 for t in (k, v))
    return F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=not times)
def whole():
    attention(4).sum().backward()
def launches(step):
    for _ in range(3):
        before = count()
        step()
    return count() - before
eager, compiled = launches(whole), launches(wisp.compile(whole))
assert compiled == eager - 4, (compiled, eager)  # two copies; what is summed of the gradients is doubled in the same launch
forward = wisp.compile(attention)
kept = {}
for times in (0, 4):
    for _ in range(3):
        before = wisp.cuda.memory_allocated()
        y = forward(times)
        kept[times] = wisp.cuda.memory_allocated() - before
        y.sum().backward()
        del y
assert kept[4] == kept[0], kept
"""


# A compiled forward pass keeps no values that backward can make again.
PEAKS = """
import wisp
x, g = (wisp.zeros(8192, 2048, dtype=wisp.bfloat16, device="cuda", requires_grad=k) for k in (True, False))
w = wisp.ones(2048, dtype=wisp.bfloat16, device="cuda", requires_grad=True)
def norm():
    h = x.float()
    return (h * wisp.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w
compiled, size = wisp.compile(norm), 2 * x.numel()
for step in range(3):
    x.grad = w.grad = None
    before = wisp.cuda.memory_allocated()
    y = compiled()
    kept = wisp.cuda.memory_allocated() - before
    y.backward(g)
    del y
assert kept < 1.1 * size, (kept, size)
"""


# What is kept back goes as a graph once it was seen, whose arguments are changed where they differ; asking for a value sends it.
REPLAYS = """
import ctypes, os, wisp
driver = ctypes.CDLL(os.path.join(os.environ["WISP_CUDA_PATH"], "libcuda.so.1"))
def counts():
    found = driver.fake_launches, driver.fake_graph_launches, driver.fake_changed_nodes
    for f in found:
        f.restype = ctypes.c_long
    return [f() for f in found]
def step(x, w, scale, reads=False):
    for i in range(6):
        x = (x @ w).relu() * scale
        if reads and i == 2:
            x.sum().item()
    return x
kept = wisp.compile(step, mode="reduce-overhead")
x, w = wisp.randn(300, 256).cuda(), wisp.randn(256, 256).cuda()
for i in range(3):
    kept(x, w, 2)
before = counts()
kept(x, w, 2)
assert [b - a for a, b in zip(before, counts())] == [0, 1, 0], (before, counts())
kept(x, w, 3)
launches, graphs, changed = (b - a for a, b in zip(before, counts()))
assert launches == 0 and graphs == 2 and changed == 6, (launches, graphs, changed)
for i in range(3):
    kept(x, w, 2, True)
before = counts()
kept(x, w, 2, True)
assert counts()[1] == before[1] + 2
class Wrong(Exception): pass
def fails():
    x * 2 + 1
    y = x @ w
    raise Wrong
before = counts()
try:
    wisp.compile(fails, mode="reduce-overhead")()
except Wrong:
    pass
statistics = wisp.compiler.statistics()
assert statistics["launches_replayed"] > 20 and statistics["graphs"] >= 2
y = wisp.compile(lambda: [x * i + 1 for i in range(5)], mode="reduce-overhead")()
with wisp.cuda.stream(wisp.cuda.Stream()):
    wisp.compile(step, mode="reduce-overhead")(x, w, 2)
"""


# A compiled function that gains nothing on the CPU rests until a GPU is used.
RESTING = """
import wisp
@wisp.compile
def twice(x):
    return x * 2
def rests():
    return id(twice.__code__) in wisp._core._resting_codes()
for _ in range(20):
    twice(wisp.ones(2))
assert rests()
wisp.ones(2, device="cuda")
for _ in range(40):
    assert twice(wisp.ones(2))[0] == 2 and not rests()
"""


# Kernels that wait for earlier work themselves are launched before it has ended, in graphs as well.
EARLY = """
import ctypes, os, wisp
driver = ctypes.CDLL(os.path.join(os.environ["WISP_CUDA_PATH"], "libcuda.so.1"))
def counts():
    found = driver.fake_launches, driver.fake_early_launches
    for f in found:
        f.restype = ctypes.c_long
    return [f() for f in found]
def step(x):
    for i in range(4):
        x = (x * i).sin() @ w
    return x.sum(-1)
x, w = wisp.randn(512, 512).cuda(), wisp.randn(512, 512).cuda()
for mode in (None, "reduce-overhead"):
    before = counts()
    wisp.compile(step, mode=mode)(x)
    launches, early = (b - a for a, b in zip(before, counts()))
    assert early == 5 <= launches, (launches, early)  # four programs and the sum, but not the products
"""


# What lies between two products is one program: the end of one, dropout, the residual, a norm, casts; and so are its gradients, with
# those of weights and biases, which are sums of rows.
FUSED = """
import wisp
from wisp import nn
F = nn.functional
layer = nn.TransformerEncoderLayer(192, 3, 768, 0.1, "gelu", batch_first=True, norm_first=True).cuda()
x = wisp.randn(4, 32, 192, device="cuda", requires_grad=True)
def step():
    layer.zero_grad()
    with wisp.autocast("cuda", dtype=wisp.bfloat16):
        y = layer(x)
    y.sum().backward()
wisp.compile(step)()
told = wisp.compiler.explain(step)()
found = ["·".join(p.operators) for p in told.programs]
norm = "mean·sub·mul·mean·add·rsqrt·mul·mul·add·to bfloat16"
assert found.count(norm) == 1 and found.count("dropout·add·" + norm) == 1 and found.count("gelu·dropout") == 1, found
assert found.count("dropout·gelu'·sum of rows") == 1, found
assert sum(f.count("sum of rows") == 3 and "mean" in f and f.endswith("add·to bfloat16·dropout·sum of rows") for f in found) == 1, found
def chain(x, y, w):
    x = x + F.dropout(y, 0.1)
    return F.rms_norm(x, (192,), w)
told = wisp.compiler.explain(chain)(x.detach(), x.detach() * 2, wisp.ones(192, device="cuda"))
assert [p.operators for p in told.programs] == [["dropout", "add", "mul", "mean", "add", "rsqrt", "mul", "mul"]], told
def apart(x, y):  # two sums that one operator joins
    return (x * 2 + 1) * (y - 3).exp()
assert len(wisp.compiler.explain(apart)(x.detach(), x.detach() + 1).programs) == 1
def columns(x):
    y = x * 2
    return y, y.sum((0, 1)), y.sum((0, 1)) * 3 + y
told = wisp.compiler.explain(columns)(x.detach())
assert [p.operators for p in told.programs] == [["mul", "sum of rows", "sum of rows"], ["mul"], ["add"]], told
k = wisp.randn(2, 16, 4, 8, device="cuda").transpose(1, 2)
told = wisp.compiler.explain(lambda: (k * 2).repeat_interleave(3, 1) + 1)()  # in five dimensions
assert [(p.shape, p.operators) for p in told.programs][-2:] == [("[2, 4, 3, 16, 8]", ["to float32"]), ("[2, 12, 16, 8]", ["add"])], told
gate, up, down = (wisp.zeros(64, 64, device="cuda", requires_grad=True) for _ in range(3))
def gated():
    y = F.silu(x[0, :, :64] @ gate) * (x[0, :, :64] @ up)
    return wisp.autograd.grad((y @ down).sum(), (gate, up))
wisp.compile(gated)()
found = [p for p in wisp.compiler.explain(gated)().programs if "silu'" in p.operators]  # both gradients of silu(a) * b
assert len(found) == 1 and found[0].operators.count("mul'") == 2 and found[0].read == 3 * 32 * 64 * 4, found
"""


# The gradient of a loss in floats that halves became is rounded by the kernel that makes it, unless somebody sees the floats.
LOSSES = """
import wisp
F = wisp.nn.functional
w, x = wisp.randn(512, 64, device="cuda", dtype=wisp.bfloat16, requires_grad=True), wisp.randn(256, 64, device="cuda", dtype=wisp.bfloat16)
target = wisp.zeros(256, dtype=wisp.long, device="cuda")
def step(seen):
    logits = F.linear(x, w).view(2, 128, 512).float().view(256, 512)
    if seen:
        logits.retain_grad()
    F.cross_entropy(logits, target).backward()
    return logits.grad if seen else None
for _ in range(2):
    wisp.compile(step)(False)
for seen in (False, True):
    programs = [p.operators for p in wisp.compiler.explain(step)(seen).programs]
    assert programs.count(["to bfloat16"]) == seen, (seen, programs)
"""


# Two slices that are put in one place each, as the key and the value of a token, are one launch unless one touches what the other writes.
SLICES = """
import ctypes, os, wisp
count = ctypes.CDLL(os.path.join(os.environ["WISP_CUDA_PATH"], "libcuda.so.1")).fake_launches
count.restype = ctypes.c_long
keys, values = (wisp.zeros(2, 8, 64, 32, device="cuda") for _ in range(2))
k, v, at = wisp.randn(2, 8, 1, 32).cuda(), wisp.randn(2, 1, 8, 32).cuda().transpose(1, 2), wisp.tensor([3]).cuda()
numbers = wisp.zeros(2, dtype=wisp.long, device="cuda")
cases = ((lambda: (keys.index_copy_(2, at, k), values.index_copy_(2, at, v)), 1),
         (lambda: (keys.index_copy_(2, at, k), keys.index_copy_(2, at, v)), 2),
         (lambda: (keys.index_copy_(2, at, k), values.index_copy_(2, at, keys[:, :, :1])), 2),
         (lambda: (values.index_copy_(2, at, keys[:, :, 1:2]), keys.index_copy_(2, at, k)), 2),
         (lambda: (numbers.index_copy_(0, at, at), keys.long().index_copy_(2, numbers[:1], k.long())), 4),
         (lambda: (keys.index_copy_(2, at, k), values.index_copy_(2, at, v), values[1:].index_copy_(2, at, v[:1])), 2))
for i, (put, expected) in enumerate(cases):
    wisp.cuda.synchronize()
    before = count()
    wisp.compile(put, mode="reduce-overhead")()
    wisp.cuda.synchronize()
    assert count() - before == expected, (i, count() - before, expected)
"""


# Calls of a list are one launch unless one writes what another reads or writes.
LISTS = """
import ctypes, os, wisp
count = ctypes.CDLL(os.path.join(os.environ["WISP_CUDA_PATH"], "libcuda.so.1")).fake_launches
count.restype = ctypes.c_long
a, b, c, d = (wisp.empty(4096, device="cuda") for _ in range(4))
rows, others = list(wisp.empty(64, 32, device="cuda")), list(wisp.empty(64, 32, device="cuda"))
mixed = [i * 27 % 64 for i in range(64)]
cases = (([rows[i] for i in mixed], [others[i] for i in mixed], 1), (rows, others[:1] * 64, 1), ([a, b], [c, d], 1),
         ([a, b], [b, c], 2), ([a, b], [c, a], 2), ([a, b, a], [c, c, d], 2), ([a[3:70], a[69:136]], [b[3:70], b[4:71]], 2),
         ([a[3:70], a[70:137]], [b[3:70], b[4:71]], 1), ([a[8:12], a[0:4], a[4:8], a[11:15]], [b[0:4], b[8:12], b[4:8], b[0:4]], 2))
for i, (ours, theirs, expected) in enumerate(cases):
    wisp.cuda.synchronize()
    before = count()
    wisp._foreach_lerp_(ours, theirs, 0.5)
    assert count() - before == expected, (i, count() - before, expected)
"""


# Every optimizer goes on from its state on a GPU; the numbers that the host reads stay there.
RESUMED = """
import inspect, wisp
from wisp import optim
for name, kind in inspect.getmembers(optim, inspect.isclass):
    if name in ("Optimizer", "LBFGS", "SparseAdam") or not issubclass(kind, optim.Optimizer):
        continue
    x = wisp.ones(4, 3, device="cuda", requires_grad=True)
    first, second = kind([x], lr=0.1), kind([x], lr=0.1)
    for optimizer in (first, second):
        x.grad = wisp.ones_like(x)
        optimizer.step()
        second.load_state_dict(first.state_dict())
    assert all(t.is_cuda == (t.dim() > 0) for t in second.state[x].values() if isinstance(t, wisp.Tensor) and name != "Adafactor"), name
"""


@pytest.mark.parametrize(
    "program",
    [
        "DEVICES",
        "MEMORY",
        "STREAMS",
        "FORKED",
        "TRAINING",
        "RESUMED",
        "LIBRARIES",
        "LAUNCHES",
        "LISTS",
        "REPLAYS",
        "RESTING",
        "EARLY",
        "FUSED",
        "PEAKS",
        "REPEATED",
        "LOSSES",
        "SLICES",
    ],
)
def test_programs(stand_in, program):
    stand_in.run("-c", globals()[program])


@pytest.mark.parametrize(
    "part",
    """devices streams statistics snapshot_of_memory memory_without_cache waiting_is_told pinned_statistics graphs moves across mixtures
    exchanged made_in_python""".split(),
)
def test_the_interface(stand_in, part):
    stand_in.run(os.path.join(HERE, "api.py"), part, FAKE_CUDA_ZEROS="1")


def test_examples_of_the_reference_run(stand_in):
    """All but those that need what a kernel computes, or NVML."""
    ran, *failed = stand_in.run(os.path.join(HERE, "reference.py"), FAKE_CUDA_ZEROS="1", LD_LIBRARY_PATH=stand_in.folder).split()
    values, nvml = {"cuda.graph"}, {"cuda.list_gpu_processes", "cuda.memory_usage"}
    assert int(ran) > 40 and set(failed) <= values | nvml
