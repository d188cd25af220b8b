// What the tests ask of a report in a browser. Defined in the page by the tests; no part of the report.
"use strict";
const el = (id) => document.getElementById(id);
const box = (element) => (({ x, y, width, height }) => [x, y, width, height])(element.getBoundingClientRect());

// What is wrong with the page, in words.
function faults() {
  const found = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`the page is ${wide} wide in a window of ${innerWidth}`);
  if (!document.querySelector("#models figure, #map canvas")) found.push("the models have no figure");
  for (const chart of document.querySelectorAll("svg.chart")) found.push(...chartFaults(chart));
  for (const part of document.querySelectorAll("section")) {
    if (part.getBoundingClientRect().right > innerWidth) found.push(`the section ${part.id} is too wide`);
  }
  // On a phone tables may be moved sideways; a window of a desk has room for them.
  for (const part of innerWidth >= 1200 ? document.querySelectorAll(".scroll") : []) {
    const { scrollWidth, clientWidth } = part, where = part.closest("section")?.id;
    if (scrollWidth > clientWidth + 1) found.push(`a table in ${where} is ${scrollWidth} wide in ${clientWidth}`);
  }
  const { color, backgroundColor } = getComputedStyle(document.body);
  if (color === backgroundColor) found.push("ink and page have one colour");
  return found;
}

function chartFaults(chart) {
  const found = [], name = chart.getAttribute("aria-label"), [, , width, height] = box(chart);
  if (width < 150 || height < 30) found.push(`${name} is ${width} x ${height}`);
  // Dots are lines without length that have round ends.
  const drawn = (shape) => shape.getTotalLength() > 0 || shape.classList.contains("dots");
  if (![...chart.querySelectorAll("rect, circle, path, polyline")].some(drawn)) found.push(`${name} is empty`);
  for (const shape of chart.querySelectorAll("*")) {
    const places = ["x", "y", "width", "height", "d", "points", "cx", "cy"].map((key) => shape.getAttribute(key) ?? "");
    if (/NaN|Infinity|undefined|inf|nan/.test(places.join(" "))) found.push(`${name} has a place that is no number`);
  }
  if (chart.closest(".scroll")) return found; // it may be wider than the window
  for (const text of chart.querySelectorAll("text")) {
    const { width, left, right } = text.getBoundingClientRect();
    if (width && (left < 0 || right > innerWidth + 1)) found.push(`${name}: "${text.textContent}" is cut off`);
  }
  return found;
}

// A number for the pixels of the map: the same picture, the same number; 0 where there is hardly more than one colour.
const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function pixels() {
  const { width, height } = el("map-canvas"), colours = new Set();
  if (!width) return 0;
  Object.assign(copy.canvas, { width, height });
  copy.drawImage(el("map-canvas"), 0, 0);
  let sum = 0;
  for (const pixel of new Uint32Array(copy.getImageData(0, 0, width, height).data.buffer)) {
    sum = (Math.imul(sum, 31) + pixel) | 0;
    colours.add(pixel);
  }
  return colours.size < 5 ? 0 : sum || 1;
}

// The number of a picture other than `before` at rest: slow machines draw moves coarsely, and all points a little later.
const rest = { pixels: 0, since: 0, looks: 0 };
function changed(before) {
  const now = pixels();
  if (now !== rest.pixels) Object.assign(rest, { pixels: now, since: performance.now(), looks: 0 });
  return now !== before && ++rest.looks > 5 && performance.now() - rest.since > 400 ? now : 0;
}

function choose(way) {
  el("map-colour").value = way;
  el("map-colour").dispatchEvent(new Event("change"));
}
const legend = () => [...document.querySelectorAll("#map-legend .what")].map((name) => name.textContent).join();
const shown_text = () => !el("map-tip").hidden && !el("map-ring").hidden && el("map-tip").textContent;

// Where the last dot of the ROC curve lies between the ends of the line by chance: shares to the right and up.
function rocDot() {
  const chart = document.querySelector('svg[aria-label="ROC curve"]');
  const [x, y, width, height] = box(chart.querySelector("polyline"));
  const [left, top, wide, tall] = box([...chart.querySelectorAll("circle")].at(-1));
  return [(left + wide / 2 - x) / width, 1 - (top + tall / 2 - y) / height];
}
