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
function fold(id, folded) { boxes[id].folded = folded; draw(); }

// --- view
let view = { x: 0, y: 0, k: 1 };
function look() { world.setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.k})`); }
function zoom(factor, x, y) {
  const k = Math.min(8, Math.max(0.03, view.k * factor));
  view = { x: x - (x - view.x) * k / view.k, y: y - (y - view.y) * k / view.k, k };
  look();
}
const middle = () => [svg.clientWidth / 2, svg.clientHeight / 2];
function fit() {
  const w = boxes.root.w, h = boxes.root.tall, top = 58;
  const k = Math.min(1.25, (svg.clientWidth - 40) / w, (svg.clientHeight - top - 20) / h);
  view = { x: (svg.clientWidth - w * k) / 2, y: top + Math.max(0, (svg.clientHeight - top - h * k) / 2), k };
  if (k < 0.55) view = { k: 0.85, x: svg.clientWidth / 2 - boxes.root.x * 0.85, y: top };  // too tall to read as a whole: begin at the top
  look();
}
svg.removeAttribute("viewBox");
document.querySelector(".ground").remove();
svg.addEventListener("wheel", event => {
  event.preventDefault();
  const area = svg.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - area.left, event.clientY - area.top);
}, { passive: false });
let drag = null;
svg.addEventListener("pointerdown", event => { drag = { x: event.clientX - view.x, y: event.clientY - view.y, moved: false, at: [event.clientX, event.clientY] }; });
window.addEventListener("pointermove", event => {
  if (!drag) return;
  if (Math.hypot(event.clientX - drag.at[0], event.clientY - drag.at[1]) > 4) drag.moved = true;
  if (!drag.moved) return;
  svg.classList.add("moving");
  view.x = event.clientX - drag.x; view.y = event.clientY - drag.y;
  look();
});
let moved = false;
window.addEventListener("pointerup", () => { moved = drag !== null && drag.moved; drag = null; svg.classList.remove("moving"); });

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
function foldAll(folded) {
  for (const id in boxes) if (id !== "root") boxes[id].folded = folded;
  draw();
  fit();
}
byId("fold").onclick = () => foldAll(true);
byId("open").onclick = () => foldAll(false);
byId("direction").onclick = event => event.target.classList.toggle("on", svg.classList.toggle("backward"));
byId("find").oninput = event => {
  const text = event.target.value.toLowerCase();
  for (const element of document.querySelectorAll(".item,.folded")) {
    const hit = text && element.textContent.toLowerCase().includes(text);
    element.classList.toggle("found", Boolean(hit));
    element.classList.toggle("dim", Boolean(text) && !hit);
  }
};
window.addEventListener("resize", fit);
draw();
fit();
