// Points: unpacked, found and painted. Plain functions on typed arrays that know nothing of the page.
"use strict";
const Points = (() => {
  const KINDS = { f4: Float32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
  const unpack = ({ kind, data }) => new KINDS[kind](Uint8Array.from(atob(data), (c) => c.charCodeAt(0)).buffer);

  // A fixed shuffle of 0 to n-1.
  function shuffled(n) {
    const order = Uint32Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1, state = 1; i > 0; i--) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      const j = Math.floor((state / 4294967296) * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  // [smallest x, largest x, smallest y, largest y]
  function extent(points) {
    const box = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < points.length; i += 2) {
      box[0] = Math.min(box[0], points[i]);
      box[1] = Math.max(box[1], points[i]);
      box[2] = Math.min(box[2], points[i + 1]);
      box[3] = Math.max(box[3], points[i + 1]);
    }
    return box;
  }

  // A uniform grid over the points.
  // order: the points cell by cell, shuffled within a cell, so that no site lies on top of the others because of its name.
  // spans(box): the stretches of `order` whose cells touch a box [smallest x, largest x, smallest y, largest y].
  // nearest(x, y, rx, ry, accept): the accepted point nearest to the middle of an ellipse with these radii, or -1.
  function grid(points) {
    const n = points.length / 2, [x0, x1, y0, y1] = extent(points);
    const side = Math.max(1, Math.min(512, Math.ceil(Math.sqrt(n) / 2)));
    const within = (value, low, high) => Math.max(0, Math.min(side - 1, Math.floor(((value - low) / (high - low || 1)) * side)));
    const column = (x) => within(x, x0, x1), line = (y) => within(y, y0, y1);
    const cell = (i) => line(points[2 * i + 1]) * side + column(points[2 * i]);
    const starts = new Uint32Array(side * side + 1), order = new Uint32Array(n);
    for (let i = 0; i < n; i++) starts[cell(i) + 1]++;
    for (let c = 0; c < side * side; c++) starts[c + 1] += starts[c];
    const filled = starts.slice();
    for (const i of shuffled(n)) order[filled[cell(i)]++] = i;

    const spans = ([left, right, low, high]) => {
      const found = [];
      for (let r = line(low); r <= line(high); r++) found.push([starts[r * side + column(left)], starts[r * side + column(right) + 1]]);
      return found;
    };
    const nearest = (x, y, rx, ry, accept) => {
      let best = -1, least = 1;
      for (const [start, end] of spans([x - rx, x + rx, y - ry, y + ry])) {
        for (let m = start; m < end; m++) {
          const i = order[m], dx = (points[2 * i] - x) / rx, dy = (points[2 * i + 1] - y) / ry;
          if (dx * dx + dy * dy <= least && accept(i)) { least = dx * dx + dy * dy; best = i; }
        }
      }
      return best;
    };
    return { order, spans, nearest };
  }

  // Round values in [low, high] with their texts.
  function ticks(low, high, most) {
    const rough = (high - low) / most, power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = power * ([1, 2, 5].find((f) => f * power >= rough * 0.999999) || 10), found = [];
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const huge = Math.max(Math.abs(low), Math.abs(high)) >= 1e6 || decimals > 4;
    for (let i = Math.ceil(low / step); i <= high / step && found.length < 50; i++) {
      const text = huge ? (i * step).toPrecision(5).replace(/\.?0+($|e)/, "$1") : (i * step).toFixed(decimals);
      found.push([i * step, Number(text) === 0 ? "0" : text.replace("-", "\u2212")]);
    }
    return found;
  }

  // Blend a stamp for each point order[start] to order[end - 1] into the pixels {data: Int32Array, stride, pad, right,
  // bottom}, which reach `pad` beyond what is shown, so that no stamp has to be cut. Point i lies at (x * ax + bx,
  // y * ay + by) and has the colour colours[codes[i]] and the stamp stamps[codes[i]], or none where that is null. A stamp is
  // places relative to the middle, and opacities of seven bits: then two colour channels at once fit into 31 bits. Of every
  // that many places in `order` one is drawn, the same ones wherever a stretch begins, so that nothing flickers on the move.
  function paint(target, points, order, [start, end], codes, { ax, bx, ay, by }, colours, stamps, every = 1) {
    const { data, stride, pad, right, bottom } = target;
    for (let m = Math.ceil(start / every) * every; m < end; m += every) {
      const i = order[m], stamp = stamps[codes[i]];
      const px = points[2 * i] * ax + bx, py = points[2 * i + 1] * ay + by;
      if (stamp === null || !(px >= pad && px < right && py >= pad && py < bottom)) continue;
      const middle = (py | 0) * stride + (px | 0), { places, opacities } = stamp;
      const rb = colours[codes[i]] & 0xff00ff, g = colours[codes[i]] & 0xff00;
      for (let d = 0; d < places.length; d++) {
        const p = middle + places[d], a = opacities[d], b = 128 - a, below = data[p];
        data[p] = -16777216 | (((rb * a + (below & 0xff00ff) * b) >> 7) & 0xff00ff) | (((g * a + (below & 0xff00) * b) >> 7) & 0xff00);
      }
    }
  }

  return { unpack, extent, grid, ticks, paint };
})();
