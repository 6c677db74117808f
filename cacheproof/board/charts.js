// Charts as inline SVG. Each says in words what it shows, and stands beside a table of its numbers.

const COLORS = 8;

function colored(target) {
  return `t${target % COLORS}`;
}

// Whole numbers that divide an axis.
function ticks(most, wanted) {
  if (!(most > 0)) return [0];
  const rough = Math.max(1, most / wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, at) => at * step);
}

const TIMES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800,
  43200, 86400, 172800, 604800];

function timeTicks(length, wanted) {
  const step = TIMES.find((one) => length / one <= wanted) || length / wanted;
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, at) => at * step);
}

// The frame of a chart over the campaign's time: its scales, grid, pauses and axes.
function frame(board, width, height, most, left) {
  const inside = { left, right: 10, top: 10, bottom: 22 };
  const x = (at) => inside.left + (at / (board.length || 1)) * (width - inside.left - inside.right);
  const y = (value) =>
    height - inside.bottom - (value / (most || 1)) * (height - inside.top - inside.bottom);
  const lines = ticks(most, 4).map((value) => svg("g", {},
    svg("line", { class: "grid", x1: x(0), x2: x(board.length), y1: y(value), y2: y(value) }),
    svg("text", { class: "axis", x: inside.left - 6, y: y(value) + 4, "text-anchor": "end" },
      brief(value))));
  const times = timeTicks(board.length, Math.max(2, Math.floor(width / 110))).map((at) => svg(
    "text",
    { class: "axis", x: x(at), y: height - 5, "text-anchor": at === 0 ? "start" : "middle" },
    at === 0 ? "0" : duration(at)));
  return { x, y, parts: [lines, times, pauses(board, x, inside.top, height - inside.bottom)] };
}

function pauses(board, x, top, bottom) {
  return board.pauses.map(([at, seconds]) => svg("line",
    { class: "pause", x1: x(at), x2: x(at), y1: top, y2: bottom },
    svg("title", {}, `a pause of ${duration(seconds)} is left out`)));
}

function picture(width, height, words, ...parts) {
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" },
    svg("title", {}, words), ...parts);
}

function line(points, x, y) {
  return points.map(([at, value], which) =>
    `${which ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

// A line for each series over time, with a cursor that the mouse or the arrow keys move.
function lineChart(board, width, { key, words, series, unit }) {
  const height = 190;
  const most = Math.max(...series.flatMap((one) => one.points.map(([, value]) => value)), 0);
  const { x, y, parts } = frame(board, width, height, most, 46);
  const lines = series.map((one) => [
    svg("path", {
      class: `area ${one.color}`,
      d: `${line(one.points, x, y)}V${y(0)}H${x(one.points[0][0])}Z`,
    }),
    svg("path", { class: `line ${one.color}`, d: line(one.points, x, y) }),
  ]);
  const cursor = svg("line", { class: "cursor", y1: 10, y2: height - 22, visibility: "hidden" });
  const readout = html("p", { class: "readout", "aria-live": "polite" }, "\u00a0");
  const all = series.flatMap((one) => one.points.map(([at]) => at));
  const moments = [...new Set(all)].sort((a, b) => a - b);
  let which = moments.length;
  function look(at) {
    which = Math.max(0, Math.min(moments.length - 1, at));
    const now = moments[which];
    cursor.setAttribute("x1", x(now));
    cursor.setAttribute("x2", x(now));
    cursor.setAttribute("visibility", "visible");
    const values = series.map((one) => [one.name, one.points.find(([when]) => when === now)]);
    readout.textContent = `${duration(now)}: ${values.filter(([, point]) => point)
      .map(([name, point]) => `${name} ${brief(Math.round(point[1]))} ${unit}`).join(", ")}`;
  }
  const chart = html("div", {
    class: "chart", tabindex: "0", role: "group", "data-key": key,
    "aria-label": `${words}. Left and right arrows read it out.`,
  }, picture(width, height, words, parts, lines, cursor));
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      look(which === moments.length && step > 0 ? 0 : which + step);
    }
  });
  chart.addEventListener("pointermove", (event) => {
    const at = event.clientX - chart.getBoundingClientRect().left;
    const distances = moments.map((one) => Math.abs(x(one) - at));
    look(distances.indexOf(Math.min(...distances)));
  });
  return html("div", {}, chart, readout);
}

// How many there are from when on: steps that only grow.
function stepChart(board, width, { words, steps, color }) {
  const height = 84;
  const last = steps.length ? steps.at(-1)[1] : 0;
  const { x, y, parts } = frame(board, width, height, Math.max(last, 1), 30);
  const path = steps.map(([at, value], which) =>
    `${which ? "H" : "M"}${x(at).toFixed(1)}${which ? "V" : " "}${y(value).toFixed(1)}`).join("");
  return picture(width, height, words, parts,
    steps.length ? [
      svg("path", { class: `line ${color}`, d: `${path}H${x(board.length).toFixed(1)}` }),
      svg("circle", { class: `dot ${color}`, cx: x(steps.at(-1)[0]), cy: y(last), r: 3 }),
    ] : null);
}

// When a fault showed: marks, the taller the more traces.
function strip(board, width, words, times) {
  const height = 30;
  const x = (at) => 4 + (at / (board.length || 1)) * (width - 8);
  const most = Math.max(...times.map(([, , traces]) => traces), 1);
  return picture(width, height, words,
    svg("line", { class: "grid", x1: 4, x2: width - 4, y1: height - 5, y2: height - 5 }),
    pauses(board, x, 2, height - 5),
    times.map(([at, target, traces]) => {
      const tall = 5 + (traces / most) * (height - 13);
      return svg("line", {
        class: `mark ${colored(target)}`, x1: x(at), x2: x(at), y1: height - 5,
        y2: height - 5 - tall,
      });
    }));
}

// Bounds and the estimate between them, on a scale of powers of ten from `least` to 1.
function whisker(width, words, low, middle, high, least) {
  const height = 18;
  const x = (rate) => {
    const place = Math.log10(Math.max(rate, least) / least) / Math.log10(1 / least);
    return 5 + Math.min(1, place) * (width - 10);
  };
  return picture(width, height, words,
    svg("line", { class: "grid", x1: 5, x2: width - 5, y1: 9, y2: 9 }),
    svg("line", { class: "whisker", x1: x(low), x2: x(high), y1: 9, y2: 9 }),
    middle > 0 ? svg("circle", { class: "dot t0", cx: x(middle), cy: 9, r: 4 }) : null);
}

// Who ran the campaign when: a row for each process, in which its searches stand.
function gantt(board, width, runners) {
  const row = 20;
  const height = runners.length * row + 30;
  const { x, parts } = frame(board, width, height, 0, 10);
  const bars = runners.map((one, at) => {
    const top = 8 + at * row;
    const end = Math.max(x(one.heard_at), x(one.begun_at) + 2);
    const ended = one.state === "ended without a word";
    return svg("g", {},
      svg("title", {}, `${one.host} process ${one.pid}: ${one.state}, ` +
        counted(one.searches, "shard")),
      svg("rect", {
        class: "bar", x: x(one.begun_at), width: end - x(one.begun_at), y: top,
        height: row - 7,
      }),
      one.spans.map(([begin, until, target]) => svg("rect", {
        class: `done ${colored(target)}`, x: x(begin), y: top + 3, height: row - 13,
        width: Math.max(1, x(until) - x(begin) - 0.5),
      })),
      ended ? svg("path", { class: "died", d: `M${end - 4} ${top + 2}l8 8m0 -8l-8 8` }) : null);
  });
  const words = `Who ran the campaign: ${processes(runners.length)} over ${duration(board.length)}`;
  return picture(width, height, words, parts.slice(1), bars);
}
