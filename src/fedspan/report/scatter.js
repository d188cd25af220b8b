// The map: many points on a canvas that moves, zooms and tells what is under the pointer.
// Points are blended into the pixels directly, which stays fluid at 100,000 where a canvas call for each would not.
"use strict";
(() => {
  const el = (id) => document.getElementById(id);
  const canvas = el("map-canvas");
  if (!canvas) return;
  const data = JSON.parse(el("map-data").textContent);
  const KINDS = { f4: Float32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
  const unpack = ({ kind, data: text }) => new KINDS[kind](Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);

  const points = unpack(data.points), rows = unpack(data.rows), n = rows.length;
  const ways = {};
  for (const [name, way] of Object.entries(data.ways)) ways[name] = { ...way, codes: unpack(way.codes) };
  const [xLabel, yLabel] = data.axes;
  const context = canvas.getContext("2d"), ring = el("map-ring"), tip = el("map-tip"), legend = el("map-legend");

  // Drawn in a shuffled order, so that no site lies on top of the others only because its name comes last.
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1, state = 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 4294967296) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }

  // ---- The extent of the data, and a uniform grid over it to find the point under the pointer.
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < n; i++) {
    x0 = Math.min(x0, points[2 * i]); x1 = Math.max(x1, points[2 * i]);
    y0 = Math.min(y0, points[2 * i + 1]); y1 = Math.max(y1, points[2 * i + 1]);
  }
  const width = x1 - x0 || 1, height = y1 - y0 || 1;
  const side = Math.max(1, Math.min(512, Math.ceil(Math.sqrt(n) / 2)));
  const column = (x) => Math.max(0, Math.min(side - 1, Math.floor(((x - x0) / width) * side)));
  const line = (y) => Math.max(0, Math.min(side - 1, Math.floor(((y - y0) / height) * side)));
  const cell = (i) => line(points[2 * i + 1]) * side + column(points[2 * i]);
  const starts = new Uint32Array(side * side + 1), members = new Uint32Array(n);
  for (let i = 0; i < n; i++) starts[cell(i) + 1]++;
  for (let c = 0; c < side * side; c++) starts[c + 1] += starts[c];
  const filled = starts.slice();
  for (let i = 0; i < n; i++) members[filled[cell(i)]++] = i;

  // ---- Colours and markers: ten colours, then the next shape.
  const SHAPES = [
    "M0-1A1 1 0 1 1 0 1A1 1 0 1 1 0-1Z",
    "M-.9-.9H.9V.9H-.9Z",
    "M0-1.15L1.1.85H-1.1Z",
    "M0-1.25L1.05 0L0 1.25L-1.05 0Z",
    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
  ];
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colourOf = (code) => (way.ordered ? `--r${Math.min(code, 8)}` : `--c${code % 10}`);
  const shapeOf = (code) => (way.ordered ? 0 : Math.floor(code / 10) % SHAPES.length);
  const packedColour = (name) => {
    pen.canvas.width = pen.canvas.height = 1;
    pen.fillStyle = variable(name);
    pen.fillRect(0, 0, 1, 1);
    return new Int32Array(pen.getImageData(0, 0, 1, 1).data.buffer)[0];
  };
  const stamp = (shape, radius) => {
    const half = Math.ceil(radius * 1.3), wide = 2 * half + 1;
    pen.canvas.width = pen.canvas.height = wide;
    pen.translate(half + 0.5, half + 0.5);
    pen.scale(radius, radius);
    pen.fill(new Path2D(SHAPES[shape]));
    const alpha = pen.getImageData(0, 0, wide, wide).data, dots = [];
    for (let i = 0; i < wide * wide; i++) if (alpha[4 * i + 3]) dots.push([(i % wide) - half, Math.floor(i / wide) - half, alpha[4 * i + 3] / 255]);
    return dots;
  };

  // ---- The view: the data's point in the middle, and pixels per unit along each axis.
  const LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 44, PAD = 40;
  let way = ways.site, alone = -1, looked = null, frame = 0;
  let wide = 0, tall = 0, dpr = 1, image = null, pixels = null;
  const view = { x: 0, y: 0, kx: 1, ky: 1, zoom: 1, fx: 1, fy: 1 };
  const toX = (x) => LEFT + wide / 2 + (x - view.x) * view.kx;
  const toY = (y) => TOP + tall / 2 - (y - view.y) * view.ky;
  const request = () => { frame = frame || requestAnimationFrame(draw); };
  const look = (zoom) => {
    view.zoom = Math.max(0.5, Math.min(20000, zoom));
    view.kx = view.fx * view.zoom;
    view.ky = view.fy * view.zoom;
  };
  const fit = () => {
    view.fx = (0.94 * wide) / width;
    view.fy = (0.94 * tall) / height;
    if (data.equal) view.fx = view.fy = Math.min(view.fx, view.fy);
    look(view.zoom);
  };
  const showAll = () => { view.x = (x0 + x1) / 2; view.y = (y0 + y1) / 2; look(1); hide(); request(); };
  const zoomAt = (factor, px, py) => {
    const x = view.x + (px - LEFT - wide / 2) / view.kx, y = view.y - (py - TOP - tall / 2) / view.ky;
    look(view.zoom * factor);
    view.x = x - (px - LEFT - wide / 2) / view.kx;
    view.y = y + (py - TOP - tall / 2) / view.ky;
    hide(); request();
  };
  const zoomMiddle = (factor) => zoomAt(factor, LEFT + wide / 2, TOP + tall / 2);
  const move = (dx, dy) => { view.x -= dx / view.kx; view.y += dy / view.ky; hide(); request(); };

  const resize = () => {
    const box = canvas.getBoundingClientRect();
    if (!box.width) return;
    dpr = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = Math.round(box.width * dpr);
    canvas.height = Math.round(box.height * dpr);
    wide = box.width - LEFT - RIGHT;
    tall = box.height - TOP - BOTTOM;
    image = new ImageData(Math.ceil(wide * dpr) + 2 * PAD, Math.ceil(tall * dpr) + 2 * PAD);
    pixels = new Int32Array(image.data.buffer);
    fit(); hide(); request();
  };

  // ---- Drawing.
  function draw() {
    frame = 0;
    if (!image) return;
    const base = n > 30000 ? 1.3 : n > 8000 ? 1.9 : n > 2500 ? 2.6 : n > 400 ? 3.2 : 4.2;
    const radius = Math.min(base * Math.pow(Math.max(1, view.zoom), 0.3), 5.5) * dpr;
    const strength = n > 30000 ? 0.6 : n > 2500 ? 0.75 : 0.85;
    const stride = image.width;
    // Seven bits of opacity: then the products of two channels at once fit into 31 bits.
    const stamps = SHAPES.map((_, shape) => {
      const dots = stamp(shape, radius);
      return { place: Int32Array.from(dots, ([dx, dy]) => dy * stride + dx), opacity: Int32Array.from(dots, (d) => Math.round(d[2] * strength * 128)) };
    });
    pixels.fill(packedColour("--panel"));
    const colours = Int32Array.from(way.names, (_, code) => packedColour(colourOf(code)));
    const shapes = Uint8Array.from(way.names, (_, code) => shapeOf(code));
    const faint = packedColour("--line"), codes = way.codes;
    const ax = view.kx * dpr, bx = PAD + (wide / 2 - view.x * view.kx) * dpr;
    const ay = -view.ky * dpr, by = PAD + (tall / 2 + view.y * view.ky) * dpr;
    const right = image.width - PAD, bottom = image.height - PAD;
    const paint = (chosen, quiet) => {
      for (let k = 0; k < n; k++) {
        const i = order[k], code = codes[i];
        if (chosen >= 0 && (code === chosen) === quiet) continue;
        const px = points[2 * i] * ax + bx, py = points[2 * i + 1] * ay + by;
        if (!(px >= PAD && px < right && py >= PAD && py < bottom)) continue;
        const at = (py | 0) * stride + (px | 0), colour = quiet ? faint : colours[code];
        const { place, opacity } = stamps[shapes[code]];
        const rb = colour & 0xff00ff, g = colour & 0xff00;
        for (let d = 0; d < place.length; d++) {
          const p = at + place[d], a = opacity[d], b = 128 - a, below = pixels[p];
          pixels[p] = -16777216 | (((rb * a + (below & 0xff00ff) * b) >> 7) & 0xff00ff) | (((g * a + (below & 0xff00) * b) >> 7) & 0xff00);
        }
      }
    };
    if (alone >= 0) paint(alone, true);
    paint(alone, false);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.putImageData(image, LEFT * dpr - PAD, TOP * dpr - PAD, PAD, PAD, Math.ceil(wide * dpr), Math.ceil(tall * dpr));
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    axes();
  }

  function ticks(low, high, most) {
    const rough = (high - low) / most, power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = power * [1, 2, 5, 10].find((f) => f * power >= rough * 0.999999);
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), found = [];
    const huge = Math.max(Math.abs(low), Math.abs(high)) >= 1e6 || decimals > 4;
    for (let i = Math.ceil(low / step); i <= high / step && found.length < 50; i++) {
      const text = huge ? (i * step).toPrecision(5).replace(/\.?0+($|e)/, "$1") : (i * step).toFixed(decimals);
      found.push([i * step, Number(text) === 0 ? "0" : text.replace("-", "\u2212")]);
    }
    return found;
  }

  function axes() {
    context.strokeStyle = variable("--line");
    context.fillStyle = variable("--soft");
    context.font = "12px " + getComputedStyle(document.body).fontFamily;
    context.lineWidth = 1;
    context.beginPath();
    context.textAlign = "center";
    for (const [x, text] of ticks(view.x - wide / 2 / view.kx, view.x + wide / 2 / view.kx, Math.max(2, wide / 90))) {
      const px = Math.round(toX(x)) + 0.5;
      context.moveTo(px, TOP + tall);
      context.lineTo(px, TOP + tall + 5);
      if (px > LEFT + 12 && px < LEFT + wide - 12) context.fillText(text, px, TOP + tall + 18);
    }
    context.textAlign = "right";
    for (const [y, text] of ticks(view.y - tall / 2 / view.ky, view.y + tall / 2 / view.ky, Math.max(2, tall / 70))) {
      const py = Math.round(toY(y)) + 0.5;
      context.moveTo(LEFT - 5, py);
      context.lineTo(LEFT, py);
      if (py > TOP + 6) context.fillText(text, LEFT - 8, py + 4, LEFT - 26);
    }
    context.moveTo(LEFT - 0.5, TOP);
    context.lineTo(LEFT - 0.5, TOP + tall + 0.5);
    context.lineTo(LEFT + wide, TOP + tall + 0.5);
    context.stroke();
    context.textAlign = "center";
    context.fillText(xLabel, LEFT + wide / 2, TOP + tall + 37, wide);
    context.save();
    context.translate(14, TOP + tall / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(yLabel, 0, 0, tall);
    context.restore();
  }

  // ---- What is under the pointer.
  function nearest(px, py, reach) {
    const x = view.x + (px - LEFT - wide / 2) / view.kx, y = view.y - (py - TOP - tall / 2) / view.ky;
    let best = -1, least = reach * reach;
    for (let r = line(y - reach / view.ky); r <= line(y + reach / view.ky); r++) {
      const first = r * side + column(x - reach / view.kx), last = r * side + column(x + reach / view.kx);
      for (let m = starts[first]; m < starts[last + 1]; m++) {
        const i = members[m];
        if (alone >= 0 && way.codes[i] !== alone) continue;
        const dx = (points[2 * i] - x) * view.kx, dy = (points[2 * i + 1] - y) * view.ky;
        if (dx * dx + dy * dy <= least) { least = dx * dx + dy * dy; best = i; }
      }
    }
    return best;
  }
  function hide() { if (looked !== null) { looked = null; ring.hidden = tip.hidden = true; } }
  function tell(px, py, reach) {
    const inside = px >= LEFT && px <= LEFT + wide && py >= TOP && py <= TOP + tall;
    const i = inside ? nearest(px, py, reach) : -1;
    if (i < 0) return hide();
    if (i === looked) return;
    looked = i;
    const words = [ways.site.names[ways.site.codes[i]], "row " + rows[i]];
    if (ways.label) words.push("label " + ways.label.names[ways.label.codes[i]]);
    tip.textContent = words.join("\n");
    ring.hidden = tip.hidden = false;
    const x = toX(points[2 * i]), y = toY(points[2 * i + 1]);
    ring.style.left = x + "px";
    ring.style.top = y + "px";
    const left = x + 14 + tip.offsetWidth > LEFT + wide ? x - 14 - tip.offsetWidth : x + 14;
    const top = Math.min(Math.max(y - tip.offsetHeight / 2, 4), TOP + tall - tip.offsetHeight);
    tip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
  }

  // ---- Pointer, wheel, keys. One finger scrolls the page, two move and zoom the map.
  const held = new Map();
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = [...held.values()];
    return { x: (ax + bx) / 2, y: (ay + by) / 2, d: Math.hypot(ax - bx, ay - by) || 1 };
  };
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, place(event));
    if (event.pointerType === "mouse") { canvas.setPointerCapture(event.pointerId); canvas.classList.add("moving"); }
    else { hide(); tell(...place(event), 20); }
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event), before = held.get(event.pointerId);
    if (!before) { if (event.pointerType === "mouse") tell(...now, 10); return; }
    if (held.size === 2) {
      const old = spread();
      held.set(event.pointerId, now);
      const fresh = spread();
      move(fresh.x - old.x, fresh.y - old.y);
      zoomAt(fresh.d / old.d, fresh.x, fresh.y);
    } else {
      held.set(event.pointerId, now);
      if (event.pointerType === "mouse") move(now[0] - before[0], now[1] - before[1]);
    }
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => { held.delete(event.pointerId); canvas.classList.remove("moving"); });
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });

  // A wheel that is scrolling the page goes on doing so when the map passes under the pointer.
  let scrolled = -1000;
  window.addEventListener("wheel", (event) => { if (event.target !== canvas) scrolled = event.timeStamp; }, { passive: true });
  canvas.addEventListener("wheel", (event) => {
    if (event.timeStamp - scrolled < 300) { scrolled = event.timeStamp; return; }
    event.preventDefault();
    const amount = event.deltaY * (event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1);
    zoomAt(Math.exp(-Math.max(-240, Math.min(240, amount)) * 0.0025), ...place(event));
  }, { passive: false });
  const KEYS = {
    "+": () => zoomMiddle(1.4), "=": () => zoomMiddle(1.4), "-": () => zoomMiddle(1 / 1.4), 0: showAll,
    ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0), ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  el("map-in").addEventListener("click", () => zoomMiddle(1.4));
  el("map-out").addEventListener("click", () => zoomMiddle(1 / 1.4));
  el("map-all").addEventListener("click", showAll);

  // ---- The legend: one button a name; pressed, it shows its points alone.
  function fillLegend() {
    alone = -1;
    const many = new Uint32Array(way.names.length);
    for (let i = 0; i < n; i++) many[way.codes[i]]++;
    legend.replaceChildren(...way.names.map((name, code) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.innerHTML = '<svg viewBox="-1.4 -1.4 2.8 2.8" aria-hidden="true"><path/></svg><span class="what"></span><span class="many"></span>';
      const path = button.querySelector("path");
      path.setAttribute("d", SHAPES[shapeOf(code)]);
      path.style.fill = `var(${colourOf(code)})`;
      button.querySelector(".what").textContent = name;
      button.querySelector(".many").textContent = String(many[code]).replace(/\B(?=(\d{3})+$)/g, "\u202f");
      button.addEventListener("click", () => {
        alone = alone === code ? -1 : code;
        legend.querySelectorAll("button").forEach((other, at) => other.setAttribute("aria-pressed", String(at === alone)));
        hide(); request();
      });
      item.append(button);
      return item;
    }));
  }
  const choice = el("map-colour");
  if (choice) choice.addEventListener("change", () => { way = ways[choice.value]; fillLegend(); hide(); request(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", request);
  new ResizeObserver(resize).observe(canvas);
  fillLegend();
  showAll();
})();
