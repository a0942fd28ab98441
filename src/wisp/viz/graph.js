// Folds, zooms and searches the graph that is drawn in the page. x is fixed; folding a box changes heights, so `place`
// (as in _layout.py) gives everything its y again, and edges are drawn anew.
"use strict";
const { boxes, leaves, routes } = JSON.parse(document.getElementById("data").textContent);
const HEADER = 26, GAP = 30, PAD = 14;
const svg = document.querySelector("svg"), world = document.getElementById("world"), detail = document.getElementById("detail");
const byId = id => document.getElementById(id);

// --- places
function height(id) {
  const box = boxes[id];
  if (!box) return leaves[id].h;
  if (box.folded) return box.h;
  const tall = box.ranks.map(rank => Math.max(0, ...rank.map(height)));
  return box.tall = HEADER + tall.reduce((a, b) => a + b, 0) + GAP * Math.max(0, tall.length - 1) + PAD;
}
function place(id, y) {
  const box = boxes[id];
  box.y = y;
  height(id);
  y += HEADER;
  box.tops = [];
  for (const rank of box.ranks) {
    const tall = Math.max(0, ...rank.map(height));
    box.tops.push([y, y + tall]);
    for (const child of rank) {
      const top = y + (tall - height(child)) / 2;
      if (boxes[child]) place(child, top); else leaves[child].y = top;
    }
    y += tall + GAP;
  }
}
const parentOf = id => (boxes[id] || leaves[id]).parent;
function shown(id) {  // itself, or the outermost folded box around it
  let found = id;
  for (let around = parentOf(id); around; around = parentOf(around)) if (boxes[around].folded) found = around;
  return found;
}
const hidden = id => shown(id) !== id;

function path(points) {
  let [x, y] = points[0], d = `M${x},${y}`;
  for (const [a, b] of points.slice(1)) {
    d += Math.abs(a - x) < 0.5 ? `L${a},${b}` : `C${x},${(y + b) / 2} ${a},${(y + b) / 2} ${a},${b}`;
    x = a; y = b;
  }
  return d;
}
function put(element, x, y, visible) {
  element.style.display = visible ? "" : "none";
  element.setAttribute("transform", `translate(${x},${y})`);
}
function draw() {
  place("root", 0);
  for (const [id, leaf] of Object.entries(leaves)) put(byId(id), leaf.x - leaf.w / 2, leaf.y, !hidden(id));
  for (const [id, box] of Object.entries(boxes)) {
    if (id === "root") continue;
    const frame = byId(id);
    put(frame, box.x - box.w / 2, box.y, !box.folded && !hidden(id));
    frame.querySelector(".frame").setAttribute("height", box.tall || HEADER);
    put(byId(id + "-folded"), box.x - box.least / 2, box.y, box.folded && !hidden(id));
  }
  routes.forEach((route, i) => {
    const edge = byId("e" + i), source = shown(route.from), target = shown(route.to);
    edge.style.display = source === target ? "none" : "";
    if (source === target) return;
    const a = boxes[source] || leaves[source], b = boxes[target] || leaves[target];
    const points = [[a.x + (source === route.from ? route.out : 0), a.y + height(source)]];
    for (const [box, rank, x] of route.bends)
      if (!boxes[box].folded && !hidden(box)) { const [top, bottom] = boxes[box].tops[rank]; points.push([x, top], [x, bottom]); }
    points.push([b.x + (target === route.to ? route.in : 0), b.y]);
    edge.setAttribute("d", path(points));
  });
}
function fold(id, folded) { boxes[id].folded = folded; draw(); mark(); }

// --- view
let view = { x: 0, y: 0, k: 1 };
function look() { world.setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.k})`); }
function zoom(factor, x, y) {
  const k = Math.min(8, Math.max(0.01, view.k * factor));
  view = { x: x - (x - view.x) * k / view.k, y: y - (y - view.y) * k / view.k, k };
  look();
}
const middle = () => [svg.clientWidth / 2, svg.clientHeight / 2];
const bar = () => byId("bar").offsetTop + byId("bar").offsetHeight + 10;  // what the toolbar takes at the top
function extent() {  // of what is shown: folding makes the picture narrower
  let [left, right, bottom] = [Infinity, -Infinity, 0];
  const add = (thing, w, h) => { left = Math.min(left, thing.x - w / 2); right = Math.max(right, thing.x + w / 2); bottom = Math.max(bottom, thing.y + h); };
  for (const [id, leaf] of Object.entries(leaves)) if (!hidden(id)) add(leaf, leaf.w, leaf.h);
  for (const [id, box] of Object.entries(boxes)) if (id !== "root" && !hidden(id)) add(box, box.folded ? box.least : box.w, box.folded ? box.h : box.tall);
  return { left, right, bottom };
}
function fit() {
  const { left, right, bottom } = extent(), top = bar(), w = right - left, h = bottom;
  const k = Math.min(1.25, (svg.clientWidth - 24) / w, (svg.clientHeight - top - 16) / h);
  view = { x: (svg.clientWidth - w * k) / 2 - left * k, y: top + Math.max(0, (svg.clientHeight - top - 16 - h * k) / 2), k };
  look();
}
function begin() {  // all of it if that can be read, else its top
  fit();
  if (view.k >= 0.45) return;
  const { left, right } = extent(), k = Math.min(0.85, Math.max(0.45, (svg.clientWidth - 24) / (right - left)));
  view = { k, x: svg.clientWidth / 2 - (left + right) / 2 * k, y: bar() };
  look();
}
function show(id) {  // open what lies around something, and bring it to the middle
  for (let around = parentOf(id); around; around = parentOf(around)) boxes[around].folded = false;
  draw();
  mark();
  const thing = leaves[id] || boxes[id], k = Math.max(view.k, 0.8);
  view = { k, x: svg.clientWidth / 2 - thing.x * k, y: (svg.clientHeight + bar()) / 2 - (thing.y + height(id) / 2) * k };
  look();
}
svg.removeAttribute("viewBox");
document.querySelector(".ground").remove();
svg.addEventListener("wheel", event => {
  event.preventDefault();
  const area = svg.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - area.left, event.clientY - area.top);
}, { passive: false });
// One pointer moves, two zoom.
const pointers = new Map();
let moved = false, from = null;
const centre = () => { const all = [...pointers.values()]; return [all.reduce((a, p) => a + p[0], 0) / all.length, all.reduce((a, p) => a + p[1], 0) / all.length]; };
const spread = () => { const [a, b] = [...pointers.values()]; return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 1; };
function hold() { from = pointers.size ? { at: centre(), spread: spread(), view: { ...view } } : null; }
svg.addEventListener("pointerdown", event => {
  if (!pointers.size) moved = false;
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
  hold();
});
window.addEventListener("pointermove", event => {
  if (!pointers.has(event.pointerId)) return;
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
  const [x, y] = centre();
  if (Math.hypot(x - from.at[0], y - from.at[1]) > 4 || pointers.size > 1) moved = true;
  if (!moved) return;
  svg.classList.add("moving");
  const k = Math.min(8, Math.max(0.01, from.view.k * (pointers.size > 1 ? spread() / from.spread : 1)));
  view = { k, x: x - (from.at[0] - from.view.x) * k / from.view.k, y: y - (from.at[1] - from.view.y) * k / from.view.k };
  look();
});
for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, event => { pointers.delete(event.pointerId); hold(); svg.classList.remove("moving"); });

// --- clicks
svg.addEventListener("click", event => {
  if (moved) return;
  const opened = event.target.closest(".folded"), closed = event.target.closest(".fold"), item = event.target.closest(".item");
  if (opened) fold(opened.id.replace("-folded", ""), false);
  else if (closed) fold(closed.parentNode.id, true);
  document.querySelectorAll(".chosen").forEach(element => element.classList.remove("chosen"));
  detail.style.display = item ? "block" : "none";
  if (item) {
    item.classList.add("chosen");
    detail.textContent = item.querySelector("title").textContent;
  }
});
byId("in").onclick = () => zoom(1.3, ...middle());
byId("out").onclick = () => zoom(1 / 1.3, ...middle());
byId("fit").onclick = fit;
byId("direction").onclick = event => event.target.classList.toggle("on", svg.classList.toggle("backward"));

// --- depth: how many levels of modules are open
const level = id => { let n = 0; for (let around = parentOf(id); around; around = parentOf(around)) n++; return n; };
const deepest = Math.max(0, ...Object.keys(boxes).map(id => id === "root" ? 0 : level(id)));
function depth(levels) {
  for (const id in boxes) if (id !== "root") boxes[id].folded = level(id) > levels;
  draw();
  fit();
  mark();
}
function mark() {  // the depth to which modules are open, if it is one
  const inner = Object.keys(boxes).filter(id => id !== "root");
  for (const button of document.querySelectorAll("#depths button"))
    button.classList.toggle("on", inner.every(id => boxes[id].folded === level(id) > Number(button.dataset.depth)));
}
for (let levels = 0; levels <= deepest; levels++) {
  const button = document.createElement("button");
  [button.dataset.depth, button.textContent] = [levels, levels < deepest || !levels ? levels : "all"];
  button.title = levels ? `open ${levels} levels of modules` : "fold all modules";
  button.onclick = () => depth(levels);
  byId("depths").append(button);
}
if (!deepest) byId("depths").style.display = "none";
mark();

// --- find: hits are counted wherever they lie; Enter opens what is around the next one and goes there
let hits = [], at = -1;
function told() { byId("hits").textContent = byId("find").value ? (hits.length ? `${at + 1 || "–"}/${hits.length}` : "none") : ""; }
byId("find").oninput = event => {
  const text = event.target.value.toLowerCase();
  [hits, at] = [[], -1];
  for (const element of document.querySelectorAll(".item,.folded")) {
    const hit = Boolean(text) && element.textContent.toLowerCase().includes(text);
    if (hit && leaves[element.id]) hits.push(element.id);
    element.classList.toggle("found", hit);
    element.classList.toggle("dim", Boolean(text) && !hit);
    element.classList.remove("current");
  }
  hits.sort((a, b) => leaves[a].y - leaves[b].y || leaves[a].x - leaves[b].x);
  told();
};
byId("find").onkeydown = event => {
  if (event.key === "Escape") { event.target.value = ""; event.target.oninput(event); }
  if (event.key !== "Enter" || !hits.length) return;
  at = (at + (event.shiftKey ? hits.length - 1 + (at < 0) : 1)) % hits.length;
  document.querySelectorAll(".current").forEach(element => element.classList.remove("current"));
  byId(hits[at]).classList.add("current");
  show(hits[at]);
  told();
};
window.addEventListener("resize", begin);
draw();
begin();
