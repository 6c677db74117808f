// The page of a simulation: four charts against the size of the encoder cache, and the table.

const found = JSON.parse(document.getElementById("data").textContent);
const kinds = Object.keys(found.kinds);

const MEASURES = [
  { title: "Hit rate, % of items that the cache was asked for", of: (one) => 100 * one.hit_rate },
  {
    title: "Re-encodes, per 1,000 requests",
    of: (one) => (1000 * one.figures.re_encodes) / one.figures.requests,
  },
  {
    title: "Stalls, request-steps per request",
    of: (one) =>
      (one.figures.budget_stalls + one.figures.space_stalls) / one.figures.requests,
  },
  { title: "Peak memory, MiB", of: (one) => one.peak_bytes / 2 ** 20 },
];

// How wide a chart is, and where the sizes stand on it: as there is room on the page.
function layout() {
  const room = document.documentElement.clientWidth - 2 * 20;
  return found.axes.widths.find(({ width }) => width <= room) ?? found.axes.widths.at(-1);
}

// A line for each kind of traffic, over sizes on a scale of powers of two.
function sizeChart({ title, of }, { width, ticks: named }) {
  const { left, right } = found.axes;
  const [height, top, bottom] = [220, 10, 36];
  const places = new Map(named.map((tick) => [tick.size, tick.x]));
  const most = Math.max(...found.points.map(of)) || 1;
  const x = (size) => places.get(size);
  const y = (value) => height - bottom - (value / most) * (height - top - bottom);
  const grid = ticks(most, 4).map((value) => svg("g", {},
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
    svg("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" },
      brief(value))));
  const axis = named.map((tick) => svg("g", {},
    svg("line", { class: "grid", x1: tick.x, x2: tick.x, y1: y(0), y2: y(0) + 4 }),
    svg("text", { class: "axis", x: tick.x, y: height - bottom + 16, "text-anchor": "middle" },
      tick.label)));
  const unit = svg("text", { class: "axis", x: (left + width - right) / 2, y: height - 3,
    "text-anchor": "middle" }, "rows kept (1K is 1,024)");
  const lines = kinds.map((kind, which) => {
    const points = found.points.filter((one) => one.traffic === kind)
      .map((one) => [one.encoder_cache, of(one)]);
    return [
      svg("path", { class: `line ${colored(which)}`, d: line(points, x, y) }),
      points.map(([size, value]) => svg("circle",
        { class: `dot ${colored(which)}`, cx: x(size), cy: y(value), r: 3 },
        svg("title", {}, `${kind}, ${count(size)} rows: ${decimal(value)}`))),
    ];
  });
  return html("figure", {}, html("figcaption", {}, title),
    picture(width, height, `${title}, against rows of the encoder cache`, grid, axis, unit, lines));
}

function megabytes(bytes) {
  return `${brief(bytes / 2 ** 20)} MiB`;
}

document.getElementById("head").append(
  html("h1", {}, `Which size of the encoder cache? By the decisions of vLLM ${found.release}`),
  html("p", { class: `verdict ${found.tone}` }, found.answer),
  html("p", {}, `${counted(found.requests, "request")} of synthetic traffic in each run, ` +
    `seed ${found.seed}, ${counted(found.row_bytes, "byte")} a row.`),
  html("ul", { class: "legend" }, kinds.map((kind, which) => html("li", {},
    html("span", { class: `key ${colored(which)}` }), `${kind}: ${found.kinds[kind]}`))));

document.getElementById("charts").append(
  html("h2", { id: "charts-title" }, "Against the rows that are kept"),
  html("div", { class: "charts" },
    found.points.length ? MEASURES.map((one) => sizeChart(one, layout())) : "Nothing was run."));

const COLUMNS = ["run", ["hit rate", "number"], ["covered", "number"], ["hits", "number"],
  ["encodes", "number"], ["re-encodes", "number"], ["stalls: budget", "number"],
  ["stalls: cache", "number"], ["steps", "number"], ["rows, mean", "number"],
  ["rows, peak", "number"], ["held, peak", "number"], ["peak memory", "number"]];

const rows = found.points.map((one) => [
  `${one.traffic}, ${count(one.encoder_cache)} rows`, share(one.hit_rate),
  ...[one.figures.covered, one.figures.hits, one.figures.encodes, one.figures.re_encodes,
    one.figures.budget_stalls, one.figures.space_stalls, one.figures.steps, one.resident_mean,
    one.figures.resident_peak, one.figures.held_peak].map(count),
  megabytes(one.peak_bytes)]);

document.getElementById("figures").append(
  html("h2", { id: "figures-title" }, "The figures"),
  rows.length ? table("Every run", COLUMNS, rows) : "There are none.");
