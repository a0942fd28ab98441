"""Counting operations and windows of numbers: flop_counter, module_tracker, monitor."""

from datetime import timedelta

import pytest

import wisp
from wisp import monitor
from wisp.utils.flop_counter import FlopCounterMode, register_flop_formula, sdpa_flop_count
from wisp.utils.module_tracker import ModuleTracker

aten = wisp.ops.aten


def counted(run):
    with FlopCounterMode(display=False) as mode:
        run()
    return mode


def test_products_forward_and_backward():
    a, b = wisp.randn(4, 5, requires_grad=True), wisp.randn(5, 6)
    assert counted(lambda: wisp.mm(a, b)).get_flop_counts() == {"Global": {aten.mm: 240}}
    assert counted(lambda: wisp.mm(a, b).sum().backward()).get_total_flops() == 480  # one factor needs a gradient
    assert counted(lambda: (a @ a.t()).sum().backward()).get_total_flops() == 3 * 160
    assert counted(lambda: wisp.mm(a.detach(), b, out=wisp.zeros(4, 6))).get_total_flops() == 240
    assert counted(lambda: wisp.matmul(wisp.randn(3, 4, 5), wisp.randn(3, 5, 6))).get_flop_counts()["Global"] == {aten.bmm: 720}
    assert counted(lambda: wisp.einsum("ab,bc->ac", b, wisp.randn(6, 7))).get_total_flops() == 2 * 5 * 6 * 7
    assert counted(lambda: wisp.einsum("ab,bc,cd->ad", b, wisp.randn(6, 7), wisp.randn(7, 2))).get_total_flops() == 420 + 2 * 5 * 7 * 2
    assert counted(lambda: a @ wisp.randn(5)).get_total_flops() == 0  # as in PyTorch


@pytest.mark.parametrize("groups, transposed", [(1, False), (2, False), (1, True)])
def test_convolutions(groups, transposed):
    x, weight = wisp.randn(1, 4, 5, 5, requires_grad=True), wisp.randn(4, 4 // groups, 2, 2, requires_grad=True)
    convolve = wisp.nn.functional.conv_transpose2d if transposed else wisp.nn.functional.conv2d
    counts = counted(lambda: convolve(x, weight, groups=groups).sum().backward()).get_flop_counts()["Global"]
    places = 25 if transposed else 16
    assert counts == {aten.convolution: 2 * places * weight.numel(), aten.convolution_backward: 4 * places * weight.numel()}


def test_counts_by_module_and_formulas_of_ones_own():
    net = wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.ReLU(), wisp.nn.Linear(4, 1, bias=False))
    counts = counted(lambda: net(wisp.randn(2, 3)).sum().backward()).get_flop_counts()
    assert counts["Sequential.0"] == {aten.addmm: 48, aten.mm: 48}
    assert counts["Sequential.2"] == {aten.mm: 16 * 3}
    assert counts["Sequential"] == counts["Global"] == {aten.addmm: 48, aten.mm: 96}

    with FlopCounterMode(display=False, custom_mapping={aten.add: lambda *shapes, out_shape: out_shape.numel()}) as mode:
        wisp.ones(4, 5) + 1
    assert mode.get_total_flops() == 20
    with pytest.raises(ValueError, match="expected each target to be OpOverloadPacket"):
        register_flop_formula(aten.add.Tensor)(len)
    with pytest.warns(UserWarning, match="not needed"):
        FlopCounterMode(net)


def test_operators_of_a_program_are_seen_by_function_modes():
    @wisp.library.custom_op("counting::twice", mutates_args=())
    def twice(x: wisp.Tensor) -> wisp.Tensor:
        return 2 * x

    register_flop_formula(wisp.ops.counting.twice)(lambda x, out_shape=None: 7)
    mode = counted(lambda: (twice(wisp.ones(3)), wisp.ops.counting.twice(wisp.ones(3))))
    assert mode.get_total_flops() == 14


def test_attention_counts_heads_that_share_keys():
    assert sdpa_flop_count((2, 32, 128, 64), (2, 8, 128, 64), (2, 8, 128, 64)) == 2 * 2 * 32 * 128 * 128 * 128
    with pytest.raises(AssertionError):
        sdpa_flop_count((2, 32, 128, 64), (2, 5, 128, 64), (2, 5, 128, 64))


def test_module_tracker_follows_backward():
    seen = []

    class Leaf(wisp.nn.Module):
        def forward(self, x):
            seen.append((sorted(tracker.parents), tracker.is_bw))
            inner = x * 2
            inner.register_hook(lambda grad: seen.append((sorted(tracker.parents), tracker.is_bw)))
            return inner + 1

    class Net(wisp.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Leaf(), wisp.nn.ModuleList([Leaf()])

        def forward(self, x):
            return self.b[0](self.a(x.clone()))

    with ModuleTracker() as tracker:
        Net()(wisp.ones(2, requires_grad=True)).sum().backward()
    assert seen[:2] == [(["Global", "Net", "Net.a"], False), (["Global", "Net", "Net.b.0"], False)]
    assert seen[2:] == [(["Global", "Net", "Net.b.0"], True), (["Global", "Net", "Net.a"], True)]


def test_windows_of_statistics():
    events = []
    handle = monitor.register_event_handler(events.append)
    try:
        kinds = monitor.Aggregation.SUM, monitor.Aggregation.COUNT
        stat = monitor.Stat("loss", kinds, timedelta(hours=1), 3)
        counts = []
        for value in range(5):
            stat.add(value)
            counts.append(stat.count)
        assert counts == [1, 2, 0, 0, 0]  # full until the hour is over
        assert stat.get() == {monitor.Aggregation.SUM: 3.0, monitor.Aggregation.COUNT: 3.0}
        assert [event.data for event in events] == [{"loss.sum": 3.0, "loss.count": 3.0}]
        short = monitor.Stat("short", kinds[:1], timedelta(0))
        short.add(1)
        short.add(2)
        assert events[-1].data == {"short.sum": 1.0} and short.count == 1
    finally:
        monitor.unregister_event_handler(handle)
