"""Pictures: graphs, summaries, charts, what notebooks show."""

import doctest
import html.parser
import importlib
import math
import pkgutil
import random
import re
import struct
import sys
import types
import xml.etree.ElementTree as ElementTree
import zlib

import pytest

import wisp
from wisp import nn, viz
from wisp.nn import functional as F
from wisp.viz import _layout


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.bn1(self.conv1(x)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


def check_svg(picture):
    return ElementTree.fromstring(picture.svg())


def test_small_graph():
    a = wisp.ones(2, 3, requires_grad=True)
    b = wisp.full((3,), 2.0, requires_grad=True)
    c = a * b
    total = (c.sin() + a).sum()
    picture = viz.graph(total)
    items = {item.title: item for item in picture.items}
    assert set(items) == {"a", "b", "mul", "sin", "add", "sum"} and items["mul"].name == "c" and items["sum"].name == "total"
    assert items["mul"].outputs == [((2, 3), wisp.float32)] and items["mul"].backward == "MulBackward0"
    assert items["mul"].saved_bytes == 2 * 3 * 4 + 3 * 4
    assert items["mul"].source.startswith("test_viz.py:") and items["mul"].line == "c = a * b"
    pairs = sorted((edge.source.title, edge.target.title) for edge in picture.edges)
    assert pairs == [("a", "add"), ("a", "mul"), ("add", "sum"), ("b", "mul"), ("mul", "sin"), ("sin", "add")]
    expected = wisp.autograd.grad(total, [a, b, c], retain_graph=True)
    assert items["a"].norm == pytest.approx(expected[0].norm().item(), rel=1e-5)
    assert items["b"].norm == pytest.approx(expected[1].norm().item(), rel=1e-5)
    assert items["mul"].norm == pytest.approx(expected[2].norm().item(), rel=1e-5)
    assert a.grad is None and b.grad is None
    check_svg(picture)
    total.backward()  # looking changed nothing
    freed = viz.graph(total)
    assert {item.title: item.norm for item in freed.items}["a"] == pytest.approx(expected[0].norm().item(), rel=1e-5)


def test_arrows_go_down():
    picture = viz.graph(Net(), wisp.ones(2, 1, 8, 8))
    for edge in picture.edges:
        source, target = picture._leaves[edge.source], picture._leaves[edge.target]
        assert source.y + source.height <= target.y, (edge.source.title, edge.target.title)


@pytest.mark.parametrize("traced", [False, True])
def test_modules(traced):
    model, x = Net(), wisp.ones(2, 1, 8, 8)
    with viz.trace(model) as calls:
        loss = F.cross_entropy(model(x), wisp.tensor([1, 2]))
    picture = viz.graph(loss, calls if traced else model)
    assert [group.name for group in picture.groups] == ["Net", "blocks", "0", "1"]
    items = {(item.group.name if item.group else "", item.title): item for item in picture.items}
    conv = items["0", "conv1"]
    assert conv.module == "Conv2d" and [p[:2] for p in conv.parameters] == [
        ("blocks.0.conv1.weight", (4, 4, 3, 3)),
        ("blocks.0.conv1.bias", (4,)),
    ]
    assert conv.outputs[0][0] == (2, 4, 8, 8) and conv.parameters[0][3] > 0
    assert items["Net", "head"].outputs[0][0] == (2, 10) and items["", "nll_loss"].name == "loss"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    check_svg(picture)


def test_call_of_a_model():
    model = Net()
    before = model.blocks[0].bn1.running_mean.clone()
    picture = viz.graph(model, wisp.randn(2, 1, 8, 8), depth=1)
    (x,) = [item for item in picture.items if item.module == "input"]
    assert (
        x.title == "x"
        and x.backward == ""
        and "AccumulateGrad" not in picture.svg()
        and wisp.equal(model.blocks[0].bn1.running_mean, before)
    )
    assert [box.folded for box in picture._boxes.values()] == [False, True, True, True]
    svg = picture.svg()
    assert "14 operators" not in svg and "▸ blocks" in svg
    shared = nn.ReLU()
    twice = viz.graph(nn.Sequential(nn.Linear(2, 2), shared, nn.Linear(2, 2), shared), wisp.ones(1, 2))
    assert [item.module for item in twice.items if item.kind == "op"] == ["Linear", "ReLU", "Linear", "ReLU"]


def test_modules_without_parameters_are_found():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Sequential(nn.Conv2d(2, 2, 1), nn.Tanh()), nn.Flatten(), nn.Linear(18, 4), nn.Softmax(-1)
    )
    x = wisp.ones(1, 1, 8, 8)
    with viz.trace(model) as calls:
        loss = model(x).square().sum()
    exact, guessed = viz.graph(loss, calls), viz.graph(loss, model)
    where = [[(item.title, item.module, item.group.name if item.group else "") for item in picture.items] for picture in (exact, guessed)]
    assert where[0] == where[1] and ("1", "Tanh", "2") in where[1]


def test_large_models_start_folded():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh()) for _ in range(40)))
    picture = viz.graph(model, wisp.ones(1, 4))
    assert [box.folded for box in picture._boxes.values()] == [False] + [True] * 40  # the model is open, its parts are cards
    assert "Linear ×2 · ReLU · Tanh" in picture.svg() and "4 operators · 40 parameters" in picture.svg()
    check_svg(picture)


def test_several_inputs():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 3)

        def forward(self, values, by):
            return self.linear(values) * by

    by = wisp.ones(3, requires_grad=True)
    picture = viz.graph(Scaled(), wisp.ones(4, 2), by)
    leaves = {item.title: (item.module, item.backward) for item in picture.items if item.kind == "leaf"}
    assert leaves == {"values": ("input", ""), "by": ("", "AccumulateGrad")}
    assert len(viz.graph(Scaled(), (wisp.ones(4, 2), by)).items) == len(picture.items)
    check_svg(picture)


def test_recurrent_layers_have_their_names():
    picture = viz.graph(nn.LSTM(3, 4, 2, bidirectional=True), wisp.ones(5, 2, 3))
    names = [item.title for item in picture.items if "layer" in item.title]
    assert names == [
        "lstm layer 0",
        "lstm layer 0 reversed",
        "lstm layer 1",
        "lstm layer 1 reversed",
    ] and "mkldnn" not in picture.svg().lower().replace("mkldnnrnnlayerbackward0", "")
    assert [item.title for item in viz.graph(nn.GRU(3, 4), wisp.ones(5, 2, 3)).items][0] == "gru layer 0"


def test_refusals():
    with pytest.raises(ValueError, match="nothing here requires grad"):
        viz.graph(wisp.ones(2))
    with pytest.raises(TypeError, match="expected a tensor"):
        viz.graph(object())
    with pytest.raises(TypeError, match="expected a Module"):
        viz.trace(3)
    with pytest.raises(ValueError, match="no parameter has a gradient"):
        viz.gradient_flow(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="give an input"):
        viz.summary(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="channels"):
        viz.image(wisp.ones(7, 3, 3))


def test_odd_graphs():
    leaf = wisp.ones(2, requires_grad=True)
    assert len(viz.graph(leaf).items) == 1
    several = viz.graph([leaf * 2, (leaf + 1).exp()])
    assert len(several.items) == 4
    assert len(viz.graph(wisp.unbind(wisp.ones(3, 2, requires_grad=True))).items) == 2
    z = wisp.ones(2, dtype=wisp.complex64, requires_grad=True)
    check_svg(viz.graph((z * z).sum()))
    check_svg(viz.graph((leaf * 2)[:0].sum()))
    deep = leaf
    for _ in range(300):
        deep = deep + 1
    assert len(viz.graph(deep.sum()).items) == 302

    class Double(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert "DoubleBackward" in viz.graph(Double.apply(leaf).sum()).svg()


def test_more_odd_graphs():
    x = wisp.ones(3, 2, requires_grad=True)
    (first,) = wisp.autograd.grad((x**3).sum(), x, create_graph=True)
    assert viz.graph(first.sum()).items[-1].norm == pytest.approx(6 * 6**0.5, rel=1e-5)
    changed = x * 1
    changed[:, 0] = 5
    check_svg(viz.graph(changed.sum()))
    table = nn.Embedding(5, 3, sparse=True)
    loss = table(wisp.tensor([1, 2])).sum()
    assert viz.graph(loss, table).items[0].parameters[0][3] == pytest.approx(6**0.5, rel=1e-5)
    loss.backward()
    assert viz.gradient_flow(table).rows[0]["max"] == 1
    frozen = nn.Linear(2, 2)
    frozen.weight.requires_grad_(False)
    assert [p[0] for p in viz.graph(frozen(x).sum(), frozen).items[0].parameters] == ["bias"]
    assert [item.title for item in viz.graph(nn.Parameter(wisp.ones(2))).items] == ["leaf"]


def test_layout_of_random_graphs():
    """Cards in an open box never overlap, and lie inside of it."""
    for seed in range(12):
        chance = random.Random(seed)
        root = _layout.Box("root")
        boxes = [root]
        for i in range(6):
            parent = chance.choice(boxes)
            boxes.append(_layout.Box(f"b{i}", 80, 40, parent))
            parent.children.append(boxes[-1])
        leaves = []
        for i in range(30):
            parent = chance.choice(boxes)
            leaves.append(_layout.Leaf(f"n{i}", chance.randint(60, 200), chance.randint(20, 90), parent))
            parent.children.append(leaves[-1])
        routes = [_layout.Route(*sorted(chance.sample(leaves, 2), key=leaves.index)) for _ in range(45)]
        for box in boxes:
            box.folded = box is not root and chance.random() < 0.2
        _layout.layout(root, routes)

        def area(leaf):
            tall = leaf.height if not isinstance(leaf, _layout.Box) or leaf.folded else leaf.tall
            return leaf.x - leaf.width / 2, leaf.x + leaf.width / 2, leaf.y, leaf.y + tall

        for box in boxes:
            if box.folded:
                continue
            left, right, top, bottom = area(box)
            for i, child in enumerate(box.children):
                a = area(child)
                assert left - 1e-6 <= a[0] and a[1] <= right + 1e-6 and top <= a[2] and a[3] <= bottom + 1e-6
                for other in box.children[:i]:
                    b = area(other)
                    assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]


def test_page_is_self_contained(tmp_path):
    picture = viz.graph(Net(), wisp.ones(1, 1, 8, 8))
    picture.save(tmp_path / "graph.html")
    picture.save(tmp_path / "graph.svg")
    page = (tmp_path / "graph.html").read_text()
    assert not re.search(r"(src|href)=['\"]?(https?:|//)", page) and "{{" not in page
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    assert "<iframe srcdoc" in picture._repr_html_()


def test_summary():
    model = Net()
    model.train()
    table = viz.summary(model, wisp.ones(2, 1, 8, 8))
    assert table.total_params == sum(p.numel() for p in model.parameters()) == sum(row.parameters for row in table.rows)
    assert table.total_mult_adds == 2 * 64 * 4 * 9 + 4 * (2 * 64 * 4 * 36) + 2 * 4 * 10
    rows = {row.name: row for row in table.rows}
    assert rows["conv1"].shape == (2, 4, 8, 8) and rows["conv1"].depth == 3 and rows["head"].mult_adds == 80
    assert all(module.training for module in model.modules())
    short = viz.summary(model, input_size=(2, 1, 8, 8), depth=1)
    assert len(short.rows) == 4 and short.total_mult_adds == table.total_mult_adds
    assert sum(row.parameters for row in short.rows) == table.total_params
    model.head.weight.requires_grad_(False)
    assert "40 of them frozen" in str(viz.summary(model, wisp.ones(1, 1, 8, 8))) and "<table" in table._repr_html_()
    shared = nn.Linear(3, 3)
    again = viz.summary(nn.Sequential(shared, shared), wisp.ones(1, 3))
    assert "(again)" in str(again) and again.total_params == 12 and again.total_mult_adds == 18
    attention = viz.summary(nn.MultiheadAttention(8, 2, batch_first=True), (wisp.ones(2, 5, 8),) * 3)
    assert attention.rows[0].mult_adds == 4 * 10 * 64 + 2 * 10 * 5 * 8
    lstm = viz.summary(nn.LSTM(4, 8), wisp.ones(5, 2, 4))
    assert lstm.rows[0].shape == (5, 2, 8) and lstm.total_mult_adds == 10 * 4 * 8 * (4 + 8)


def test_charts():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    model(wisp.ones(4, 2)).sum().backward()
    model[2].bias.grad = None
    model[2].weight.grad.fill_(wisp.nan)
    model[0].bias.grad.zero_()
    chart = viz.gradient_flow(model)
    assert chart.rows[0]["max"] == pytest.approx(model[0].weight.grad.abs().max().item())
    text = "".join(check_svg(chart).itertext())
    assert "no gradient" in text and "not finite" in text and "all zero" in text
    with wisp.no_grad():
        model[0].weight.fill_(-1)
        model[0].bias.fill_(-1)
    chart = viz.activations(model, wisp.ones(4, 2))
    assert [row["zeros"] for row in chart.rows[:2]] == [0, 1] and chart.rows[0]["mean"] == -3
    assert "all zero" in "".join(check_svg(chart).itertext())
    wide = viz.activations(nn.Identity(), wisp.tensor([1.0, 2.0, wisp.inf, 4.0]), bins=3)
    assert wide.rows[0]["counts"] == [1, 1, 1] and not wide.rows[0]["finite"]


def test_timeline():
    with wisp.profiler.profile(record_shapes=True, with_modules=True) as prof:
        Net()(wisp.ones(1, 1, 8, 8)).sum().backward()
    picture = viz.timeline(prof)
    names = [title.text for title in check_svg(picture).iter("{http://www.w3.org/2000/svg}title")]
    assert any(name.startswith("conv2d: ") for name in names) and any(name.startswith("backward: ") for name in names)
    assert "timeline" in prof._repr_html_()


def test_fusions(tmp_path):
    w = wisp.ones(256, 256)

    def f(x):
        h = wisp.relu(x * 2 + 1)
        y = (h @ w).exp()
        return y / y.sum(-1, keepdim=True)

    told = wisp.compiler.explain(f)(wisp.zeros(200, 256))
    first, second = told.programs
    assert first.asked.endswith(f"test_viz.py:{f.__code__.co_firstlineno + 2}") and second.asked == "" and first.seconds > 0
    assert first.steps == [
        "x0: float32, 204800 bytes",
        "x1: a number, float32",
        "x2: a number, float32",
        "v0 = mul(x0, x1): float32",
        "v1 = add(v0, x2): float32",
        "v2 = relu(v1): float32, kept",
    ]
    picture = viz.fusions(told)
    text = "".join(check_svg(picture).itertext())
    assert "mul · add · relu" in text and "exp · sum · div" in text and "410 KB of 1229 KB" in text
    picture.save(tmp_path / "fusions.html")
    page = (tmp_path / "fusions.html").read_text()
    assert "v1 = sum(v0): float32, one for each row" in page and "test_viz.py:" in page and "the region ended" in page
    assert "<iframe srcdoc" in told._repr_html_()


def test_tensors_in_a_notebook():
    page = wisp.tensor([[1.0, -2.0], [wisp.nan, 0.5]], requires_grad=True)._repr_html_()
    assert "[2, 2]" in page and ">-2<" in page and ">nan<" in page and "requires grad" in page
    assert "MulBackward0" in (wisp.ones(2, requires_grad=True) * 2)._repr_html_()
    for t in (
        wisp.tensor(3),
        wisp.ones(0, 3),
        wisp.ones(3, dtype=wisp.bool),
        wisp.ones(2, 2, dtype=wisp.complex64),
        wisp.ones(2, 3, 4, 5),
        wisp.arange(1000),
        wisp.eye(3).to_sparse(),
        wisp.ones(50, 60).t(),
        wisp.ones(1).expand(4, 4),
        wisp.ones(2, dtype=wisp.bfloat16),
    ):
        assert t._repr_html_().startswith("<div")
    assert "… 17 more" in wisp.ones(4, 5, 2, 2)._repr_html_()
    assert len(wisp.randn(1000, 1000)._repr_html_()) < 20000


def test_modules_in_a_notebook():
    page = Net()._repr_html_()
    ElementTree.fromstring(page.replace("' open>", "'>"))
    assert page.count("<details") == 12 and "kernel_size=(3, 3)" in page and "conv1" in page


def test_images(tmp_path):
    t = wisp.zeros(3, 2, 4)
    t[0, 0, 1] = 1.0
    t[2, 1, 3] = 2.0
    picture = viz.image(t)
    picture.save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (4, 2)
    at = data.index(b"IDAT")
    raw = zlib.decompress(data[at + 4 : at + 4 + struct.unpack(">I", data[at - 4 : at])[0]])
    assert raw[0] == 0 and list(raw[4:7]) == [255, 0, 0] and list(raw[-3:]) == [0, 0, 255]
    assert repr(viz.image(wisp.full((5, 6), 200, dtype=wisp.uint8))) == "Image(5 x 6)"
    assert "data:image/png" in viz.image(wisp.randn(3, 1, 4, 4), scale=True)._repr_html_()


@pytest.mark.parametrize("name", [info.name for info in pkgutil.iter_modules(viz.__path__)] + ["__init__"])
def test_examples(name):
    module = viz if name == "__init__" else importlib.import_module("wisp.viz." + name)
    assert doctest.testmod(module, extraglobs={"wisp": wisp}).failed == 0


def test_curves(tmp_path):
    chart = viz.curves(log="loss")
    for step in range(2000):
        chart.add(step=step, loss=0.99**step + 1e-3, **({"accuracy": wisp.tensor(step / 2000)} if step % 100 == 0 else {}))
    assert len(chart.history["loss"]) == 2000 and chart.history["accuracy"][1] == (100.0, pytest.approx(0.05))
    check_svg(chart)
    assert len(chart.svg()) < 60_000  # long curves are thinned
    chart.save(tmp_path / "curves.csv")
    lines = (tmp_path / "curves.csv").read_text().splitlines()
    assert lines[0] == "step,loss,accuracy" and lines[1] == "0,1.001,0.0" and lines[2].endswith(",") and len(lines) == 2001
    chart.save(tmp_path / "curves.html")
    assert "<script" in (tmp_path / "curves.html").read_text() and chart.height > 300
    check_svg(viz.curves())
    check_svg(viz.curves({"a": [math.nan, 1.0, math.inf, 2.0], "b/c": [1.0], "d": [0.0, 0.0]}, log=True, smooth=0.5))
    assert viz.curves().add(x=1).add(x=2).history == {"x": [(0.0, 1.0), (1.0, 2.0)]}


def test_curves_live(monkeypatch):
    """In a notebook what is shown is brought up to date, and not more than twice a second."""
    updates = []

    class Handle:
        def update(self, picture):
            updates.append(len(picture.history["loss"]))

    modules = types.SimpleNamespace(get_ipython=lambda: True), types.SimpleNamespace(display=lambda picture, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", modules[0])
    monkeypatch.setitem(sys.modules, "IPython.display", modules[1])
    chart = viz.curves().show()
    for _ in range(50):
        chart.add(loss=1.0)
    assert updates == [1]


def test_summary_saves(tmp_path):
    summary = viz.summary(Net(), wisp.ones(1, 1, 8, 8))
    summary.save(tmp_path / "summary.html")
    summary.save(tmp_path / "summary.txt")
    assert (tmp_path / "summary.txt").read_text() == f"{summary}\n"
    page = (tmp_path / "summary.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "<table" in page and "multiply-adds" in page


class _Elements(html.parser.HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.add(tag)
        self.found.update(name for name, _ in attributes)


def test_names_stay_text_in_every_page():
    """Names of modules, curves and events come from programs and files: on no page may they become elements."""

    class Hostile(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.add_module(name, nn.Linear(3, 3))
            self.inside = nn.Sequential()
            self.inside.add_module(name, nn.ReLU())
            self.name = name

        def extra_repr(self):
            return self.name

        def forward(self, x):
            return self.inside(self._modules[self.name](x))

    def pages(name):
        model = Hostile(name)
        model.__class__ = type(name, (Hostile,), {})
        x = wisp.ones(2, 3, requires_grad=True)
        yield viz.graph(model, x).html()
        yield viz.graph(model, x).svg()
        summary = viz.summary(model, x)
        yield summary.html()
        yield summary._repr_html_()
        yield model._repr_html_()
        model(x).sum().backward()
        yield viz.gradient_flow(model).html()
        yield viz.activations(model, x).html()
        curves = viz.curves({name: [1.0, 2.0]}, title=name)
        yield curves.html()
        with wisp.profiler.profile() as profile, wisp.profiler.record_function(name):
            model(x)
        yield viz.timeline(profile).html()

    names = ["<script>attack()</script>", "'><img src=x onerror='attack()", '"><b onclick="attack()', "<!--<script>", "]]></style><i>"]
    for page in zip(pages("plain"), *(pages(name) for name in names)):
        for text in page[1:]:
            assert _Elements(text).found <= _Elements(page[0]).found


def test_inputs_without_gradient_are_seen():
    """Indices have no gradient, so no edge of the graph leads to them; the operator that saved them is where they go."""

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

        def forward(self, words, unused):
            return self.head(self.table(words))

    picture = viz.graph(Bag(), wisp.tensor([[1, 2, 3]]), wisp.tensor([1]))
    (words,) = (item for item in picture.items if item.module == "input")
    assert (words.title, words.outputs, words.backward) == ("words", [((1, 3), wisp.int64)], "")
    assert [edge.target.title for edge in picture.edges if edge.source is words] == ["table"]
