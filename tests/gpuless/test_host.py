"""The host's side of CUDA on a stand-in GPU, and every kernel that it asks for through the real compiler."""

import concurrent.futures
import json
import os

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


def compile_batch(batch):
    return nvrtc.compile(*batch)


def test_every_kernel_compiles(walked, stand_in):
    batches = []
    for file, instances in stand_in.noted().items():
        for turn, arch in enumerate(ARCHITECTURES):
            mine = sorted(instances) if os.environ.get("CI") else sorted(instances)[turn::3]
            batches += [(file, mine[i : i + 40], arch) for i in range(0, len(mine), 40)]
    assert sum(len(instances) for _, instances, _ in batches) > 250
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for batch, log in zip(batches, pool.map(compile_batch, batches)):
            assert log == "", (batch[0], batch[2], log[:3000])


def test_a_kernel_that_does_not_compile_is_seen():
    log = nvrtc.compile("cuda/kernels/pointwise.cuh", ["pointwise_flat<rows::no_such_row, 0, float, 4, 2, float, float>"], 90)
    assert "no_such_row" in log


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


@pytest.mark.parametrize("program", ["DEVICES", "MEMORY", "STREAMS", "FORKED", "TRAINING"])
def test_programs(stand_in, program):
    stand_in.run("-c", globals()[program])
