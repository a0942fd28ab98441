"""The pages of wisp.viz in a real browser: they open, fold, zoom, search and show the right shapes."""

import pytest
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
    page.click(*page.middle("#fold"))
    assert page.run(VISIBLE + ".length") == 1  # the loss is outside of the model
    page.click(*page.middle("#open"))
    assert page.run(VISIBLE + ".length") == before


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
    page.click(*page.middle("#fit"))
    assert page.run(SCALE) == pytest.approx(scale)
    page.click(*page.middle("#in"))
    assert page.run(SCALE) == pytest.approx(1.3 * scale)
    page.click(*page.middle("#out"))
    assert page.run(SCALE) == pytest.approx(scale)


def test_details_and_search(page):
    page.click(*page.middle(".item .name"))
    detail = page.run("document.getElementById('detail').textContent")
    assert "saves" in detail and "norm of the gradient" in detail
    page.run("const find = document.getElementById('find'); find.value = 'addmm'; find.dispatchEvent(new Event('input'))")
    assert page.run("document.querySelectorAll('.item.found').length") == 1
    page.click(*page.middle("#direction"))
    assert page.run("getComputedStyle(document.querySelector('.edge')).markerStart") == 'url("#up")'


def test_timeline(browser, tmp_path):
    with wisp.profiler.profile(record_shapes=True) as prof:
        Net()(wisp.ones(1, 1, 8, 8)).sum().backward()
    viz.timeline(prof).save(tmp_path / "timeline.html")
    browser.open(tmp_path / "timeline.html")
    count = "[...document.querySelectorAll('.event')].filter(g => g.style.display !== 'none').length"
    shown = browser.run(count)
    assert shown == len(prof.events())
    x, y = browser.middle("svg")
    browser.wheel(x, y, -1500)
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.run(count) < shown and browser.complaints() == []


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
