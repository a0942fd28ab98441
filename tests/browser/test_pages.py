"""The pages of wisp.viz in a real browser: they open, fold, zoom, search and show the right shapes."""

import pytest
import screenshots
from chromium import BROWSER, Chromium

import wisp
from wisp import nn, viz
from wisp.nn import functional as F

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def browser():
    browser = Chromium()
    yield browser
    browser.close()


@pytest.fixture
def page(browser, tmp_path):
    model = Net()
    with viz.trace(model) as calls:
        loss = F.cross_entropy(model(wisp.ones(2, 1, 8, 8)), wisp.tensor([1, 2]))
    viz.graph(loss, calls).save(tmp_path / "graph.html")
    browser.open(tmp_path / "graph.html")
    yield browser
    assert browser.complaints() == []


VISIBLE = "[...document.querySelectorAll('.item')].filter(g => g.style.display !== 'none')"
SCALE = "Number(document.getElementById('world').getAttribute('transform').match(/scale\\((.*)\\)/)[1])"
PLACE = "document.getElementById('world').getAttribute('transform').match(/translate\\((.*?)\\)/)[1].split(',').map(Number)"


def texts(page, title):
    """The lines of the visible cards with a title."""
    return page.run(
        f"{VISIBLE}.filter(g => g.querySelector('.name').textContent === {title!r})"
        ".map(g => [...g.querySelectorAll('text')].map(t => t.textContent))"
    )


def test_shapes(page):
    (stem,) = texts(page, "stem Conv2d")
    assert stem[1] == "[2, 4, 8, 8] float32" and stem[2].startswith("weight [4, 1, 3, 3]  |g| ") and stem[3].startswith("bias [4]")
    assert "ConvolutionBackward0" in stem[4] and "test_pages.py:" in stem[5]
    assert [card[1] for card in texts(page, "conv Conv2d")] == ["[2, 4, 8, 8] float32"] * 2
    assert texts(page, "head Linear")[0][1] == "[2, 10] float32"
    assert texts(page, "nll_loss")[0][1:3] == ["loss", "[] float32"]
    boxes = page.run("[...document.querySelectorAll('.box')].map(g => g.dataset.label)")
    assert boxes == ["Net", "blocks", "0", "1"]


def test_nothing_overlaps(page):
    areas = page.run(
        f"{VISIBLE}.map(g => {{ const r = g.querySelector('.card').getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom]; }})"
    )
    for i, a in enumerate(areas):
        for b in areas[:i]:
            assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
    inside = page.run(
        VISIBLE + ".every(g => { const card = g.querySelector('.card').getBoundingClientRect();"
        "return [...g.querySelectorAll('text')].every(t => t.getBoundingClientRect().right <= card.right + 1); })"
    )
    assert inside, "a text is wider than its card"


def test_folds(page):
    folded = page.run("document.querySelector('[data-label=blocks]').id") + "-folded"
    before = page.run(VISIBLE + ".length")
    tall = page.run("boxes.root.tall")
    page.click(*page.middle("[data-label=blocks] .fold .label"))
    assert page.run(VISIBLE + ".length") == before - 8 and page.run("boxes.root.tall") < tall
    assert page.run("document.getElementById('" + folded + "').style.display") == ""
    assert "8 operators" in page.run("document.getElementById('" + folded + "').textContent")
    drawn = page.run(
        "[...document.querySelectorAll('.edge')].filter(e => e.style.display !== 'none').every(e => e.getAttribute('d').length > 5)"
    )
    assert drawn
    page.click(*page.middle("#" + folded))
    assert page.run(VISIBLE + ".length") == before and page.run("boxes.root.tall") == tall
    page.click(*page.middle("[data-depth='0']"))
    assert page.run(VISIBLE + ".length") == 1  # the loss is outside of the model
    page.click(*page.middle("[data-depth='1']"))
    cards = page.run("[...document.querySelectorAll('.folded')].filter(g => g.style.display !== 'none').map(g => g.textContent)")
    assert page.run(VISIBLE + ".length") == 4 and len(cards) == 1  # stem, mean, head, the loss; the blocks are a card
    assert "[2, 4, 8, 8] → [2, 4, 8, 8]" in cards[0] and "Conv2d ×2 · BatchNorm2d ×2 · add ×2 · relu ×2" in cards[0]
    page.click(*page.middle("#depths button:last-child"))
    assert page.run(VISIBLE + ".length") == before
    assert page.run("document.querySelector('#depths .on').textContent") == "all"


def test_zooms_and_pans(page):
    scale = page.run(SCALE)
    at = page.run(PLACE)
    page.wheel(600, 450, -400)
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    larger = page.run(SCALE)
    assert larger > scale
    now = page.run(PLACE)  # what was under the pointer stays there
    assert (600 - at[0]) / scale == pytest.approx((600 - now[0]) / larger)
    page.drag(40, 450, 90, 520)
    moved = page.run(PLACE)
    assert [moved[0] - now[0], moved[1] - now[1]] == pytest.approx([50, 70])
    page.run("begin()")
    assert page.run(SCALE) == pytest.approx(scale)
    page.click(*page.middle("#in"))
    assert page.run(SCALE) == pytest.approx(1.3 * scale)
    page.click(*page.middle("#out"))
    assert page.run(SCALE) == pytest.approx(scale)


def test_details_and_search(page):
    page.click(*page.middle(".item .name"))
    detail = page.run("document.getElementById('detail').textContent")
    assert "saves" in detail and "norm of the gradient" in detail
    page.type("#find", "addmm")
    assert page.run("document.querySelectorAll('.item.found').length") == 1
    page.click(*page.middle("#direction"))
    assert page.run("getComputedStyle(document.querySelector('.edge')).markerStart") == 'url("#up")'


SHOWN = (
    "[...document.querySelectorAll('.item,.folded,.box .frame')].map(g => g.closest('[style*=none]') ? null : g.getBoundingClientRect())"
    ".filter(r => r && r.width).every(r => r.left >= 0 && r.right <= innerWidth && r.top >= 0 && r.bottom <= innerHeight)"
)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    for name in ("graph-resnet50", "graph-gpt"):
        screenshots.PICTURES[name]().save(folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("name", ["graph-resnet50", "graph-gpt"])
@pytest.mark.parametrize("screen", screenshots.SCREENS)
def test_fit_fits(browser, large, name, screen):
    width, height, phone = screenshots.SCREENS[screen]
    browser.screen(width, height, phone=phone)
    browser.open(large / f"{name}.html")
    for depth in ("1", "2", "3"):
        browser.click(*browser.middle(f"[data-depth='{depth}']")) if not phone else browser.run(f"depth({depth})")
        assert browser.run(SHOWN), f"depth {depth}"
    browser.run("depth(deepest)")
    assert browser.run(SHOWN) and browser.run(VISIBLE + ".length") > 170
    browser.screen(1200, 900)
    assert browser.complaints() == []


def test_find_goes_from_hit_to_hit(browser, large):
    browser.screen(1200, 900)
    browser.open(large / "graph-resnet50.html")
    browser.type("#find", "conv2d")
    assert browser.run("document.getElementById('hits').textContent") == "–/53"
    seen = []
    for number in (1, 2, 3):
        browser.key("Enter")
        assert browser.run("document.getElementById('hits').textContent") == f"{number}/53"
        x, y = browser.middle(".current")
        assert 0 < x < 1200 and 60 < y < 900  # it is on the screen, and what was folded around it is open
        seen.append(browser.run("document.querySelector('.current').id"))
    assert len(set(seen)) == 3
    browser.key("Enter", shift=True)
    assert browser.run("document.querySelector('.current').id") == seen[1]
    browser.key("Escape")
    assert browser.run("document.getElementById('hits').textContent + document.querySelectorAll('.dim,.found').length") == "0"
    browser.type("#find", "nothing has this name")
    assert browser.run("document.getElementById('hits').textContent") == "none"


def test_touch(browser, large):
    browser.screen(390, 844, phone=True)
    browser.open(large / "graph-gpt.html")
    scale = browser.run(SCALE)
    browser.touch("touchStart", [(150, 400), (250, 400)])
    browser.touch("touchMove", [(100, 400), (300, 400)])
    browser.touch("touchEnd", [])
    assert browser.run(SCALE) == pytest.approx(2 * scale, rel=0.05)
    before = browser.run(PLACE)
    browser.touch("touchStart", [(200, 400)])
    browser.touch("touchMove", [(200, 300)])
    browser.touch("touchEnd", [])
    assert browser.run(PLACE)[1] - before[1] == pytest.approx(-100, abs=2)
    bar = browser.run("(r => [r.left, r.right, r.height])(document.getElementById('bar').getBoundingClientRect())")
    assert bar[0] >= 0 and bar[1] <= 390 and bar[2] < 70  # one row, that scrolls
    browser.screen(1200, 900)
    assert browser.complaints() == []


def test_dark(browser, tmp_path):
    """By night no picture is bright: the pixels of its ground are dark, those of its texts are not."""
    for name, make in screenshots.PICTURES.items():
        if name in ("graph-resnet50", "graph-gpt"):
            continue
        make().save(tmp_path / "page.html")
        for dark in (False, True):
            browser.screen(900, 700, dark=dark)
            browser.open(tmp_path / "page.html")
            light = browser.brightness()
            assert (light < 90) if dark else (light > 165), f"{name}: {light}"
    browser.screen(1200, 900)


def test_timeline(browser, tmp_path):
    with wisp.profiler.profile(record_shapes=True, with_modules=True) as prof:
        Net()(wisp.ones(1, 1, 8, 8)).sum().backward()
    viz.timeline(prof).save(tmp_path / "timeline.html")
    browser.open(tmp_path / "timeline.html")
    count = "[...document.querySelectorAll('.event')].filter(g => g.style.display !== 'none').length"
    shown = browser.run(count)
    assert shown == len(prof.events())
    x, y = browser.middle("svg")
    browser.wheel(x, y, -1500)
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.run(count) < shown
    browser.click(*browser.middle("#fit"))
    assert browser.run(count) == shown
    browser.click(*browser.middle("#in"))
    assert browser.run("span") == pytest.approx(browser.run("whole") / 1.6)
    browser.click(*browser.middle("#fit"))
    browser.click(*browser.middle(".kind[data-kind=module]"))  # the legend switches kinds off and on
    modules = sum(event.kind == "module" for event in prof.events())
    assert modules == 10 and browser.run(count) == shown - modules
    browser.click(*browser.middle(".kind[data-kind=module]"))
    assert browser.run(count) == shown
    browser.type("#find", "conv2d")
    browser.key("Enter")
    browser.key("Enter")
    assert browser.run("document.getElementById('hits').textContent") == "2/6"  # operators and modules
    x, _ = browser.middle(".current rect")
    assert x == pytest.approx(600, abs=60)
    browser.click(*browser.middle(".current rect"))
    assert "of its own" in browser.run("document.getElementById('detail').textContent")
    assert browser.complaints() == []


def test_curves(browser, tmp_path):
    chart = viz.curves({"loss/train": [3.0, 2.0, 1.0], "loss/valid": [(0, 3.5), (2, 1.5)], "accuracy": [0.1, 0.5, 0.9]})
    chart.save(tmp_path / "curves.html")
    browser.open(tmp_path / "curves.html")
    labels = "[...document.querySelectorAll('.last')].map(t => t.textContent)"
    assert browser.run(labels) == ["train 1", "valid 1.5", "accuracy 0.9"]
    x, y = browser.middle(".reach")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert (
        browser.run(labels)[0] == "train 2 at 1" and browser.run("getComputedStyle(document.querySelector('.cursor')).display") == "inline"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    assert browser.run(labels)[0] == "train 1"
    places = (
        "[...document.querySelectorAll('.reach')].map(g => g.getBoundingClientRect()).map(r => [Math.round(r.left), Math.round(r.top)])"
    )
    assert len({top for _, top in browser.run(places)}) == 1  # side by side
    browser.screen(390, 844, phone=True)
    browser.open(tmp_path / "curves.html")
    assert len({left for left, _ in browser.run(places)}) == 1  # below each other
    browser.screen(1200, 900)
    assert browser.complaints() == []


def test_charts_and_notebook(browser, tmp_path):
    model = Net()
    model(wisp.ones(2, 1, 8, 8)).sum().backward()
    page = "".join(
        [
            viz.gradient_flow(model).svg(),
            viz.activations(model, wisp.ones(2, 1, 8, 8)).svg(),
            wisp.randn(3, 4)._repr_html_(),
            model._repr_html_(),
            viz.summary(model, wisp.ones(1, 1, 8, 8))._repr_html_(),
            viz.image(wisp.rand(3, 8, 8))._repr_html_(),
            viz.graph(model, wisp.ones(1, 1, 8, 8))._repr_html_(),
        ]
    )
    (tmp_path / "all.html").write_text("<!DOCTYPE html><meta charset='utf-8'>" + page)
    browser.open(tmp_path / "all.html")
    assert browser.run("document.querySelectorAll('svg').length") == 2 and browser.run("document.querySelector('img').naturalWidth") == 8
    assert browser.run("document.querySelector('details').open") is True
    browser.run("document.querySelector('summary').click()")
    assert browser.run("document.querySelector('details').open") is False
    assert browser.complaints() == []
