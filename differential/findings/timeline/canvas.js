// Draws what is in view alone: the canvas is as large as the window shows, and each lane finds its
// first visible span by bisection.

const xOf = (event) => GUTTER + (event - view.left) * view.scale;
const eventAt = (x) => view.left + (x - GUTTER) / view.scale;

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const names = [
    "paper", "ink", "quiet", "line", "stripe", "level", "over", "broken", "on-broken", "cursor",
    ...KINDS.flatMap(([kind]) => [kind, `on-${kind}`]),
  ];
  palette = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

function redraw() {
  clamp(); // the pointer may ask what is under it before the next frame
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    draw();
  });
}

function resize() {
  const width = printing ? PRINTED.width : chart.clientWidth;
  GUTTER = width < NARROW ? GUTTERS.narrow : GUTTERS.wide;
  view.width = Math.max(40, width - GUTTER);
  clamp();
  const wanted = heightOf(lanesInView());
  const most = printing ? PRINTED.height : Math.max(260, Math.round(window.innerHeight * 0.7));
  view.height = Math.min(wanted, most);
  const dots = printing ? 3 : window.devicePixelRatio || 1;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(view.height * dots);
  canvas.style.height = printing ? "" : `${view.height}px`;
  pen.setTransform(dots, 0, 0, dots, 0, 0);
}

function clamp() {
  const least = view.width / Math.max(COUNT, 1);
  view.scale = Math.min(Math.max(view.scale, Math.min(least, 200)), 240);
  const most = COUNT - view.width / view.scale;
  view.left = Math.max(0, Math.min(view.left, most));
  view.top = Math.max(0, Math.min(view.top, heightOf(lanesInView()) - view.height));
}

function draw() {
  clamp();
  const shown = lanesInView();
  const wanted = Math.min(heightOf(shown), Math.max(260, Math.round(window.innerHeight * 0.7)));
  if (!printing && Math.abs(wanted - view.height) > 1 && wanted > view.height) resize();
  const width = GUTTER + view.width;
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.fillStyle = palette.paper;
  pen.fillRect(0, 0, width, view.height);
  let y = RULER - view.top;
  for (const lane of shown) {
    if (y + lane.height > RULER && y < view.height) drawLane(lane, y, width);
    y += lane.height;
  }
  drawGaps();
  drawRuler(width);
  drawBroken();
  drawCursor();
  drawBars(shown);
}

function drawLane(lane, y, width) {
  if (lane.kind === "heading") {
    pen.fillStyle = palette.stripe;
    pen.fillRect(0, y, width, lane.height);
    pen.fillStyle = palette.ink;
    pen.font = `600 ${FONT}`;
    pen.fillText(lane.name, 8, y + lane.height / 2);
    const end = 14 + pen.measureText(lane.name).width;
    pen.font = FONT;
    pen.fillStyle = palette.quiet;
    text(lane.note, end, y + lane.height / 2, width - end - 8);
    return;
  }
  pen.fillStyle = palette.line;
  pen.fillRect(0, y + lane.height - 1, width, 1);
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, y, view.width, lane.height);
  pen.clip();
  if (lane.kind === "chart") drawChart(lane, y);
  else if (lane.kind === "row") drawRow(lane, y);
  else drawPack(lane, y);
  pen.restore();
  pen.fillStyle = palette.ink;
  text(lane.name, 16, y + lane.height / 2 - (lane.kind === "chart" ? 7 : 0), GUTTER - 24);
  if (lane.kind === "chart") {
    pen.fillStyle = palette.quiet;
    const limit = lane.limit === null ? `up to ${lane.top}` : `of ${lane.limit}`;
    text(limit, 16, y + lane.height / 2 + 9, GUTTER - 24);
  }
}

function drawPack(lane, y) {
  const right = view.left + view.width / view.scale;
  for (let i = firstAfter(lane.rows, view.left, (row) => row.to); i < lane.rows.length; i++) {
    if (lane.rows[i].from > right) break;
    drawRow(lane.rows[i], y);
  }
}

function drawRow(lane, y) {
  const forMarks = lane.marks.length && view.scale > 5 ? 16 : 0;
  drawSpans(lane.spans, y + PAD, lane.height - 2 * PAD - 1, forMarks);
  drawSpans(lane.over, y + PAD + 2, lane.height - 2 * PAD - 5, 0);
  if (view.scale < 5) return;
  pen.textAlign = "center";
  const stacked = new Map();
  for (let i = firstAfter(lane.marks, view.left - 1, endOfPoint); i < lane.marks.length; i++) {
    const [event, kind] = lane.marks[i];
    if (event > view.left + view.width / view.scale) break;
    const place = stacked.get(event) ?? 0;
    stacked.set(event, place + 1);
    const x = xOf(event) + Math.min(8, view.scale / 2) + place * 13;
    if (place * 13 + 13 > Math.max(view.scale, 14)) continue;
    pen.fillStyle = palette.paper;
    pen.beginPath();
    pen.arc(x, y + lane.height / 2 - 0.5, 6.5, 0, 2 * Math.PI);
    pen.fill();
    pen.fillStyle = kind === "evicted" || kind === "preempted" ? palette.broken : palette.ink;
    pen.fillText(MARKS[kind], x, y + lane.height / 2);
  }
  pen.textAlign = "left";
}

/** `reserved` is room for marks where a span begins. */
function drawSpans(spans, y, height, reserved) {
  const right = view.left + view.width / view.scale;
  let drawn = -1;
  for (let i = firstAfter(spans, view.left, endOfSpan); i < spans.length; i++) {
    const [start, end, kind, label] = spans[i];
    if (start > right) break;
    const x = Math.max(xOf(start), GUTTER - 4);
    const to = Math.min(xOf(end), GUTTER + view.width + 4);
    if (to < drawn && !isWrong(kind)) continue;
    const wide = Math.max(to - x - (view.scale > 6 ? 1 : 0), isWrong(kind) ? 2 : 1);
    drawn = Math.floor(x + wide) + 1;
    pen.fillStyle = palette[kind];
    pen.fillRect(x, y, wide, height);
    if (["idle", "evicted", "lost", "missing"].includes(kind)) {
      if (wide > 4) outline(x, y, wide, height, kind);
    }
    const room = wide - 6 - reserved;
    if (room > 12 || measure(label) <= room) {
      const long = Math.min(measure(label), room);
      const from = kind === "scheduled" ? x + (wide - long) / 2 : x + 3 + reserved;
      pen.fillStyle = palette[`on-${kind}`];
      if (measure(label) <= room || room > 40) text(label, from, y + height / 2 + 0.5, room);
    }
  }
}

const isWrong = (kind) => kind === "lost" || kind === "missing";

function outline(x, y, width, height, kind) {
  pen.strokeStyle = isWrong(kind) ? palette.broken : palette.quiet;
  pen.setLineDash(kind === "idle" ? [] : [4, 3]);
  pen.lineWidth = isWrong(kind) ? 2 : 1;
  pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  pen.setLineDash([]);
}

function drawChart(lane, y) {
  const base = y + lane.height - 4, tall = lane.height - 12;
  const yOf = (value) => base - (Math.max(0, value) / Math.max(lane.top, 1)) * tall;
  const right = view.left + view.width / view.scale;
  const after = firstAfter(lane.points, view.left, endOfPoint);
  let drawn = -1, tallest = 0;
  for (let i = Math.max(0, after - 1); i < lane.points.length; i++) {
    const [event, value] = lane.points[i];
    if (event > right) break;
    const next = i + 1 < lane.points.length ? lane.points[i + 1][0] : COUNT;
    const x = xOf(event), to = xOf(lane.is_level ? next : event + 1);
    if (to >= drawn) tallest = -Infinity;
    if (value <= tallest) continue; // of the events of a pixel the tallest is seen
    tallest = value;
    const wide = Math.max(to - x - (lane.is_level || view.scale < 6 ? 0 : 1), 1);
    drawn = Math.floor(x + wide) + 1;
    const beyond = value < 0 || (lane.limit !== null && value > lane.limit);
    pen.fillStyle = beyond ? palette.broken : palette.level;
    pen.fillRect(x, yOf(value), wide, Math.max(base - yOf(value), 1));
    if (measure(String(value)) + 4 < wide) {
      pen.fillStyle = beyond ? palette["on-broken"] : palette.ink;
      pen.fillText(String(value), Math.max(x, GUTTER) + 3, Math.min(yOf(value) + 8, base - 6));
    }
  }
  if (lane.limit !== null) {
    pen.strokeStyle = palette.over;
    pen.setLineDash([5, 3]);
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(GUTTER, Math.round(yOf(lane.limit)) - 0.5);
    pen.lineTo(Math.min(xOf(COUNT), GUTTER + view.width), Math.round(yOf(lane.limit)) - 0.5);
    pen.stroke();
    pen.setLineDash([]);
  }
}

/** The names of what is broken, where there is room for them above their columns. */
function flagsInView() {
  const right = view.left + view.width / view.scale, flags = [];
  let free = -Infinity;
  for (const at of brokenInOrder) {
    if (at + 1 < view.left || at > right) continue;
    const name = [...new Set(brokenAt.get(at).map((one) => one.contract))].join(" ");
    const long = Math.min(measure(name), FLAG_MAX) + 10;
    const middle = xOf(at) + Math.max(view.scale, 3) / 2;
    const from = Math.max(GUTTER, Math.min(middle - long / 2, GUTTER + view.width - long));
    if (from < free) continue;
    free = from + long + 2;
    flags.push({ name, from, to: from + long });
  }
  return flags;
}

function drawRuler(width) {
  pen.fillStyle = palette.paper;
  pen.fillRect(0, 0, width, RULER);
  pen.fillStyle = palette.line;
  pen.fillRect(0, RULER - 1, width, 1);
  pen.fillStyle = palette.quiet;
  pen.fillText(data.unit, 16, RULER / 2);
  const flags = flagsInView();
  const right = Math.min(COUNT, Math.ceil(view.left + view.width / view.scale));
  const isCounted = data.events[COUNT - 1].number - data.events[0].number === COUNT - 1;
  const apart = 14 + measure(numberOf(COUNT - 1));
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000]
    .find((one) => one * view.scale > apart) ?? 1e6;
  for (let at = Math.max(0, Math.floor(view.left)); at < right; at++) {
    if ((isCounted ? data.events[at].number : at) % step) continue;
    const words = numberOf(at), long = measure(words);
    const x = xOf(at) + (view.scale - long) / 2;
    const isFree = flags.every((flag) => x + long + 4 < flag.from || x - 4 > flag.to);
    if (isFree && x > GUTTER - 4 && x + long < width) pen.fillText(words, x, RULER / 2);
  }
  for (const { name, from, to } of flags) {
    pen.fillStyle = palette.broken;
    pen.fillRect(from, 2, to - from, RULER - 7);
    pen.fillStyle = palette["on-broken"];
    text(name, from + 5, RULER / 2 - 1, to - from - 6);
  }
}

/** Where events are left out. */
function drawGaps() {
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, RULER, view.width, view.height);
  pen.clip();
  pen.strokeStyle = palette.quiet;
  pen.lineWidth = 1;
  pen.setLineDash([2, 4]);
  pen.beginPath();
  for (const at of data.gaps ?? []) {
    pen.moveTo(Math.round(xOf(at)) - 0.5, RULER);
    pen.lineTo(Math.round(xOf(at)) - 0.5, view.height);
  }
  pen.stroke();
  pen.setLineDash([]);
  pen.restore();
}

/** The columns of what is broken. */
function drawBroken() {
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, 0, view.width, view.height);
  pen.clip();
  pen.fillStyle = palette.broken;
  const right = view.left + view.width / view.scale;
  for (const at of brokenInOrder) {
    if (at + 1 < view.left || at > right) continue;
    const x = xOf(at), wide = Math.max(view.scale, 3);
    pen.globalAlpha = 0.16;
    pen.fillRect(x, RULER, wide, view.height);
    pen.globalAlpha = 1;
    pen.fillRect(x, RULER - 4, wide, 4);
    pen.fillRect(x, RULER, 1.5, view.height);
  }
  pen.restore();
}

function drawCursor() {
  const x = xOf(view.cursor);
  if (printing || x + view.scale < GUTTER || x > GUTTER + view.width) return;
  pen.strokeStyle = palette.cursor;
  pen.lineWidth = 1.5;
  const left = Math.max(x, GUTTER) + 0.5;
  const right = Math.min(x + Math.max(view.scale, 3), GUTTER + view.width) - 1;
  pen.strokeRect(left, RULER + 1, Math.max(right - left, 2), view.height - RULER - 2);
}

/** Where in the whole the window is, where it is not all of it. */
function drawBars(shown) {
  const wanted = heightOf(shown) - RULER, tall = view.height - RULER;
  pen.fillStyle = palette.quiet;
  if (wanted > tall + 1 && printing) {
    pen.fillText("more lanes below are left out", GUTTER, view.height - 8);
  }
  if (wanted > tall + 1 && !printing) {
    const size = Math.max(20, (tall * tall) / wanted);
    const y = RULER + ((tall - size) * view.top) / (wanted - tall);
    pen.fillRect(GUTTER + view.width - 5, y, 4, size);
  }
  const share = view.width / view.scale / COUNT;
  if (share < 0.999 && !printing) {
    const size = Math.max(20, view.width * share);
    const x = GUTTER + ((view.width - size) * view.left) / (COUNT - view.width / view.scale);
    pen.fillRect(x, RULER - 4, size, 3);
  }
}

const widths = new Map();
function measure(label) {
  let width = widths.get(label);
  if (width === undefined) {
    if (widths.size > 20000) widths.clear();
    width = pen.measureText(label).width;
    widths.set(label, width);
  }
  return width;
}

/** Text that ends in an ellipsis where there is no room for it. */
function text(words, x, y, room) {
  let shown = words.length > 200 ? words.slice(0, 200) : words;
  if (measure(shown) > room) {
    while (shown && measure(`${shown}…`) > room) {
      shown = shown.slice(0, Math.min(shown.length - 1, Math.floor(shown.length * 0.9)));
    }
    shown += "…";
  }
  pen.fillText(shown, x, y);
}
