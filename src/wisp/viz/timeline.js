// Zooms a timeline: the wheel changes the span of time that is shown, dragging moves it.
"use strict";
const svg = document.querySelector("svg.timeline"), whole = Number(svg.dataset.span), width = svg.viewBox.baseVal.width;
const events = [...document.querySelectorAll(".event")].map(group => ({
  start: Number(group.dataset.start), time: Number(group.dataset.time), name: group.dataset.name,
  rect: group.querySelector("rect"), text: group.querySelector("text"), group }));
const memory = document.querySelector(".memory"), points = memory.dataset.points.split(" ").map(p => p.split(",").map(Number));
const ticks = [...document.querySelectorAll(".tick")];
let start = 0, span = whole;
const text = t => t >= 1e6 ? (t / 1e6).toFixed(3) + "s" : t >= 1e3 ? (t / 1e3).toFixed(3) + "ms" : t.toFixed(3) + "us";
function draw() {
  span = Math.min(span, whole);
  start = Math.max(0, Math.min(start, whole - span));
  const x = t => (t - start) / span * width;
  for (const event of events) {
    const a = x(event.start), w = Math.max(0.4, event.time / span * width);
    const visible = a < width && a + w > 0;
    event.group.style.display = visible ? "" : "none";
    if (!visible) continue;
    const from = Math.max(a, 0), shown = Math.min(a + w, width) - from;
    event.rect.setAttribute("x", from);
    event.rect.setAttribute("width", Math.max(0.4, shown));
    event.text.setAttribute("x", from + 4);
    event.text.textContent = event.name.length * 6.2 + 6 < shown ? event.name : "";
  }
  memory.setAttribute("points", points.map(([t, y]) => `${Math.max(-10, Math.min(width + 10, x(t)))},${y}`).join(" "));
  ticks.forEach((tick, i) => tick.textContent = text(start + span * i / ticks.length));
}
const timeAt = event => { const area = svg.getBoundingClientRect(); return start + (event.clientX - area.left) / area.width * span; };
svg.addEventListener("wheel", event => {
  event.preventDefault();
  const at = timeAt(event), factor = Math.exp(event.deltaY * (event.deltaMode ? 0.05 : 0.0015));
  const wider = Math.min(whole, Math.max(1, span * factor));
  start = at - (at - start) * wider / span;
  span = wider;
  draw();
}, { passive: false });
let held = null;
svg.addEventListener("pointerdown", event => { held = timeAt(event); });
window.addEventListener("pointermove", event => { if (held !== null) { start += held - timeAt(event); draw(); } });
window.addEventListener("pointerup", () => { held = null; });
