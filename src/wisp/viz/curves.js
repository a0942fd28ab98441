// Reads values off the curves where the pointer is.
"use strict";
const panels = JSON.parse(document.getElementById("data").textContent);
const svg = document.querySelector(".curves"), [wide1, tall1, left, top1] = svg.dataset.cell.split(" ").map(Number);
function arrange() {  // side by side where there is room
  const all = [...document.querySelectorAll(".panel")], columns = all.length > 1 && innerWidth >= 760 ? 2 : 1;
  all.forEach((panel, i) => panel.setAttribute("transform", `translate(${i % columns * wide1 + left},${top1 + 24 + Math.floor(i / columns) * tall1})`));
  const [w, h] = [columns * wide1, top1 + Math.max(1, Math.ceil(all.length / columns)) * tall1];
  for (const thing of [svg, svg.querySelector(".ground")]) { thing.setAttribute("width", w); thing.setAttribute("height", h); }
  svg.setAttribute("viewBox", `0 0 ${w} ${h}`);
}
window.addEventListener("resize", arrange);
arrange();
document.querySelectorAll(".panel").forEach((panel, i) => {
  const curves = panels[i], reach = panel.querySelector(".reach"), cursor = panel.querySelector(".cursor"), wide = Number(reach.getAttribute("width"));
  const labels = new Map([...panel.querySelectorAll(".last")].map(label => [label.dataset.name, [label, label.textContent]]));
  const steps = Object.values(curves).flat().map(point => point[0]), first = Math.min(...steps), last = Math.max(...steps);
  reach.addEventListener("pointermove", event => {
    const box = reach.getBoundingClientRect(), share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)), step = first + share * (last - first);
    cursor.style.display = "inline";
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, share * wide);
    for (const [name, points] of Object.entries(curves)) {
      const near = points.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a);
      labels.get(name)[0].textContent = `${name.split("/").pop()} ${Number(near[1].toPrecision(4))} at ${near[0]}`;
    }
  });
  reach.addEventListener("pointerleave", () => {
    cursor.style.display = "none";
    for (const [label, text] of labels.values()) label.textContent = text;
  });
});
