// The map: many points on a canvas that moves, zooms and tells what is under the pointer.
// Points are blended into the pixels directly, which stays fluid at 100,000 where a canvas call for each would not.
(() => {
  const el = (id) => document.getElementById(id);
  const canvas = el("map-canvas");
  if (!canvas) return;
  const data = JSON.parse(el("map-data").textContent);
  const points = Points.unpack(data.points), rows = Points.unpack(data.rows), n = rows.length;
  const ways = {};
  for (const [name, way] of Object.entries(data.ways)) ways[name] = { ...way, codes: Points.unpack(way.codes) };
  const context = canvas.getContext("2d"), ring = el("map-ring"), tip = el("map-tip"), legend = el("map-legend");
  const { order, spans, nearest } = Points.grid(points), [x0, x1, y0, y1] = Points.extent(points);
  let way = Object.values(ways)[0], alone = -1, looked = -1, frame = 0;

  // ---- Colours and markers: ten colours, then the next shape.
  const SHAPES = [
    "M0-1A1 1 0 1 1 0 1A1 1 0 1 1 0-1Z",
    "M-.9-.9H.9V.9H-.9Z",
    "M0-1.15L1.1.85H-1.1Z",
    "M0-1.25L1.05 0L0 1.25L-1.05 0Z",
    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
  ];
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colourName = (code) => (way.ordered ? `--r${Math.min(code, 8)}` : `--c${code % 10}`);
  const shape = (code) => (way.ordered ? 0 : Math.floor(code / 10) % SHAPES.length);
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colour = (name) => {
    pen.canvas.width = pen.canvas.height = 1;
    pen.fillStyle = variable(name);
    pen.fillRect(0, 0, 1, 1);
    return new Int32Array(pen.getImageData(0, 0, 1, 1).data.buffer)[0];
  };
  const stamp = (path, radius, strength, stride) => {
    const half = Math.ceil(radius * 1.3), side = 2 * half + 1, places = [], opacities = [];
    pen.canvas.width = pen.canvas.height = side;
    pen.translate(half + 0.5, half + 0.5);
    pen.scale(radius, radius);
    pen.fill(new Path2D(path));
    const { data: rgba } = pen.getImageData(0, 0, side, side);
    for (let i = 0; i < side * side; i++) {
      const opacity = Math.round((rgba[4 * i + 3] / 255) * strength * 128);
      if (opacity) { places.push((Math.floor(i / side) - half) * stride + (i % side) - half); opacities.push(opacity); }
    }
    return { places: Int32Array.from(places), opacities: Int32Array.from(opacities) };
  };

  // ---- The view: the data's point in the middle, and pixels per unit along each axis.
  const named = data.axes.some(Boolean); // the axes of a map mean nothing, and get no numbers
  const LEFT = named ? 58 : 8, RIGHT = named ? 12 : 8, TOP = named ? 12 : 8, BOTTOM = named ? 44 : 8, PAD = 40;
  let wide = 0, tall = 0, image = null;
  const view = { x: (x0 + x1) / 2, y: (y0 + y1) / 2, kx: 1, ky: 1, zoom: 1, fitX: 1, fitY: 1 };
  const toX = (x) => LEFT + wide / 2 + (x - view.x) * view.kx, toY = (y) => TOP + tall / 2 - (y - view.y) * view.ky;
  const fromX = (px) => view.x + (px - LEFT - wide / 2) / view.kx, fromY = (py) => view.y - (py - TOP - tall / 2) / view.ky;
  const request = () => { hide(); frame = frame || requestAnimationFrame(draw); };
  const setZoom = (zoom) => {
    view.zoom = Math.max(0.5, Math.min(20000, zoom));
    view.kx = view.fitX * view.zoom;
    view.ky = view.fitY * view.zoom;
  };
  const zoomAt = (factor, px = LEFT + wide / 2, py = TOP + tall / 2) => {
    const x = fromX(px), y = fromY(py);
    setZoom(view.zoom * factor);
    view.x += x - fromX(px);
    view.y += y - fromY(py);
    request();
  };
  const move = (dx, dy) => { view.x -= dx / view.kx; view.y += dy / view.ky; request(); };
  const showAll = () => { view.x = (x0 + x1) / 2; view.y = (y0 + y1) / 2; setZoom(1); request(); };
  const resize = () => {
    const box = canvas.getBoundingClientRect();
    if (box.width < 120) return;
    wide = box.width - LEFT - RIGHT;
    tall = box.height - TOP - BOTTOM;
    view.fitX = (0.94 * wide) / (x1 - x0 || 1);
    view.fitY = (0.94 * tall) / (y1 - y0 || 1);
    if (data.equal) view.fitX = view.fitY = Math.min(view.fitX, view.fitY);
    setZoom(view.zoom);
    request();
  };

  // ---- Drawing. Where it takes too long for smooth moves, moves show coarser pixels and one point of several, and all
  // points follow when the map is at rest.
  let took = 0, settled = 0;
  function draw() {
    frame = 0;
    if (!wide) return;
    const fine = Math.min(2, window.devicePixelRatio || 1), slow = took > 16;
    clearTimeout(settled);
    if (slow) {
      drawAt(Math.min(1, fine), Math.min(4, Math.ceil(took / 16)));
      settled = setTimeout(() => requestAnimationFrame(() => drawWhole(fine)), 180);
    } else drawWhole(fine);
  }
  function drawWhole(fine) {
    const began = performance.now();
    drawAt(fine, 1);
    took = performance.now() - began;
  }
  function drawAt(dpr, every) {
    const width = Math.round((LEFT + wide + RIGHT) * dpr), height = Math.round((TOP + tall + BOTTOM) * dpr);
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      image = new ImageData(Math.ceil(wide * dpr) + 2 * PAD, Math.ceil(tall * dpr) + 2 * PAD);
    }
    const pixels = { data: new Int32Array(image.data.buffer), stride: image.width, pad: PAD, right: image.width - PAD, bottom: image.height - PAD };
    const bx = PAD + (wide / 2 - view.x * view.kx) * dpr, by = PAD + (tall / 2 + view.y * view.ky) * dpr;
    const place = { ax: view.kx * dpr, bx, ay: -view.ky * dpr, by };
    const base = n > 30000 ? 1.3 : n > 8000 ? 1.9 : n > 2500 ? 2.6 : n > 400 ? 3.2 : 4.2;
    const radius = Math.min(base * Math.pow(Math.max(1, view.zoom), 0.3), 5.5) * dpr;
    const strength = n > 30000 ? 0.6 : n > 2500 ? 0.75 : 0.85;
    const drawn = SHAPES.map((path) => stamp(path, radius, strength, pixels.stride));
    const palette = {};
    const colours = way.names.map((_, code) => (palette[colourName(code)] ??= colour(colourName(code))));
    const inView = spans([fromX(LEFT), fromX(LEFT + wide), fromY(TOP + tall), fromY(TOP)]);
    const paint = (tones, shown) => {
      const stamps = way.names.map((_, code) => (shown(code) ? drawn[shape(code)] : null));
      for (const span of inView) Points.paint(pixels, points, order, span, way.codes, place, tones, stamps, every);
    };
    pixels.data.fill(colour("--panel"));
    if (alone >= 0) paint(Array(colours.length).fill(colour("--line")), (code) => code !== alone);
    paint(colours, (code) => alone < 0 || code === alone);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.putImageData(image, LEFT * dpr - PAD, TOP * dpr - PAD, PAD, PAD, image.width - 2 * PAD, image.height - 2 * PAD);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    axes();
  }
  function axes() {
    if (!named) return;
    const right = LEFT + wide, bottom = TOP + tall;
    context.strokeStyle = variable("--line");
    context.fillStyle = variable("--soft");
    context.font = "12px " + getComputedStyle(document.body).fontFamily;
    context.beginPath();
    context.textAlign = "center";
    for (const [x, text] of Points.ticks(fromX(LEFT + 14), fromX(right - 14), Math.max(3, wide / 70))) {
      const px = Math.round(toX(x)) + 0.5;
      context.moveTo(px, bottom);
      context.lineTo(px, bottom + 5);
      context.fillText(text, px, bottom + 18);
    }
    context.textAlign = "right";
    for (const [y, text] of Points.ticks(fromY(bottom - 4), fromY(TOP + 6), Math.max(2, tall / 70))) {
      const py = Math.round(toY(y)) + 0.5;
      context.moveTo(LEFT - 5, py);
      context.lineTo(LEFT, py);
      context.fillText(text, LEFT - 8, py + 4, LEFT - 26);
    }
    context.moveTo(LEFT - 0.5, TOP);
    context.lineTo(LEFT - 0.5, bottom + 0.5);
    context.lineTo(right, bottom + 0.5);
    context.stroke();
    context.textAlign = "center";
    context.fillText(data.axes[0], LEFT + wide / 2, bottom + 37, wide);
    context.save();
    context.translate(14, TOP + tall / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(data.axes[1], 0, 0, tall);
    context.restore();
  }

  // ---- What is under the pointer.
  function hide() { looked = -1; ring.hidden = tip.hidden = true; }
  function describe(px, py, reach) {
    const inside = px >= LEFT && px <= LEFT + wide && py >= TOP && py <= TOP + tall;
    const seen = (i) => alone < 0 || way.codes[i] === alone;
    const i = inside ? nearest(fromX(px), fromY(py), reach / view.kx, reach / view.ky, seen) : -1;
    if (i < 0) return hide();
    if (i === looked) return;
    looked = i;
    const name = (which) => which.names[which.codes[i]].replace(/^(.{79}).{2,}$/s, "$1\u2026");
    const more = ["label", "cluster"].filter((kind) => ways[kind]).map((kind) => `\n${kind} ${name(ways[kind])}`);
    tip.textContent = `${name(ways.site)}\nrow ${rows[i]}${more.join("")}`;
    ring.hidden = tip.hidden = false;
    const x = toX(points[2 * i]), y = toY(points[2 * i + 1]);
    ring.style.left = `${x}px`;
    ring.style.top = `${y}px`;
    const left = x + 14 + tip.offsetWidth > LEFT + wide ? x - 14 - tip.offsetWidth : x + 14;
    const top = Math.max(4, Math.min(y - tip.offsetHeight / 2, TOP + tall - tip.offsetHeight));
    tip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
  }

  // ---- Pointer, wheel, keys. One finger scrolls the page, two move and zoom the map.
  const held = new Map();
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = [...held.values()];
    return { x: (ax + bx) / 2, y: (ay + by) / 2, apart: Math.hypot(ax - bx, ay - by) || 1 };
  };
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, at(event));
    if (event.pointerType !== "mouse") return describe(...at(event), 20);
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("moving");
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = at(event), before = held.get(event.pointerId), mouse = event.pointerType === "mouse";
    if (!before) return mouse && describe(...now, 10);
    const old = held.size === 2 ? spread() : null;
    held.set(event.pointerId, now);
    if (old) {
      const fresh = spread();
      move(fresh.x - old.x, fresh.y - old.y);
      zoomAt(fresh.apart / old.apart, fresh.x, fresh.y);
    } else if (mouse) move(now[0] - before[0], now[1] - before[1]);
  });
  const letGo = (event) => { held.delete(event.pointerId); canvas.classList.remove("moving"); };
  canvas.addEventListener("pointerup", letGo);
  canvas.addEventListener("pointercancel", letGo);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  // A wheel that is scrolling the page goes on doing so when the map passes under the pointer.
  let scrolled = -1000;
  window.addEventListener("wheel", (event) => { if (event.target !== canvas) scrolled = event.timeStamp; }, { passive: true });
  canvas.addEventListener("wheel", (event) => {
    if (event.timeStamp - scrolled < 300) { scrolled = event.timeStamp; return; }
    event.preventDefault();
    const amount = event.deltaY * [1, 16, 400][event.deltaMode];
    zoomAt(Math.exp(-0.0025 * Math.max(-240, Math.min(240, amount))), ...at(event));
  }, { passive: false });
  const KEYS = {
    "+": () => zoomAt(1.4), "=": () => zoomAt(1.4), "-": () => zoomAt(1 / 1.4), 0: showAll,
    ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0), ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  el("map-in").addEventListener("click", () => zoomAt(1.4));
  el("map-out").addEventListener("click", () => zoomAt(1 / 1.4));
  el("map-all").addEventListener("click", showAll);

  // ---- The legend: one button a name; pressed, it shows its points alone.
  function fillLegend() {
    alone = -1;
    const many = new Uint32Array(way.names.length);
    for (const code of way.codes) many[code]++;
    legend.replaceChildren(...way.names.map((name, code) => {
      const item = document.createElement("li");
      item.innerHTML = '<button type="button" aria-pressed="false"><svg viewBox="-1.4 -1.4 2.8 2.8" aria-hidden="true"><path/></svg>' +
        '<span class="what"></span><span class="many"></span></button>';
      const [button, path, what, count] = ["button", "path", ".what", ".many"].map((part) => item.querySelector(part));
      path.setAttribute("d", SHAPES[shape(code)]);
      path.style.fill = `var(${colourName(code)})`;
      what.textContent = what.title = name;
      count.textContent = String(many[code]).replace(/\B(?=(\d{3})+$)/g, "\u202f");
      button.addEventListener("click", () => {
        alone = alone === code ? -1 : code;
        legend.querySelectorAll("button").forEach((other, i) => other.setAttribute("aria-pressed", String(i === alone)));
        request();
      });
      return item;
    }));
  }
  const choice = el("map-colour");
  if (choice) choice.addEventListener("change", () => { way = ways[choice.value]; fillLegend(); request(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", request);
  new ResizeObserver(resize).observe(canvas);
  fillLegend();
})();
