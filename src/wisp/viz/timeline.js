// Zooms and searches a timeline: the wheel (or two fingers) changes the span of time that is shown, dragging moves it. Heights are as drawn;
// everything gets its x again, for the width that the page has.
"use strict";
const svg = document.querySelector("svg.timeline"), whole = Number(svg.dataset.span), tall = svg.viewBox.baseVal.height;
const byId = id => document.getElementById(id);
const events = [...document.querySelectorAll(".event")].map(group => ({
  start: Number(group.dataset.start), time: Number(group.dataset.time), name: group.dataset.name, kind: group.dataset.kind,
  rect: group.querySelector("rect"), text: group.querySelector("text"), group }));
const memory = document.querySelector(".memory"), points = memory.dataset.points.split(" ").map(p => p.split(",").map(Number));
const ticks = [...document.querySelectorAll(".tick")], lines = [...document.querySelectorAll(".grid")], off = new Set();
let start = 0, span = whole, width = 1160;
const text = t => t >= 1e6 ? (t / 1e6).toFixed(3) + "s" : t >= 1e3 ? (t / 1e3).toFixed(3) + "ms" : t.toFixed(1) + "us";
function draw() {
  span = Math.min(span, whole);
  start = Math.max(0, Math.min(start, whole - span));
  width = svg.clientWidth || width;
  svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  svg.setAttribute("height", tall);
  svg.querySelector(".ground").setAttribute("width", width);
  const x = t => (t - start) / span * width;
  for (const event of events) {
    const a = x(event.start), w = Math.max(0.4, event.time / span * width);
    const visible = a < width && a + w > 0 && !off.has(event.kind);
    event.group.style.display = visible ? "" : "none";
    if (!visible) continue;
    const from = Math.max(a, 0), shown = Math.min(a + w, width) - from, room = Math.floor((shown - 6) / 6.2);
    event.rect.setAttribute("x", from);
    event.rect.setAttribute("width", Math.max(0.4, shown));
    event.text.setAttribute("x", from + 4);
    event.text.textContent = event.name.length <= room ? event.name : room > 6 ? event.name.slice(0, room - 1) + "…" : "";
  }
  memory.setAttribute("points", points.map(([t, y]) => `${Math.max(-10, Math.min(width + 10, x(t)))},${y}`).join(" "));
  ticks.forEach((tick, i) => {
    const at = width * i / ticks.length;
    for (const end of ["x1", "x2"]) lines[i].setAttribute(end, at);
    tick.setAttribute("x", at + 3);
    tick.textContent = width < 700 && i % 2 ? "" : text(start + span * i / ticks.length);
  });
}
function zoom(factor, at) {
  const wider = Math.min(whole, Math.max(1, span * factor));
  start = at - (at - start) * wider / span;
  span = wider;
  draw();
}
const timeAt = x => { const area = svg.getBoundingClientRect(); return start + (x - area.left) / area.width * span; };
svg.addEventListener("wheel", event => {
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { start += (event.deltaX || event.deltaY) / width * span; draw(); }
  else zoom(Math.exp(event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), timeAt(event.clientX));
  event.preventDefault();
}, { passive: false });
const pointers = new Map();
let held = null, apart = 1, moved = false;
const centre = () => { const all = [...pointers.values()]; return all.reduce((a, b) => a + b, 0) / all.length; };
const spread = () => { const [a, b] = [...pointers.values()]; return b === undefined ? 1 : Math.max(10, Math.abs(a - b)); };
const hold = () => { if (pointers.size) { held = timeAt(centre()); apart = spread(); } };
svg.addEventListener("pointerdown", event => { if (!pointers.size) moved = false; pointers.set(event.pointerId, event.clientX); hold(); });
window.addEventListener("pointermove", event => {
  if (!pointers.has(event.pointerId)) return;
  if (Math.abs(event.clientX - pointers.get(event.pointerId)) > 1) moved = true;
  pointers.set(event.pointerId, event.clientX);
  if (pointers.size > 1) { zoom(apart / spread(), held); apart = spread(); }
  start += held - timeAt(centre());
  draw();
});
for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, event => { pointers.delete(event.pointerId); hold(); });

// --- toolbar
byId("in").onclick = () => zoom(1 / 1.6, start + span / 2);
byId("out").onclick = () => zoom(1.6, start + span / 2);
byId("fit").onclick = () => { [start, span] = [0, whole]; draw(); };
for (const button of document.querySelectorAll(".kind"))
  button.onclick = () => { button.classList.toggle("off", !off.delete(button.dataset.kind) && Boolean(off.add(button.dataset.kind))); draw(); };
let hits = [], at = -1;
const told = () => { byId("hits").textContent = byId("find").value ? (hits.length ? `${at + 1 || "–"}/${hits.length}` : "none") : ""; };
byId("find").oninput = event => {
  const wanted = event.target.value.toLowerCase();
  hits = events.filter(one => wanted && one.name.toLowerCase().includes(wanted)).sort((a, b) => a.start - b.start);
  at = -1;
  for (const one of events) {
    one.group.classList.toggle("dim", Boolean(wanted) && !hits.includes(one));
    one.group.classList.remove("current");
  }
  told();
};
byId("find").onkeydown = event => {
  if (event.key === "Escape") { event.target.value = ""; event.target.oninput(event); }
  if (event.key !== "Enter" || !hits.length) return;
  at = (at + (event.shiftKey ? hits.length - 1 + (at < 0) : 1)) % hits.length;
  document.querySelectorAll(".current").forEach(group => group.classList.remove("current"));
  const hit = hits[at];
  hit.group.classList.add("current");
  span = Math.min(whole, Math.max(hit.time * 8, whole / 500));
  start = hit.start + hit.time / 2 - span / 2;
  draw();
  told();
};
svg.addEventListener("click", event => {
  if (moved) return;
  const group = event.target.closest(".event"), detail = byId("detail");
  detail.style.display = group ? "block" : "none";
  if (group) detail.textContent = group.querySelector("title").textContent;
});
window.addEventListener("resize", draw);
draw();
