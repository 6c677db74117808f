// The page: its sections from the board's data, drawn anew when the window or the data change.

const HOLDS = 0, FROM_MODEL = 4;
const POLL_MS = 5000;
const LEAST_WIDTH = 240;

function tone(code) {
  return code === HOLDS ? "good" : code === FROM_MODEL ? "warn" : "bad";
}

function total(board, of) {
  return board.targets.reduce((sum, one) => sum + of(one), 0);
}

function figure(number, what) {
  return html("div", { class: "figure" }, html("b", {}, number), html("span", {}, what));
}

function head(board) {
  const alarms = board.faults.filter((one) => one.is_alarm).length;
  const planted = board.targets.flatMap((one) => one.contracts);
  const found = planted.reduce((sum, one) => sum + one.found, 0);
  const of = planted.reduce((sum, one) => sum + one.planted, 0);
  const shards = total(board, (one) => one.shards);
  const known = board.targets.every((one) => one.shards_of !== null);
  const running = board.runners.filter((one) => one.state === "runs").length;
  const words = running ? `${counted(running, "process").replace("processs", "processes")} running` : "nobody runs it";
  const reasons = board.targets.flatMap((one) => one.void_because.map((why) => `${one.name}: ${why}`));
  return [
    html("p", { class: "kicker" }, "cacheproof campaign",
      html("span", { class: `state ${running ? "runs" : ""}` }, words)),
    html("h1", {}, board.title),
    html("p", { class: `verdict ${tone(board.exit_code)}` }, html("strong", {}, board.words),
      ` Exit code ${board.exit_code}.`),
    reasons.length ? html("ul", { class: "plain reasons" }, reasons.slice(0, 8).map((one) => html("li", {}, one)),
      reasons.length > 8 ? html("li", {}, `and ${count(reasons.length - 8)} more`) : null) : null,
    html("div", { class: "figures" },
      figure(brief(total(board, (one) => one.events)), "events"),
      figure(brief(total(board, (one) => one.traces)), "traces"),
      figure(count(shards) + (known ? ` / ${count(total(board, (one) => one.shards_of))}` : ""), "shards"),
      figure(count(alarms), "unlisted"),
      figure(count(board.faults.filter((one) => one.is_listed).length), "listed faults"),
      figure(`${count(found)} / ${count(of)}`, "planted faults found"),
      figure(duration(board.length), "run")),
    html("dl", { class: "facts" },
      board.facts.map(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]),
      board.begun === null ? null : [html("dt", {}, "begun"), html("dd", {}, time(board.begun))],
      [html("dt", {}, "read"), html("dd", {}, time(board.read_at))]),
  ];
}

function legend(board) {
  return html("ul", { class: "legend", "aria-label": "Targets" }, board.targets.map((one, number) =>
    html("li", {}, html("i", { class: `key ${colored(number)}` }), one.name)));
}

function pace(board, width) {
  const shown = board.targets.map((one, number) => ({ ...one, number })).filter((one) => one.bins.length);
  const half = width >= 900 ? (width - 32) / 2 : width;
  const series = (at) => shown.map((one) => ({
    name: one.name, color: colored(one.number), points: one.bins.map((bin) => [bin[0], bin[at]]),
  }));
  const charts = [[1, "Events per second", "events/s"], [2, "Events in all", "events"], [3, "Traces in all", "traces"]];
  return [
    html("h2", { id: "pace-title" }, "Pace"),
    shown.length ? legend(board) : html("p", { class: "quiet" }, "No shard has ended yet."),
    shown.length ? html("div", { class: "charts" }, charts.map(([at, title, unit]) => html("figure", { class: at === 1 ? "wide" : "" },
      html("figcaption", {}, title),
      lineChart(board, at === 1 ? width : half, { key: title, words: `${title}, by target, over the time in which somebody ran the campaign`, series: series(at), unit })))) : null,
    board.pauses.length ? html("p", { class: "quiet" }, `Times are those in which somebody ran the campaign. ${counted(board.pauses.length, "pause")} left out, of ${duration(board.pauses.reduce((sum, [, one]) => sum + one, 0))} in all: dashed lines.`) : null,
    shown.length ? details("pace table", "The numbers", shown.map((one) => table(`Pace of ${one.name}`,
      [["until", "number"], ["events/s", "number"], ["events", "number"], ["traces", "number"]],
      one.bins.map((bin) => [duration(bin[0]), count(bin[1]), count(bin[2]), count(bin[3])])))) : null,
  ];
}

function fault(board, one, width) {
  const when = one.first === null ? "no shard that is dated broke it this way"
    : `first after ${duration(one.first)}, last after ${duration(one.last)}`;
  const where = [...new Set(one.times.map(([, target]) => board.targets[target].name))];
  const words = `${one.name} over time: ${counted(one.traces, "trace")} in ${counted(one.times.length, "shard")}, ${when}`;
  return html("article", { class: `fault ${one.is_alarm ? "alarm" : ""}` },
    html("h3", {}, one.name, html("span", { class: `tag ${one.harm === "safety" || one.is_alarm ? "bad" : ""}` }, one.harm),
      one.is_listed ? null : html("span", { class: "tag" }, "not listed")),
    one.note ? html("p", {}, one.note) : null,
    strip(board, width, words, one.times),
    html("p", { class: "quiet" }, `at least ${counted(one.traces, "trace")} in ${where.join(", ") || "no shard"}; ${when}; ${one.contracts.join(" ")}`,
      one.page ? `; ${one.page}` : "", one.thread ? `; ${one.thread}` : ""),
    one.smallest.map((small) => html("div", { class: "small" },
      html("p", {}, `${small.sentence} (${counted(small.events, "event")})`),
      small.command ? html("pre", { tabindex: "0" }, html("code", {}, small.command))
        : html("p", { class: "quiet" }, "Its file is not written: cacheproof campaign report writes it."))),
    details(`fault ${one.name}`, "The numbers", table(`${one.name}: when it showed`,
      [["after", "number"], "target", ["traces", "number"]],
      one.times.map(([at, target, traces]) => [duration(at), board.targets[target].name, count(traces)]))));
}

function findings(board, width) {
  const columns = width >= 900 ? 2 : 1;
  const inner = (width - (columns - 1) * 16) / columns - 30;
  const alarms = board.faults.filter((one) => one.is_alarm).length;
  return [
    html("h2", { id: "findings-title" }, "Findings"),
    html("p", { class: "lead" }, board.faults.length
      ? `${counted(alarms, "unlisted finding")}, ${counted(board.faults.length - alarms, "other")}. A mark is a shard; it is the taller the more traces broke.`
      : "Nothing is broken so far."),
    html("div", { class: "faults" }, board.faults.map((one) => fault(board, one, inner))),
  ];
}

// A contract that breaks by listed faults alone is no news.
function standing(contract) {
  if (contract.found < contract.planted) return "missed";
  const listed = contract.verdict === "refuted" && contract.known !== "not listed";
  return listed ? "listed" : contract.verdict;
}

function contracts(board) {
  return [
    html("h2", { id: "contracts-title" }, "Contracts judged"),
    board.targets.map((target, number) => {
      const held = target.contracts.filter((one) => one.verdict === "tested").length;
      const planted = target.contracts.reduce((sum, one) => sum + one.planted, 0);
      const found = target.contracts.reduce((sum, one) => sum + one.found, 0);
      return [
        html("h3", {}, html("i", { class: `key ${colored(number)}` }), target.name),
        html("p", { class: "lead" }, `${count(held)} of ${counted(target.contracts.length, "contract")} hold on every trace. ${count(found)} of ${counted(planted, "planted fault")} found.`),
        target.missed.length ? html("p", { class: "bad" }, `Missed: ${target.missed.join("; ")}`) : null,
        html("ul", { class: "grid", "aria-label": `Contracts of ${target.name}` }, target.contracts.map((one) =>
          html("li", { class: standing(one), title: `${one.title}: ${one.verdict}; ${one.scope}` }, one.id))),
        details(`contracts ${number}`, "The numbers", table(`Contracts of ${target.name}`,
          ["contract", "says", "came to", "of", ["planted", "number"], ["found", "number"]],
          target.contracts.map((one) => [one.id, one.title, one.known ? `${one.verdict}: ${one.known}` : one.verdict, one.scope, count(one.planted), count(one.found)]))),
      ];
    }),
  ];
}

function runners(board, width) {
  const known = board.losses !== null;
  return [
    html("h2", { id: "runners-title" }, "Who ran it"),
    board.runners.length ? [
      gantt(board, width, board.runners),
      table("Processes", ["process", "state", ["workers", "number"], "begun", "last heard of", ["shards", "number"], ["plantings", "number"], ["made small", "number"], ["under way", "number"], ["lost", "number"]],
        board.runners.map((one) => [`${one.host} ${one.pid}`, one.state, count(one.workers), time(one.begun), time(one.heard), count(one.searches), count(one.plantings), count(one.writings), count(one.under_way), known ? count(one.lost) : "not kept"])),
    ] : html("p", { class: "quiet" }, "No process has run it."),
    known && board.losses.length ? details("losses", `${counted(board.losses.length + board.losses_left_out, "job")} lost, to be done again`,
      board.losses_left_out ? html("p", {}, `The last ${count(board.losses.length)} of them.`) : null,
      table("Jobs that were lost", ["job", "at", "by", "why"], board.losses.map((one) => [one.job, time(one.at), one.who, one.why]))) : null,
    known && !board.losses.length && board.runners.length ? html("p", { class: "quiet" }, "No job was lost.") : null,
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
  const open = new Set([...document.querySelectorAll("details[open]")].map((one) => one.dataset.key));
  const focused = document.activeElement && document.activeElement.dataset.key;
  const width = Math.max(LEAST_WIDTH, document.querySelector("main").clientWidth);
  document.title = `${shown.title}: ${shown.words}`;
  for (const [id, section] of Object.entries(SECTIONS)) {
    document.getElementById(id).replaceChildren(...[section(shown, width)].flat(Infinity).filter(Boolean));
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
