// What the page says, and where: the lanes, and what each says of an event. Whatever a trace says
// is put in as text.
const whole = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const [chart, canvas, tip] = ["chart", "canvas", "tip"].map(byId);
const pen = canvas.getContext("2d");
const RULER = 30, HEADING = 24, ROW = 22, TALL = 46, PAD = 3, FLAG_MAX = 220;
const NEAR = 20, NEAR_PRINTED = 100, STATES = 24, LEGIBLE = 24, WIDEST = 96, ROWS_MAX = 24;
const GUTTERS = { narrow: 104, wide: 168 }, NARROW = 600, ALIKE_MIN = 4, ALIKE_MAX = 400;
const PRINTED = { width: 900, height: 960, legible: 14 };
const FONT = "12px system-ui, 'DejaVu Sans', sans-serif";
const MARKS = {
  arrives: "▸", preempted: "↶", ends: "■", encoded: "+", evicted: "✕", reported: "▾",
};
const KINDS = [
  ["waiting", "waits"], ["running", "runs"], ["scheduled", "gets tokens"], ["held", "held"],
  ["idle", "idle: freeable"], ["evicted", "evicted, not reported"],
  ["lost", "needed, not held"], ["stored", "stored"], ["missing", "in the ledger, not stored"],
  ["blocks", "KV blocks"],
];
const NAMED = new Set(whole.opening.subject);
const view = { left: 0, scale: 1, top: 0, width: 0, height: 0, cursor: 0 };
let palette = {}, found = {}, pending = false, printing = false, GUTTER = GUTTERS.wide;

// What is looked at: all events, or those alone that led to what is broken; and what follows of it.
let data, COUNT, brokenAt, brokenInOrder, subject, groups, allRows, isStory;

const endOfSpan = (span) => span[1], endOfPoint = (point) => point[0] + 1;

const inOrder = (one, other) => one.from - other.from;

/** A row, with the events it speaks of. */
function rowOf(row) {
  const parts = [row.spans, row.over, row.marks].filter((part) => part.length);
  const spans = [row.spans, row.over].filter((part) => part.length);
  const from = Math.min(...parts.map((part) => part[0][0]));
  const to = Math.max(
    ...spans.map((part) => endOfSpan(part.at(-1))), ...row.marks.slice(-1).map(endOfPoint),
  );
  return { kind: "row", ...row, height: ROW, from, to };
}

function chartOf(chart) {
  const top = chart.points.reduce((most, point) => Math.max(most, point[1]), chart.limit ?? 1);
  return { kind: "chart", ...chart, top, height: TALL, from: 0, to: COUNT };
}

/** Rows that follow each other in one lane, for where there are too many for a lane each. */
function packed(rows) {
  const lanes = [];
  for (const row of [...rows].sort(inOrder)) {
    const free = lanes.find((lane) => lane.to <= row.from);
    if (free) {
      free.rows.push(row);
      free.to = row.to;
    } else {
      lanes.push({ kind: "pack", rows: [row], height: ROW, from: row.from, to: row.to });
    }
  }
  for (const lane of lanes) {
    const [{ name }] = lane.rows;
    lane.name = lane.rows.length > 1 ? `${name} and ${lane.rows.length - 1} more` : name;
  }
  return lanes;
}

/** Rows of what the break names come first, and have a lane each. */
function laidOut(group) {
  const heading = { kind: "heading", ...group, height: HEADING, from: 0, to: COUNT };
  const rows = group.rows.map(rowOf);
  const [named, others] = [true, false].map((is) =>
    rows.filter((row) => NAMED.has(row.name) === is));
  const packs = others.length > ROWS_MAX ? packed(others) : [];
  const top = [heading, ...group.charts.map(chartOf)];
  return { name: group.name, top, rows: [...named, ...others], named, others, packs };
}

/** Look at all events, or at those of the story alone. */
function take(story) {
  isStory = story;
  data = story ? folded(whole, whole.opening.story) : whole;
  COUNT = data.events.length;
  brokenAt = new Map();
  for (const one of data.broken) {
    const at = one.event - data.first;
    brokenAt.set(at, [...(brokenAt.get(at) ?? []), one]);
  }
  brokenInOrder = [...brokenAt.keys()].sort((one, other) => one - other);
  subject = data.broken.length ? data.broken[0].event - data.first : null;
  groups = data.groups.map(laidOut);
  allRows = groups.flatMap((group) => group.rows);
  found = {};
}

/** A run as if only some of its events had been: lanes say at each what they said there. */
function folded(run, kept) {
  const place = new Map(kept.map((event, at) => [event, at]));
  const after = (event) => firstAfter(kept, event - 1, (one) => one);
  const spans = (some) => some
    .map(([start, end, ...rest]) => [after(start), after(end), ...rest])
    .filter(([start, end]) => start < end);
  const points = ({ points: all, is_level: isLevel }) => kept.flatMap((event, at) => {
    const next = firstAfter(all, event, endOfPoint);
    if (all[next]?.[0] === event) return [[at, all[next][1]]];
    return isLevel && next > 0 ? [[at, all[next - 1][1]]] : [];
  });
  const row = (one) => ({
    ...one, spans: spans(one.spans), over: spans(one.over),
    marks: one.marks.filter(([event]) => place.has(event))
      .map(([event, ...rest]) => [place.get(event), ...rest]),
  });
  return {
    ...run,
    first: 0,
    events: kept.map((event) => run.events[event]),
    gaps: kept.flatMap((event, at) => (at && event > kept[at - 1] + 1 ? [at] : [])),
    groups: run.groups.map((group) => ({
      ...group,
      charts: group.charts.map((one) => ({ ...one, points: points(one) }))
        .filter((one) => one.points.length),
      rows: group.rows.map(row)
        .filter((one) => one.spans.length || one.over.length || one.marks.length),
    })),
    broken: run.broken.filter((one) => place.has(one.event - run.first))
      .map((one) => ({ ...one, event: place.get(one.event - run.first) })),
  };
}

/** What holds of a row through all that is in view, where nothing happens to it there. */
function stillIn(row, left, right) {
  const span = row.spans[firstAfter(row.spans, left, endOfSpan)];
  const isStill = span && span[0] <= left && span[1] >= Math.min(right, COUNT)
    && !isWrong(span[2])
    && !(row.over[firstAfter(row.over, left, endOfSpan)]?.[0] < right)
    && !(row.marks[firstAfter(row.marks, left, endOfPoint)]?.[0] < right);
  return isStill ? span : undefined;
}

/** Rows to which nothing happens in view share a lane with those of their kind. */
function alike(rows, left, right) {
  const kinds = new Map(), lanes = [];
  for (const row of rows) {
    const kind = stillIn(row, left, right)?.[2];
    if (kind === undefined) lanes.push(row);
    else kinds.set(kind, [...(kinds.get(kind) ?? []), row]);
  }
  for (const [kind, some] of kinds) {
    if (some.length < ALIKE_MIN) {
      lanes.push(...some);
      continue;
    }
    const names = some.map((row) => row.name).join(", ");
    const what = KINDS.find(([name]) => name === kind)[1];
    const label = `${what}: ${names}`;
    lanes.push({
      kind: "row", name: `${some.length} others`, height: ROW, from: 0, to: COUNT,
      spans: [[0, COUNT, kind, label, label]], over: [], marks: [],
    });
  }
  return lanes;
}

/** The lanes that say something of the events in view; they are looked for when it has changed. */
function lanesInView() {
  const { left, width, scale } = view;
  if (found.left === left && found.width === width && found.scale === scale) return found.lanes;
  const right = left + width / scale;
  const isSeen = (lane) => lane.to > left && lane.from < right;
  const lanes = groups.flatMap(({ top, named, others, packs }) => {
    const inView = others.filter(isSeen);
    const seen = inView.length > ALIKE_MAX ? inView : alike(inView, left, right);
    const rest = seen.length > ROWS_MAX ? packs.filter(isSeen) : seen;
    return [...top, ...named.filter(isSeen), ...rest];
  });
  found = { left, width, scale, lanes };
  return lanes;
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

const numberOf = (at) => data.events[at].number.toLocaleString("en");

/** What the lanes say of an event: [group, name, words]. */
function statesAt(at) {
  return groups.flatMap(({ name, top, rows }) =>
    [...top.slice(1), ...rows]
      .map((lane) => [name, lane.name, wordsAt(lane, at)])
      .filter(([, , words]) => words),
  );
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
