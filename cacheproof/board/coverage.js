// What lanes have met over time, and what is left unseen.

const QUIET = 0.5;
const CARD = 310, GAP = 16, CARD_EDGES = 28;

function isQuiet(lane) {
  return lane.traces > 0 && lane.quiet_for >= QUIET;
}

function laneWords(lane) {
  const pairs = lane.of_pairs ? `, ${counted(lane.of_pairs.seen, "pair")}` : "";
  return `${counted(lane.of_states.seen, "state")}${pairs}`;
}

function quietWords(lane) {
  if (lane.last_new === null) return "nothing met";
  return `last new after ${count(lane.last_new_traces)} of ${counted(lane.traces, "trace")}`;
}

function never(lane) {
  if (!lane.never.length) return null;
  const words = `${count(lane.never.length)} of ${counted(lane.required, "state")} never met`;
  return html("div", { class: "never" },
    html("p", {}, html("strong", {}, words)),
    html("ul", {}, lane.never.map((one) =>
      html("li", {}, one.state, html("span", { class: "quiet" }, `: ${one.meaning}`)))));
}

function firstMet(lane, key) {
  const columns = ["state", ["after", "number"], ["traces", "number"],
    [`${lane.unit}s that met it`, "number"], "at"];
  const rows = lane.firsts.map((one) => [
    html("span", { title: one.meaning }, one.state),
    duration(one.at), count(one.traces), count(one.met_in), time(one.moment)]);
  return details(key, "When each state was first met",
    table(`States of ${lane.name}`, columns, rows));
}

function laneCard(board, target, number, lane, width) {
  const steps = lane.pairs || lane.states;
  const what = lane.pairs ? "pairs of states" : "states";
  const last = steps.length ? count(steps.at(-1)[1]) : "none";
  const words = `${target.name}, ${lane.name}: ${what} met over time, ${last} in the end`;
  const tag = isQuiet(lane) ? html("span", { class: "tag" }, "stopped growing") : null;
  return html("article", { class: "card" },
    html("h4", {}, lane.name),
    html("p", { class: "big" }, laneWords(lane)),
    html("figure", {}, html("figcaption", {}, `${what} over time`),
      stepChart(board, width, { words, steps, color: colored(number) })),
    html("p", { class: "quiet" }, quietWords(lane), tag),
    never(lane),
    lane.firsts.length ? firstMet(lane, `lane ${number} ${lane.name}`) : null);
}

function coverageWords(board) {
  const lanes = board.targets.flatMap((one) => one.lanes).filter((one) => one.traces);
  if (!lanes.length) return "No shard has ended yet.";
  const quiet = lanes.filter(isQuiet).length;
  const lacking = lanes.filter((one) => one.never.length).length;
  const rest = lacking
    ? `${counted(lacking, "lane")} never met a state that they are there to meet.`
    : "Each has met every state that it is there to meet.";
  return `${count(quiet)} of ${counted(lanes.length, "lane")} met nothing new in the second ` +
    `half of their traces. ${rest}`;
}

function coverage(board, width) {
  const columns = Math.max(1, Math.floor((width + GAP) / (CARD + GAP)));
  const inner = (width - (columns - 1) * GAP) / columns - CARD_EDGES;
  const ofTarget = (target, number) => {
    const searched = target.lanes.filter((one) => one.traces);
    const others = target.lanes.filter((one) => !one.traces).map((one) => one.name);
    return [
      html("h3", {}, html("i", { class: `key ${colored(number)}` }), target.name),
      html("div", { class: "cards" },
        searched.map((lane) => laneCard(board, target, number, lane, inner))),
      others.length
        ? html("p", { class: "quiet" }, `Not searched yet: ${others.join(", ")}.`) : null,
    ];
  };
  return [
    html("h2", { id: "coverage-title" }, "Rare states met"),
    html("p", { class: "lead" }, coverageWords(board)),
    board.targets.map(ofTarget),
  ];
}

// The unit that estimates count: shards, where a store of an earlier cacheproof counts no traces.
function unitOf(board) {
  const lanes = board.targets.flatMap((one) => one.lanes).filter((one) => one.traces);
  return lanes.some((one) => one.unit === "shard") ? "shard" : "trace";
}

function estimateRow(name, number, what, found, least) {
  const words = `new in the next: ${decimal(found.next)} on average, 95 %: ` +
    `${decimal(found.next_low)} to ${decimal(found.next_high)}`;
  const most = `at most ${oneIn(found.next_high)}`;
  const bounds = ` ${decimal(found.left_low)} to ${decimal(found.left_high)}`;
  return [
    html("span", {}, html("i", { class: `key ${colored(number)}` }), name),
    what, count(found.units), count(found.seen), `${count(found.once)} / ${count(found.twice)}`,
    whisker(150, words, found.next_low, found.next, found.next_high, least),
    found.next > 0 ? `${oneIn(found.next)}; ${most}` : most,
    found.left > 0
      ? html("span", {}, decimal(found.left), html("span", { class: "quiet" }, bounds)) : "0",
  ];
}

function estimates(board, unit) {
  const found = board.targets.flatMap((target, number) => target.lanes.flatMap((lane) =>
    [["states", lane.of_states], ["pairs", lane.of_pairs]]
      .filter(([, estimate]) => estimate)
      .map(([what, estimate]) => [`${target.name} ${lane.name}`, number, what, estimate])));
  if (!found.length) return html("p", { class: "quiet" }, "There is nothing to estimate from.");
  const least = Math.min(0.1, ...found.map(([, , , estimate]) => 1 / estimate.units)) / 3;
  const columns = ["lane", "of", [`${unit}s`, "number"], ["met", "number"],
    ["once / twice", "number"], `new in the next ${unit}`, ["that is", "short"],
    ["unseen, at least", "number"]];
  return table("Estimates by lane", columns, found.map((one) => estimateRow(...one, least)));
}

function neverBounds(board) {
  const lines = board.targets.flatMap((target) => target.lanes
    .filter((lane) => lane.never.length && lane.rate_at_most !== null)
    .map((lane) => html("li", {}, `${target.name} ${lane.name}: at most ` +
      `${oneIn(lane.rate_at_most)} for each of ${counted(lane.never.length, "state")}`)));
  return lines.length ? [
    html("p", {}, "How often a state that was never met can be in traces of its lane, at 95 %:"),
    html("ul", { class: "plain" }, lines)] : null;
}

function unseen(board) {
  const unit = unitOf(board);
  return [
    html("h2", { id: "unseen-title" }, "What is left unseen"),
    html("p", { class: "lead" }, `An estimate of what the next ${unit} of a lane would bring ` +
      "that none before it did, and of how much there is still to be met."),
    estimates(board, unit),
    neverBounds(board),
    details("estimators", "How this is estimated, and where it is not to be relied upon",
      html("p", {}, `New in the next ${unit}: Good and Turing's estimator, what was met in ` +
        `exactly one ${unit} divided by all ${unit}s. The probability to meet anything new is ` +
        "at most that. Bounds are of 95 %, by Esty's variance. Unseen, at least: Chao's " +
        "estimator for incidence (Chao2) with its log-normal bounds. Böhme's STADS (2018) has " +
        "both for fuzzing. The bars have a scale of powers of ten."),
      html("p", {}, `Both assume that ${unit}s are drawn independently of each other from one ` +
        "distribution, as seeds of one lane are. They say nothing of what the generator of the " +
        "lane cannot make. Bounds are too narrow where species come in groups, as pairs do: a " +
        `${unit} that meets a new state meets several new pairs. Do not rely on them where few ` +
        `${unit}s were run, where a search is guided by what it has met, or where its end was ` +
        "chosen by what it found.")),
  ];
}
