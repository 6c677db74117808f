// The page: its sections from the board's data, drawn anew when the window or the data change.

const HOLDS = 0, FROM_MODEL = 4;
const POLL_MS = 5000;
const LEAST_WIDTH = 240, WIDE = 900, COLUMN_GAP = 32;
const REASONS = 8;

function tone(code) {
  return code === HOLDS ? "good" : code === FROM_MODEL ? "warn" : "bad";
}

function total(board, of) {
  return board.targets.reduce((sum, one) => sum + of(one), 0);
}

function figure(number, what) {
  return html("div", { class: "figure" }, html("b", {}, number), html("span", {}, what));
}

function headFigures(board) {
  const contracts = board.targets.flatMap((one) => one.contracts);
  const found = contracts.reduce((sum, one) => sum + one.found, 0);
  const planted = contracts.reduce((sum, one) => sum + one.planted, 0);
  const isKnown = board.targets.every((one) => one.shards_of !== null);
  const of = isKnown ? ` / ${count(total(board, (one) => one.shards_of))}` : "";
  return html("div", { class: "figures" },
    figure(brief(total(board, (one) => one.events)), "events"),
    figure(brief(total(board, (one) => one.traces)), "traces"),
    figure(`${count(total(board, (one) => one.shards))}${of}`, "shards"),
    figure(count(board.faults.filter((one) => one.is_alarm).length), "unlisted"),
    figure(count(board.faults.filter((one) => one.is_listed).length), "listed faults"),
    figure(`${count(found)} / ${count(planted)}`, "planted faults found"),
    figure(duration(board.length), "run"));
}

function reasons(board) {
  const all = board.targets.flatMap((one) => one.void_because.map((why) => `${one.name}: ${why}`));
  const more = all.length - REASONS;
  return all.length ? html("ul", { class: "plain" },
    all.slice(0, REASONS).map((one) => html("li", {}, one)),
    more > 0 ? html("li", {}, `and ${count(more)} more`) : null) : null;
}

function head(board) {
  const running = board.runners.filter((one) => one.state === "runs").length;
  const who = running ? `${processes(running)} running` : "nobody runs it";
  return [
    html("p", { class: "kicker" }, "cacheproof campaign",
      html("span", { class: `state ${running ? "runs" : ""}` }, who)),
    html("h1", {}, board.title),
    html("p", { class: `verdict ${tone(board.exit_code)}` }, html("strong", {}, board.words),
      ` Exit code ${board.exit_code}.`),
    reasons(board),
    headFigures(board),
    html("dl", { class: "facts" },
      board.facts.map(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]),
      board.begun === null ? null : [html("dt", {}, "begun"), html("dd", {}, time(board.begun))],
      html("dt", {}, "read"), html("dd", {}, time(board.read_at))),
  ];
}

function legend(board) {
  return html("ul", { class: "legend", "aria-label": "Targets" }, board.targets.map((one, number) =>
    html("li", {}, html("i", { class: `key ${colored(number)}` }), one.name)));
}

const PACE = [
  [1, "Events per second", "events/s"], [2, "Events in all", "events"],
  [3, "Traces in all", "traces"],
];

function paceChart(board, shown, width, [at, title, unit]) {
  const words = `${title}, by target, over the time in which somebody ran the campaign`;
  const series = shown.map((one) => ({
    name: one.name, color: colored(one.number), points: one.bins.map((bin) => [bin[0], bin[at]]),
  }));
  return html("figure", {}, html("figcaption", {}, title),
    lineChart(board, width, { key: title, words, series, unit }));
}

function paceTable(one) {
  const columns = ["until", ["events/s", "number"], ["events", "number"], ["traces", "number"]];
  return table(`Pace of ${one.name}`, columns, one.bins.map(([until, ...numbers]) =>
    [duration(until), ...numbers.map(count)]));
}

function pace(board, width) {
  const title = html("h2", { id: "pace-title" }, "Pace");
  const shown = board.targets.map((one, number) => ({ ...one, number }))
    .filter((one) => one.bins.length);
  if (!shown.length) return [title, html("p", { class: "quiet" }, "No shard has ended yet.")];
  const half = width >= WIDE ? (width - COLUMN_GAP) / 2 : width;
  const left = board.pauses.reduce((sum, [, seconds]) => sum + seconds, 0);
  return [
    title,
    legend(board),
    html("div", { class: "charts" }, PACE.map((one, at) =>
      paceChart(board, shown, at ? half : width, one))),
    board.pauses.length ? html("p", { class: "quiet" }, "Times are those in which somebody ran " +
      `the campaign. ${counted(board.pauses.length, "pause")} of ${duration(left)} in all left ` +
      "out: dashed lines.") : null,
    details("pace table", "The numbers", shown.map(paceTable)),
  ];
}

function smallest(one) {
  return html("div", { class: "small" },
    html("p", {}, `${one.sentence} (${one.target}, ${counted(one.events, "event")})`),
    one.command
      ? html("pre", { tabindex: "0" }, html("code", {}, one.command))
      : html("p", { class: "quiet" }, "Its file is not written yet; cacheproof campaign report " +
        "writes it."));
}

function fault(board, one, width) {
  const nameOf = (target) => board.targets[target].name;
  const when = one.first === null
    ? "no shard broke it just this way"
    : `first after ${duration(one.first)}, last after ${duration(one.last)}`;
  const where = [...new Set(one.times.map(([, target]) => nameOf(target)))].join(", ");
  const traces = `at least ${counted(one.traces, "trace")} in ${where || "no target"}`;
  const words = `${one.name} over time: ${traces}, ${when}`;
  const isBad = one.is_alarm || one.harm === "safety";
  const about = [traces, when, one.contracts.join(" "), one.page, one.thread].filter(Boolean);
  return html("article", { class: one.is_alarm ? "fault alarm" : "fault" },
    html("h3", {}, one.name, html("span", { class: isBad ? "tag bad" : "tag" }, one.harm),
      one.is_listed ? null : html("span", { class: "tag" }, "not listed")),
    one.note ? html("p", {}, one.note) : null,
    strip(board, width, words, one.times),
    html("p", { class: "quiet" }, about.join("; ")),
    one.smallest.length
      ? one.smallest.map(smallest)
      : html("p", { class: "quiet" }, "No small trace of it is written down yet."),
    details(`fault ${one.name}`, "The numbers", table(`When ${one.name} showed`,
      ["after", "target", ["traces", "number"]],
      one.times.map(([at, target, broke]) => [duration(at), nameOf(target), count(broke)]))));
}

function findings(board, width) {
  const columns = width >= WIDE ? 2 : 1;
  const inner = (width - (columns - 1) * GAP) / columns - CARD_EDGES;
  const alarms = board.faults.filter((one) => one.is_alarm).length;
  const words = board.faults.length
    ? `${count(alarms)} unlisted, ${counted(board.faults.length - alarms, "other")}. Marks ` +
      "are where it showed; the more traces broke, the taller."
    : "Nothing is broken so far.";
  return [
    html("h2", { id: "findings-title" }, "Findings"),
    html("p", { class: "lead" }, words),
    html("div", { class: columns > 1 ? "faults two" : "faults" },
      board.faults.map((one) => fault(board, one, inner))),
  ];
}

// A contract that breaks by listed faults alone, or to no harm, is no news.
function standing(contract) {
  if (contract.found < contract.planted) return "missed";
  return contract.verdict === "refuted" && !contract.is_alarm ? "listed" : contract.verdict;
}

function contractsOf(target, number) {
  const held = target.contracts.filter((one) => one.verdict === "tested").length;
  const planted = target.contracts.reduce((sum, one) => sum + one.planted, 0);
  const found = target.contracts.reduce((sum, one) => sum + one.found, 0);
  const columns = ["contract", "says", "came to", "of", ["planted", "number"],
    ["found", "number"]];
  const rows = target.contracts.map((one) => [
    one.id, one.title, one.is_alarm ? `${one.verdict}, not listed` : one.verdict, one.scope,
    count(one.planted), count(one.found)]);
  return [
    html("h3", {}, html("i", { class: `key ${colored(number)}` }), target.name),
    html("p", { class: "lead" }, `${count(held)} of ` +
      `${counted(target.contracts.length, "contract")} hold on every trace. ${count(found)} of ` +
      `${counted(planted, "planted fault")} found.`),
    target.missed.length
      ? html("p", { class: "bad" }, `Missed: ${target.missed.join("; ")}`) : null,
    html("ul", { class: "grid", "aria-label": `Contracts of ${target.name}` },
      target.contracts.map((one) => html("li", {
        class: standing(one), title: `${one.title}: ${one.verdict}; ${one.scope}`,
      }, one.id))),
    details(`contracts ${number}`, "The numbers",
      table(`Contracts of ${target.name}`, columns, rows)),
  ];
}

function contracts(board) {
  return [
    html("h2", { id: "contracts-title" }, "Contracts judged"),
    html("p", { class: "quiet" }, "Green holds. Yellow breaks by listed faults alone, or to no " +
      "harm. Red breaks by what is not listed, or misses a planted fault. Grey was not judged."),
    board.targets.map(contractsOf),
  ];
}

function processTable(board) {
  const columns = ["process", "state", ["workers", "number"], "begun", "last heard of",
    ["shards", "number"], ["plantings", "number"], ["made small", "number"],
    ["under way", "number"], ["lost", "number"]];
  return table("Processes", columns, board.runners.map((one) => [
    `${one.host} ${one.pid}`, one.state, count(one.workers), time(one.begun), time(one.heard),
    count(one.searches), count(one.plantings), count(one.writings), count(one.under_way),
    board.losses === null ? "not kept" : count(one.lost)]));
}

function losses(board) {
  if (board.losses === null || !board.runners.length) return null;
  if (!board.losses.length) return html("p", { class: "quiet" }, "No job was lost.");
  const all = board.losses.length + board.losses_left_out;
  return details("losses", `${counted(all, "job")} lost, to be done again`,
    board.losses_left_out
      ? html("p", {}, `The last ${count(board.losses.length)} of them.`) : null,
    table("Jobs that were lost", ["job", "at", "by", "why"], board.losses.map((one) =>
      [one.job, time(one.at), one.who, one.why])));
}

function runners(board, width) {
  return [
    html("h2", { id: "runners-title" }, "Who ran it"),
    board.runners.length
      ? [gantt(board, width, board.runners), processTable(board)]
      : html("p", { class: "quiet" }, "No process is known that ran it."),
    losses(board),
  ];
}

function notes(board) {
  return [
    html("h2", { id: "notes-title" }, "What this page does not know"),
    html("ul", { class: "plain" }, board.notes.map((one) => html("li", {}, one))),
  ];
}

const SECTIONS = { head, pace, findings, coverage, unseen, contracts, runners, notes };
let shown = JSON.parse(document.getElementById("data").textContent);

// Draw it all; what was unfolded stays so, and the keyboard stays where it was.
function draw() {
  if (shown === null) return;
  const unfolded = [...document.querySelectorAll("details[open]")];
  const open = new Set(unfolded.map((one) => one.dataset.key));
  const focused = document.activeElement && document.activeElement.dataset.key;
  const width = Math.max(LEAST_WIDTH, document.querySelector("main").clientWidth);
  document.title = `${shown.title}: ${shown.words}`;
  for (const [id, section] of Object.entries(SECTIONS)) {
    const parts = section(shown, width).flat(Infinity).filter(Boolean);
    document.getElementById(id).replaceChildren(...parts);
  }
  for (const one of document.querySelectorAll("[data-key]")) {
    if (one.tagName === "DETAILS") one.open = open.has(one.dataset.key);
    if (focused && one.dataset.key === focused) one.focus({ preventScroll: true });
  }
}

function say(trouble) {
  const place = document.getElementById("trouble");
  place.hidden = !trouble;
  if (place.textContent !== trouble) place.textContent = trouble;
}

let told = "";

async function ask(url) {
  try {
    const answer = await fetch(url, { cache: "no-store" });
    const text = await answer.text();
    const heard = JSON.parse(text);
    if (heard.trouble) {
      say(heard.trouble);
    } else {
      say("");
      if (text !== told) {
        told = text;
        shown = heard;
        draw();
      }
    }
  } catch {
    say("The server of this page does not answer. What is shown is what it said last.");
  }
  document.body.dataset.asked = String(Number(document.body.dataset.asked || 0) + 1);
  setTimeout(ask, POLL_MS, url);
}

let drawn = 0;
addEventListener("resize", () => {
  if (drawn !== innerWidth) draw();
  drawn = innerWidth;
});
drawn = innerWidth;
draw();
if (document.body.dataset.asks) ask(document.body.dataset.asks);
