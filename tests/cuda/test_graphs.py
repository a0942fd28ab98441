"""Captured graphs: training steps, memory that stays theirs, shared pools, callables made of graphs."""

import pytest
from test_operators import near

import wisp
import wisp.nn.functional as F
from wisp import cuda, nn


def network():
    wisp.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).cuda()


OPTIMIZERS = {
    "sgd": lambda p: wisp.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: wisp.optim.Adam(p, lr=0.01, capturable=True),
    "adamw": lambda p: wisp.optim.AdamW(p, lr=0.01, capturable=True, amsgrad=True, fused=True),
    "adam, rate on the GPU": lambda p: wisp.optim.Adam(p, lr=wisp.tensor(0.01, device="cuda"), weight_decay=0.1, capturable=True),
    "radam": lambda p: wisp.optim.RAdam(p, lr=0.01, capturable=True),
    "nadam": lambda p: wisp.optim.NAdam(p, lr=0.01, capturable=True),
    "adamax": lambda p: wisp.optim.Adamax(p, lr=0.01, capturable=True),
    "rmsprop": lambda p: wisp.optim.RMSprop(p, lr=0.01, capturable=True),
    "asgd": lambda p: wisp.optim.ASGD(p, lr=0.01, t0=2, capturable=True),
    "adadelta": lambda p: wisp.optim.Adadelta(p, capturable=True),
    "rprop": lambda p: wisp.optim.Rprop(p, capturable=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_replayed(name):
    """With the numbers of eager steps, which a count of steps on the CPU could not give."""
    data = [(wisp.randn(8, 16), wisp.randint(0, 4, (8,))) for _ in range(10)]
    results = []
    for captured in (False, True):
        net = network()
        optimizer = OPTIMIZERS[name](net.parameters())
        x, y = data[0][0].cuda(), data[0][1].cuda()
        losses = []

        def step():
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(3):  # makes state and compiles
            step()
        if captured:
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                kept = step()
        for a, b in data:
            x.copy_(a)
            y.copy_(b)
            if captured:
                graph.replay()
            losses.append((kept if captured else step()).item())
        results.append((losses, [p.detach().cpu() for p in net.parameters()]))
    (losses, parameters), (again, moved) = results
    assert again == pytest.approx(losses, rel=1e-3)
    for a, b in zip(parameters, moved):
        wisp.testing.assert_close(b, a, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_capturable_steps_are_the_others(name):
    """The same optimizer on the CPU, where nothing is captured."""
    wisp.manual_seed(0)
    start, grads = wisp.randn(5, 7), [wisp.randn(5, 7) for _ in range(8)]
    p, q = nn.Parameter(start.clone()), nn.Parameter(start.cuda())
    gpu = OPTIMIZERS[name]([q])
    group = {k: v for k, v in gpu.param_groups[0].items() if k not in ("params", "capturable", "lr", "fused")}
    cpu = type(gpu)([p], lr=float(gpu.param_groups[0]["lr"]))
    cpu.param_groups[0].update(group)
    for g in grads:
        p.grad, q.grad = g, g.cuda()
        cpu.step()
        gpu.step()
        near(q.detach(), p.detach(), 1e-5)


def test_a_count_on_the_cpu_is_refused():
    p = nn.Parameter(wisp.ones(3, device="cuda"))
    optimizer = wisp.optim.Adam([p])
    p.grad = wisp.ones(3, device="cuda")
    optimizer.step()
    with pytest.raises(RuntimeError, match="capturable=True"), cuda.graph(cuda.CUDAGraph()):
        optimizer.step()
    near(p.detach() + 0, p.detach().cpu(), 0)


def test_the_memory_of_a_graph_is_its_own():
    x = wisp.randn(1 << 18, device="cuda")
    graph, side = cuda.CUDAGraph(), cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        (x * 2 + 1).sum()
        graph.capture_begin()
        total = ((x * 2) + 1).relu().sum()
        graph.capture_end()
        others = [wisp.full((1 << 18,), float(i), device="cuda") for i in range(8)]  # would take what the graph uses inside
    cuda.current_stream().wait_stream(side)
    for k in range(3):
        x.copy_(wisp.full((1 << 18,), float(k)))
        cuda.empty_cache()
        graph.replay()
        assert total.item() == (2 * k + 1) * (1 << 18)
    assert all((t == i).all() for i, t in enumerate(others))


def test_graphs_share_a_pool_and_give_it_back():
    cuda.empty_cache()
    before = cuda.memory_reserved()
    x = wisp.ones(1 << 20, device="cuda")
    first, second = cuda.CUDAGraph(), cuda.CUDAGraph()
    with cuda.graph(first):
        a = (x * 2).relu() + 1
    with cuda.graph(second, pool=first.pool()):
        b = (a * 3).relu() + 1
    for _ in range(3):
        first.replay()
        second.replay()
        assert b.sum().item() == 10 * (1 << 20)
    del a, b, x
    first.reset()
    second.reset()
    cuda.empty_cache()
    assert cuda.memory_reserved() <= before + (2 << 20)  # the graphs' own few words


def test_callables_made_of_graphs():
    one, two = network(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()).cuda()
    copies = network(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()).cuda()
    copies[1].load_state_dict(two.state_dict())
    x = wisp.randn(8, 16, device="cuda")
    one, two = cuda.make_graphed_callables((one, two), ((x,), (wisp.randn(8, 4, device="cuda", requires_grad=True),)))
    optimizers = [wisp.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1) for a, b in ((one, two), copies)]
    for _ in range(5):
        x = wisp.randn(8, 16, device="cuda")
        losses = []
        for (a, b), optimizer in zip(((one, two), copies), optimizers):
            optimizer.zero_grad()
            loss = b(a(x)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    one.eval()
    assert one(x[:3]).shape == (3, 4)


def test_scaled_gradients_of_a_graph():
    """Forward and backward captured with autocast and a scale, the step outside of it."""
    net = network()
    optimizer, scaler = wisp.optim.SGD(net.parameters(), lr=0.1), wisp.amp.GradScaler(init_scale=1024.0)
    x, y = wisp.randn(8, 16, device="cuda"), wisp.randint(0, 4, (8,), device="cuda")

    def forward_backward():
        optimizer.zero_grad(set_to_none=False)
        with wisp.autocast("cuda", dtype=wisp.float16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        return loss

    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(3):
            forward_backward()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        loss = forward_backward()
    losses = []
    for _ in range(30):
        graph.replay()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_an_error_in_a_capture_leaves_everything_usable():
    x = wisp.ones(4, device="cuda")
    with pytest.raises(KeyError), cuda.graph(cuda.CUDAGraph()):
        x * 2
        raise KeyError("of the program")
    with pytest.raises(RuntimeError), cuda.graph(cuda.CUDAGraph()):
        (x * 2).sum().item()  # waits, which a capture can't
    assert (x + 1).tolist() == [2, 2, 2, 2]
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = x + 1
    graph.replay()
    assert y.tolist() == [2, 2, 2, 2]
