// What the page says, and where: the lanes, and what each says of an event. Whatever a trace says
// is put in as text.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const [chart, canvas, tip] = ["chart", "canvas", "tip"].map(byId);
const pen = canvas.getContext("2d");
const COUNT = data.events.length;
const GUTTER = 168, RULER = 30, HEADING = 24, ROW = 22, TALL = 46, PAD = 3, FLAG_MAX = 220;
const NEAR = 20, NEAR_PRINTED = 100, STATES = 60, LEGIBLE = 24, ROWS_MAX = 24;
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
const brokenAt = new Map();
for (const one of data.broken) {
  const at = one.event - data.first;
  brokenAt.set(at, [...(brokenAt.get(at) ?? []), one]);
}
const brokenInOrder = [...brokenAt.keys()].sort((one, other) => one - other);
const subject = data.broken.length ? data.broken[0].event - data.first : null;
const view = { left: 0, scale: 1, top: 0, width: 0, height: 0, cursor: subject ?? 0 };
let palette = {}, found = {}, pending = false, printing = false;

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

/** Groups as they are laid out: a heading, charts and rows. */
const groups = data.groups.map((group) => {
  const heading = { kind: "heading", ...group, height: HEADING, from: 0, to: COUNT };
  const rows = group.rows.map(rowOf);
  const packs = rows.length > ROWS_MAX ? packed(rows) : [];
  return { name: group.name, top: [heading, ...group.charts.map(chartOf)], rows, packs };
});
const allRows = groups.flatMap((group) => group.rows);

/** The lanes that say something of the events in view; they are looked for when it has changed. */
function lanesInView() {
  const { left, width, scale } = view;
  if (found.left === left && found.width === width && found.scale === scale) return found.lanes;
  const right = left + width / scale;
  const isSeen = (lane) => lane.to > left && lane.from < right;
  const lanes = groups.flatMap(({ top, rows, packs }) => {
    const seen = rows.filter(isSeen);
    return [...top, ...(seen.length > ROWS_MAX ? packs.filter(isSeen) : seen)];
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
