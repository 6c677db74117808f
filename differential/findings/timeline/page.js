"use strict";
// Draws what is in view alone: the canvas is as large as the window shows, and each lane finds its
// first visible span by bisection. Whatever a trace says is put in as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const [chart, canvas, tip] = ["chart", "canvas", "tip"].map(byId);
  const pen = canvas.getContext("2d");
  const COUNT = data.events.length;
  const GUTTER = 168, RULER = 30, HEADING = 24, ROW = 22, TALL = 46, PAD = 3;
  const NEAR = 20, NEAR_PRINTED = 100, STATES = 60, FONT = "12px system-ui, 'DejaVu Sans', sans-serif";
  const MARKS = {
    arrives: "▸", preempted: "↶", ends: "■", encoded: "+", evicted: "✕", reported: "▾",
  };
  const KINDS = [
    ["waiting", "waits"], ["running", "runs"], ["scheduled", "gets tokens"], ["held", "held"],
    ["idle", "idle: freeable"], ["evicted", "evicted, not reported"],
    ["lost", "needed, not held"], ["stored", "in the worker's store"], ["blocks", "KV blocks"],
  ];
  const brokenAt = new Map();
  for (const one of data.broken) {
    const at = one.event - data.first;
    brokenAt.set(at, [...(brokenAt.get(at) ?? []), one]);
  }
  const subject = data.broken.length ? data.broken[0].event - data.first : null;
  const view = { left: 0, scale: 1, top: 0, width: 0, height: 0, cursor: subject ?? 0 };
  let palette = {}, pending = false, printing = false;

  // lanes

  /** A lane as it is laid out: a group's heading, a chart or a row, with the events it speaks of. */
  function lanes() {
    const found = [];
    for (const group of data.groups) {
      found.push({ kind: "heading", ...group, height: HEADING, from: 0, to: COUNT });
      for (const one of group.charts) {
        const top = one.points.reduce((most, point) => Math.max(most, point[1]), one.limit ?? 1);
        found.push({ kind: "chart", ...one, top, height: TALL, from: 0, to: COUNT });
      }
      for (const one of group.rows) {
        const parts = [...one.spans, ...one.over];
        const marks = one.marks.map((mark) => mark[0]);
        const from = Math.min(...parts.map((span) => span[0]), ...marks);
        const to = Math.max(...parts.map((span) => span[1]), ...marks.map((at) => at + 1));
        found.push({ kind: "row", group: group.name, ...one, height: ROW, from, to });
      }
    }
    return found;
  }
  const all = lanes();

  /** The lanes that say something of the events in view. */
  function lanesInView() {
    const right = view.left + view.width / view.scale;
    return all.filter((one) => one.to > view.left && one.from < right);
  }

  const heightOf = (shown) => shown.reduce((sum, one) => sum + one.height, RULER + PAD);

  /** Index of the first part that ends after an event; parts are in order. */
  function firstAfter(parts, event, endOf) {
    let low = 0, high = parts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (endOf(parts[middle]) > event) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  const endOfSpan = (span) => span[1], endOfPoint = (point) => point[0] + 1;

  // drawing

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
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      draw();
    });
  }

  function resize() {
    const width = printing ? 1060 : chart.clientWidth;
    view.width = Math.max(40, width - GUTTER);
    clamp();
    const wanted = heightOf(lanesInView());
    const most = printing ? 3000 : Math.max(260, Math.round(window.innerHeight * 0.62));
    view.height = Math.min(wanted, most);
    const dots = printing ? 3 : window.devicePixelRatio || 1;
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(view.height * dots);
    canvas.style.height = `${view.height}px`;
    pen.setTransform(dots, 0, 0, dots, 0, 0);
  }

  function clamp() {
    const least = view.width / Math.max(COUNT, 1);
    view.scale = Math.min(Math.max(view.scale, Math.min(least, 140)), 240);
    const most = COUNT - view.width / view.scale;
    view.left = Math.max(0, Math.min(view.left, most));
    view.top = Math.max(0, Math.min(view.top, heightOf(lanesInView()) - view.height));
  }

  function draw() {
    clamp();
    const shown = lanesInView();
    const wanted = Math.min(heightOf(shown), Math.max(260, Math.round(window.innerHeight * 0.62)));
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
    drawRuler(width);
    drawCursor();
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
      pen.fillText(lane.note, end, y + lane.height / 2);
      return;
    }
    pen.fillStyle = palette.line;
    pen.fillRect(0, y + lane.height - 1, width, 1);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, y, view.width, lane.height);
    pen.clip();
    if (lane.kind === "chart") drawChart(lane, y);
    else drawRow(lane, y);
    pen.restore();
    pen.fillStyle = palette.ink;
    text(lane.name, 16, y + lane.height / 2 - (lane.kind === "chart" ? 7 : 0), GUTTER - 24);
    if (lane.kind === "chart") {
      pen.fillStyle = palette.quiet;
      const limit = lane.limit === null ? `up to ${lane.top}` : `of ${lane.limit}`;
      text(limit, 16, y + lane.height / 2 + 9, GUTTER - 24);
    }
  }

  function drawRow(lane, y) {
    drawSpans(lane.spans, y + PAD, lane.height - 2 * PAD - 1);
    drawSpans(lane.over, y + PAD + 2, lane.height - 2 * PAD - 5);
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

  function drawSpans(spans, y, height) {
    const right = view.left + view.width / view.scale;
    let drawn = -1;
    for (let i = firstAfter(spans, view.left, endOfSpan); i < spans.length; i++) {
      const [start, end, kind, label] = spans[i];
      if (start > right) break;
      const x = Math.max(xOf(start), GUTTER - 4);
      const to = Math.min(xOf(end), GUTTER + view.width + 4);
      if (to < drawn) continue;
      const wide = Math.max(to - x - (view.scale > 6 ? 1 : 0), 1);
      drawn = Math.floor(x + wide) + 1;
      pen.fillStyle = palette[kind];
      pen.fillRect(x, y, wide, height);
      if (kind === "idle" || kind === "evicted" || kind === "lost") {
        if (wide > 4) outline(x, y, wide, height, kind);
      }
      const room = wide - 6 - (view.scale > 30 && kind !== "scheduled" ? 14 : 0);
      if (room > 12) {
        pen.fillStyle = palette[`on-${kind}`];
        const middle = kind === "scheduled" ? x + (wide - measure(label)) / 2 : x + wide - 4 - room;
        if (measure(label) <= room) text(label, middle, y + height / 2 + 0.5, room);
        else if (room > 40) text(label, x + wide - room - 2, y + height / 2 + 0.5, room);
      }
    }
  }

  function outline(x, y, width, height, kind) {
    pen.strokeStyle = kind === "lost" ? palette.broken : palette.quiet;
    pen.setLineDash(kind === "idle" ? [] : [4, 3]);
    pen.lineWidth = kind === "lost" ? 2 : 1;
    pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    pen.setLineDash([]);
  }

  function drawChart(lane, y) {
    const base = y + lane.height - 4, tall = lane.height - 12;
    const yOf = (value) => base - (Math.max(0, value) / Math.max(lane.top, 1)) * tall;
    const right = view.left + view.width / view.scale;
    const after = firstAfter(lane.points, view.left, endOfPoint);
    for (let i = Math.max(0, after - 1), drawn = -1; i < lane.points.length; i++) {
      const [event, value] = lane.points[i];
      if (event > right) break;
      const next = i + 1 < lane.points.length ? lane.points[i + 1][0] : COUNT;
      const x = xOf(event), to = xOf(lane.is_level ? next : event + 1);
      if (to < drawn) continue;
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
      pen.lineTo(GUTTER + view.width, Math.round(yOf(lane.limit)) - 0.5);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  function drawRuler(width) {
    pen.fillStyle = palette.paper;
    pen.fillRect(0, 0, width, RULER);
    pen.fillStyle = palette.line;
    pen.fillRect(0, RULER - 1, width, 1);
    pen.fillStyle = palette.quiet;
    pen.fillText("event", 16, RULER / 2);
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000]
      .find((one) => one * view.scale > 46) ?? 1e6;
    pen.textAlign = "center";
    const right = Math.min(COUNT, Math.ceil(view.left + view.width / view.scale));
    const begin = Math.ceil((data.first + 1 + Math.floor(view.left)) / step) * step;
    for (let number = begin; number <= data.first + right; number += step) {
      const x = xOf(number - data.first - 1) + view.scale / 2;
      pen.fillStyle = palette.quiet;
      pen.fillText(number.toLocaleString("en"), x, RULER / 2);
    }
    const sorted = [...brokenAt.keys()].sort((one, other) => one - other);
    let free = -Infinity;
    for (const at of sorted) {
      if (at + 1 < view.left || at > right) continue;
      const x = xOf(at), wide = Math.max(view.scale, 3);
      pen.save();
      pen.beginPath();
      pen.rect(GUTTER, 0, view.width, view.height);
      pen.clip();
      pen.globalAlpha = 0.16;
      pen.fillStyle = palette.broken;
      pen.fillRect(x, RULER, wide, view.height);
      pen.globalAlpha = 1;
      pen.fillRect(x, RULER - 4, wide, 4);
      pen.fillRect(x, RULER, 1.5, view.height);
      pen.restore();
      const name = [...new Set(brokenAt.get(at).map((one) => one.contract))].join(" ");
      const long = Math.min(measure(name), 220) + 10;
      const from = Math.max(GUTTER, Math.min(x + wide / 2 - long / 2, GUTTER + view.width - long));
      if (from < free) continue;
      free = from + long + 2;
      pen.fillStyle = palette.broken;
      pen.fillRect(from, 2, long, RULER - 7);
      pen.fillStyle = palette["on-broken"];
      pen.textAlign = "left";
      text(name, from + 5, RULER / 2 - 1, long - 6);
      pen.textAlign = "center";
    }
    pen.textAlign = "left";
  }

  function drawCursor() {
    const x = xOf(view.cursor);
    if (printing || x + view.scale < GUTTER || x > GUTTER + view.width) return;
    pen.strokeStyle = palette.cursor;
    pen.lineWidth = 1.5;
    pen.strokeRect(Math.max(x, GUTTER) + 0.5, 1, Math.max(view.scale - 1, 2), view.height - 2);
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

  // panels

  function element(name, words, ...children) {
    const made = document.createElement(name);
    if (words !== null) made.textContent = words;
    made.append(...children);
    return made;
  }

  function table(titles, rows, nothing) {
    if (!rows.length) {
      const none = element("p", nothing);
      none.className = "none";
      return none;
    }
    const heads = titles.map((title) => {
      const cell = element("th", title);
      cell.scope = "col";
      return cell;
    });
    const lines = rows.map((row) => element("tr", null, ...row.map((one) => element("td", one))));
    return element(
      "table", null,
      element("thead", null, element("tr", null, ...heads)), element("tbody", null, ...lines),
    );
  }

  const numberOf = (at) => (data.first + at + 1).toLocaleString("en");

  /** What the lanes say of an event: [group, name, words]. */
  function statesAt(at) {
    const found = [];
    let group = "";
    for (const lane of all) {
      if (lane.kind === "heading") group = lane.name;
      else {
        const words = wordsAt(lane, at);
        if (words) found.push([group, lane.name, words]);
      }
    }
    return found;
  }

  function wordsAt(lane, at) {
    if (lane.kind === "chart") {
      const next = firstAfter(lane.points, at, endOfPoint);
      const exact = next < lane.points.length && lane.points[next][0] === at;
      const point = exact ? lane.points[next] : lane.is_level ? lane.points[next - 1] : undefined;
      return point ? `${point[1]}${lane.limit === null ? "" : ` of ${lane.limit}`}` : "";
    }
    if (lane.from > at || lane.to <= at) return "";
    const words = [];
    for (const spans of [lane.spans, lane.over]) {
      const span = spans[firstAfter(spans, at, endOfSpan)];
      if (span && span[0] <= at) words.push(span[4]);
    }
    for (let i = firstAfter(lane.marks, at, endOfPoint); i < lane.marks.length; i++) {
      if (lane.marks[i][0] !== at) break;
      words.push(lane.marks[i][2]);
    }
    return words.join("; ");
  }

  function showEvent() {
    const at = view.cursor, shown = data.events[at];
    const broken = brokenAt.get(at) ?? [];
    const where = `Event ${numberOf(at)} of ${numberOf(COUNT - 1)}`;
    byId("event-title").textContent = where;
    byId("event-words").textContent = shown.words;
    byId("event-broken").replaceChildren(...broken.map((one) => element("p", one.sentence)));
    byId("calls").replaceChildren(
      table(["call", "asked", "answer", "changed"], shown.calls, "It makes no call of a manager."),
    );
    byId("changes").replaceChildren(
      table(data.change_titles, shown.changes, "The state stays as it was."),
    );
    const states = statesAt(at), more = states.length - STATES;
    byId("states").replaceChildren(
      table(["lane", "of", "says"], states.slice(0, STATES), "No lane says anything of it."),
      ...(more > 0 ? [element("p", `and ${more} more`)] : []),
    );
    const words = broken.length ? `${shown.words}; broken: ${broken[0].sentence}` : shown.words;
    chart.setAttribute("aria-valuenow", String(data.first + at + 1));
    chart.setAttribute("aria-valuetext", `${where}: ${words}`);
    byId("previous").disabled = at === 0;
    byId("next").disabled = at === COUNT - 1;
    listEvents(NEAR);
  }

  function listEvents(near) {
    const middle = printing && subject !== null ? subject : view.cursor;
    const from = Math.max(0, middle - near), to = Math.min(COUNT, middle + near + 1);
    const rows = [];
    for (let at = from; at < to; at++) {
      const broken = (brokenAt.get(at) ?? []).map((one) => one.contract).join(" ");
      rows.push([numberOf(at), data.events[at].words, broken]);
    }
    const list = table(["event", "what the engine does", "broken"], rows, "");
    list.tBodies[0].childNodes.forEach((row, index) => {
      if (rows[index][2]) row.className = "broken";
      if (from + index === view.cursor) row.setAttribute("aria-current", "true");
      row.addEventListener("click", () => goTo(from + index));
    });
    byId("list").replaceChildren(list);
  }

  function showPage() {
    document.title = data.title;
    byId("title").textContent = data.title;
    for (const one of data.broken) {
      const number = (one.event + 1).toLocaleString("en");
      byId("broken").append(
        element("dt", `${one.contract}, event ${number}`),
        element("dd", null, element("div", one.title), element("div", one.why)),
      );
    }
    for (const [name, words] of data.about) {
      byId("about").append(element("dt", name), element("dd", words));
    }
    const used = new Set(all.flatMap((lane) => [
      ...(lane.spans ?? []).map((span) => span[2]), ...(lane.over ?? []).map((span) => span[2]),
    ]));
    const marks = new Set(all.flatMap((lane) => (lane.marks ?? []).map((mark) => mark[1])));
    for (const [kind, words] of KINDS.filter(([name]) => used.has(name))) {
      const swatch = element("i", "");
      swatch.style.background = `var(--${kind})`;
      if (kind === "lost") swatch.style.outline = "1px dashed var(--broken)";
      byId("legend").append(element("li", null, swatch, words));
    }
    for (const [kind, sign] of Object.entries(MARKS).filter(([name]) => marks.has(name))) {
      byId("legend").append(element("li", null, element("i", sign), kind));
    }
    byId("to-broken").disabled = subject === null;
    chart.setAttribute("aria-valuemin", String(data.first + 1));
    chart.setAttribute("aria-valuemax", String(data.first + COUNT));
  }

  // moving

  function goTo(at) {
    view.cursor = Math.max(0, Math.min(COUNT - 1, at));
    const shown = view.width / view.scale;
    if (view.cursor < view.left) view.left = view.cursor - shown * 0.1;
    if (view.cursor + 1 > view.left + shown) view.left = view.cursor + 1 - shown * 0.9;
    showEvent();
    redraw();
  }

  function zoom(factor, x) {
    const kept = eventAt(x);
    view.scale *= factor;
    clamp();
    view.left = kept - (x - GUTTER) / view.scale;
    redraw();
  }

  const middleX = () => {
    const x = xOf(view.cursor) + view.scale / 2;
    return x > GUTTER && x < GUTTER + view.width ? x : GUTTER + view.width / 2;
  };
  const fit = () => {
    view.scale = 0;
    view.left = 0;
    redraw();
  };
  const toBroken = () => subject !== null && goTo(subject);
  const scroll = (by) => {
    view.top += by;
    redraw();
  };
  const KEYS = {
    ArrowLeft: () => goTo(view.cursor - 1), ArrowRight: () => goTo(view.cursor + 1),
    PageUp: () => goTo(view.cursor - 10), PageDown: () => goTo(view.cursor + 10),
    Home: () => goTo(0), End: () => goTo(COUNT - 1),
    ArrowUp: () => scroll(-2 * ROW), ArrowDown: () => scroll(2 * ROW),
    b: toBroken, B: toBroken, "+": () => zoom(1.5, middleX()), "=": () => zoom(1.5, middleX()),
    "-": () => zoom(1 / 1.5, middleX()), 0: fit,
  };
  chart.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  const buttons = {
    previous: KEYS.ArrowLeft, next: KEYS.ArrowRight, "to-broken": toBroken, fit,
    "zoom-in": KEYS["+"], "zoom-out": KEYS["-"],
  };
  for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);

  chart.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      zoom(Math.exp(-event.deltaY / 300), event.offsetX);
    } else if (sideways) {
      view.left += sideways / view.scale;
      redraw();
    } else {
      const before = view.top;
      view.top += event.deltaY;
      clamp();
      if (view.top === before) return; // the page scrolls on
      redraw();
    }
    event.preventDefault();
  }, { passive: false });

  let drag = null;
  chart.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, left: view.left, top: view.top, moved: false };
    chart.setPointerCapture(event.pointerId);
  });
  chart.addEventListener("pointermove", (event) => {
    if (!drag) {
      showTip(event);
      return;
    }
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    drag.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (!drag.moved) return;
    chart.classList.add("dragged");
    tip.hidden = true;
    view.left = drag.left - dx / view.scale;
    view.top = drag.top - dy;
    redraw();
  });
  chart.addEventListener("pointerup", (event) => {
    chart.classList.remove("dragged");
    if (drag && !drag.moved && event.offsetX > GUTTER) {
      const at = Math.floor(eventAt(event.offsetX));
      if (at >= 0 && at < COUNT) goTo(at);
    }
    drag = null;
  });
  chart.addEventListener("pointercancel", () => { drag = null; });
  chart.addEventListener("pointerleave", () => { tip.hidden = true; });

  function laneAt(y) {
    let top = RULER - view.top;
    if (y < RULER) return undefined;
    return lanesInView().find((lane) => {
      top += lane.height;
      return y < top;
    });
  }

  function showTip(event) {
    const at = Math.floor(eventAt(event.offsetX)), lane = laneAt(event.offsetY);
    tip.hidden = !(at >= 0 && at < COUNT && event.offsetX > GUTTER);
    if (tip.hidden) return;
    const lines = [`event ${numberOf(at)}: ${data.events[at].words.slice(0, 300)}`];
    if (lane && lane.kind !== "heading") {
      const words = wordsAt(lane, at);
      if (words) lines.push(`${lane.name}: ${words}`);
    }
    for (const one of brokenAt.get(at) ?? []) lines.push(`broken: ${one.contract}`);
    tip.replaceChildren(...lines.map((line) => element("div", line)));
    const x = Math.min(event.offsetX + 14, chart.clientWidth - tip.offsetWidth - 6);
    const below = event.offsetY + 18;
    const fits = below + tip.offsetHeight < chart.clientHeight;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, fits ? below : event.offsetY - tip.offsetHeight - 10)}px`;
  }

  // paper

  let before = null;
  function print(begins) {
    if (begins === printing) return;
    printing = begins;
    document.documentElement.classList.toggle("printed", begins);
    if (begins) {
      before = { ...view };
      view.top = 0;
    } else {
      Object.assign(view, before);
    }
    readPalette();
    listEvents(begins ? NEAR_PRINTED : NEAR);
    resize();
    draw();
  }
  const onPaper = window.matchMedia("print");
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  onPaper.addEventListener("change", (event) => print(event.matches));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readPalette();
    redraw();
  });
  new ResizeObserver(() => {
    if (printing) return;
    resize();
    redraw();
  }).observe(chart);

  readPalette();
  showPage();
  view.scale = 0;
  resize();
  if (view.scale < 24) {
    view.scale = 24;
    clamp();
    view.left = view.cursor - view.width / view.scale / 2;
  }
  showEvent();
  draw();
})();
