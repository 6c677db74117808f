// The panels, keys, buttons and pointer, and paper.

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

function showEvent() {
  const at = view.cursor, shown = data.events[at];
  const broken = brokenAt.get(at) ?? [];
  const unit = data.unit[0].toUpperCase() + data.unit.slice(1);
  const where = `${unit} ${numberOf(at)} of ${numberOf(COUNT - 1)}`;
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
  chart.setAttribute("aria-valuenow", String(shown.number));
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
  const list = table([data.unit, "what the engine does", "broken"], rows, "");
  list.tBodies[0].childNodes.forEach((row, index) => {
    if (rows[index][2]) row.className = "broken";
    if (from + index === view.cursor) row.setAttribute("aria-current", "true");
    row.addEventListener("click", () => goTo(from + index));
  });
  byId("list").replaceChildren(list);
}

/** A list of terms and of what is said of each. */
function list(id, terms) {
  for (const [name, ...said] of terms) {
    byId(id).append(element("dt", name), element("dd", null, ...said));
  }
}

function showPage() {
  document.title = data.title;
  byId("title").textContent = data.title;
  list("answer", data.answer);
  list("broken", data.broken.map((one) => {
    const letters = one.letters.map(([letter, words]) => `${letter}: ${words}`).join("; ");
    const from = one.source ? `from: ${one.source}` : "";
    const explained = element("div", [letters, from].filter(Boolean).join(". "));
    explained.className = "letters";
    const number = numberOf(one.event - data.first);
    const said = [one.title, one.why].map((words) => element("div", words));
    return [`${one.contract}, ${data.unit} ${number}`, ...said, explained];
  }));
  list("about", [...data.about, ...Object.entries(data.names)]);
  const spans = allRows.flatMap((row) => [...row.spans, ...row.over]);
  const used = new Set(spans.map((span) => span[2]));
  const marks = new Set(allRows.flatMap((row) => row.marks.map((mark) => mark[1])));
  for (const [kind, words] of KINDS.filter(([name]) => used.has(name))) {
    const swatch = element("i", "");
    swatch.style.background = `var(--${kind})`;
    if (isWrong(kind)) swatch.style.outline = "1px dashed var(--broken)";
    byId("legend").append(element("li", null, swatch, words));
  }
  if (whole.opening.story.length) {
    byId("legend").append(element("li", null, element("i", "┊"), "events are left out"));
  }
  for (const [kind, sign] of Object.entries(MARKS).filter(([name]) => marks.has(name))) {
    byId("legend").append(element("li", null, element("i", sign), kind));
  }
  byId("to-broken").disabled = subject === null;
}

/** Open on the broken step and what leads to it. */
function open() {
  take(whole.opening.story.length > 0);
  const first = isStory ? 0 : whole.opening.first;
  const last = isStory ? COUNT - 1 : whole.opening.last;
  view.cursor = subject ?? 0;
  resize();
  const shown = last + 1 - first;
  view.scale = Math.min(WIDEST, Math.max(LEGIBLE, view.width / shown));
  view.left = last + 1 - view.width / view.scale;
  resize();
  showRange();
}

function showRange() {
  chart.setAttribute("aria-valuemin", String(data.events[0].number));
  chart.setAttribute("aria-valuemax", String(data.events[COUNT - 1].number));
  byId("story").hidden = whole.opening.story.length === 0;
  byId("story").textContent = isStory ? "All events" : "What led to it";
}

/** Look at all events, or at those alone that led to what is broken, from where the reader is. */
function turn() {
  const kept = whole.opening.story;
  const before = isStory ? kept[view.cursor] : view.cursor;
  take(!isStory);
  const place = firstAfter(kept, before - 1, (one) => one);
  view.cursor = isStory ? Math.min(place, COUNT - 1) : before;
  centre(view.cursor, isStory ? view.width / COUNT : LEGIBLE);
  resize();
  showRange();
  showEvent();
  draw();
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

/** As much around an event as can be read. */
function centre(at, scale) {
  view.scale = scale;
  view.left = at + 0.5 - view.width / view.scale / 2;
  clamp();
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
const toBroken = () => {
  const next = brokenInOrder.find((at) => at > view.cursor) ?? brokenInOrder[0];
  if (next !== undefined) goTo(next);
};
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
  story: turn, previous: KEYS.ArrowLeft, next: KEYS.ArrowRight, "to-broken": toBroken, fit,
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
  const lines = [`${data.unit} ${numberOf(at)}: ${data.events[at].words.slice(0, 300)}`];
  const of = lane?.kind === "pack" ? lane.rows.find((row) => row.to > at) : lane;
  const words = of && of.kind !== "heading" ? wordsAt(of, at) : "";
  if (words) lines.push(`${of.name}: ${words}`);
  for (const one of brokenAt.get(at) ?? []) lines.push(`broken: ${one.contract}`);
  tip.replaceChildren(...lines.map((line) => element("div", line)));
  const x = Math.min(event.offsetX + 14, chart.clientWidth - tip.offsetWidth - 6);
  const below = event.offsetY + 18;
  const fits = below + tip.offsetHeight < chart.clientHeight;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, fits ? below : event.offsetY - tip.offsetHeight - 10)}px`;
}

// paper

let onScreen = null;

/** On paper all lanes are in one picture, of the whole run or of what is around the broken step. */
function print(begins) {
  if (begins === printing) return;
  printing = begins;
  document.documentElement.classList.toggle("printed", begins);
  readPalette();
  listEvents(begins ? NEAR_PRINTED : NEAR);
  if (begins) {
    onScreen = { ...view };
    Object.assign(view, { top: 0, left: 0, scale: 0 });
    resize();
    if (view.scale < PRINTED.legible) centre(subject ?? view.cursor, PRINTED.legible);
  } else {
    Object.assign(view, onScreen);
  }
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
  resize(); // clears the canvas: what is drawn in a later frame would let it flicker
  draw();
}).observe(chart);

// the start

take(false);
readPalette();
showPage();
open();
showEvent();
draw();
