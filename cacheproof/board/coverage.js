// What lanes have met over time, and what is left unseen.

function laneWords(lane) {
  const seen = lane.of_states ? lane.of_states.seen : 0;
  const pairs = lane.of_pairs ? `, ${count(lane.of_pairs.seen)} pairs` : "";
  return `${counted(seen, "state")}${pairs}`;
}

function quietWords(lane) {
  if (!lane.traces) return "not searched yet";
  if (lane.last_new === null) return "nothing met";
  return `last new after ${count(lane.last_new_traces)} of ${counted(lane.traces, "trace")}`;
}

const QUIET = 0.5;

function isQuiet(lane) {
  return lane.traces > 0 && lane.quiet_for >= QUIET;
}

function laneCard(board, target, number, lane, width) {
  const steps = lane.pairs || lane.states;
  const what = lane.pairs ? "pairs of states" : "states";
  const words = `${target.name}, ${lane.name}: ${what} met over time, ` +
    `${steps.length ? count(steps.at(-1)[1]) : 0} in the end`;
  const key = `lane ${number} ${lane.name}`;
  return html("article", { class: "card" },
    html("h4", {}, lane.name),
    html("p", { class: "big" }, laneWords(lane)),
    stepChart(board, width, { words, steps, color: colored(number) }),
    html("p", { class: "quiet" }, quietWords(lane), isQuiet(lane) ? html("span", { class: "tag" }, "stopped growing") : null),
    lane.never.length ? html("div", { class: "never" },
      html("p", {}, html("strong", {}, `${count(lane.never.length)} of ${count(lane.required)} states never met`)),
      html("ul", {}, lane.never.map((one) => html("li", {}, one.state, html("span", { class: "quiet" }, `: ${one.meaning}`)))))
      : null,
    lane.firsts.length ? details(key, "When each state was first met",
      table(`States of ${lane.name}`, ["state", ["after", "number"], ["traces", "number"], [`${lane.unit}s that met it`, "number"], "at"],
        lane.firsts.map((one) => [
          html("span", { title: one.meaning }, one.state), duration(one.at), count(one.traces), count(one.met_in), time(one.moment)])))
      : null);
}

function coverage(board, width) {
  const lanes = board.targets.flatMap((target) => target.lanes).filter((lane) => lane.traces);
  const quiet = lanes.filter(isQuiet).length;
  const never = lanes.filter((lane) => lane.never.length).length;
  const columns = Math.max(1, Math.floor((width + 20) / 330));
  const inner = (width - (columns - 1) * 16) / columns - 26;
  const words = lanes.length
    ? `${count(quiet)} of ${counted(lanes.length, "lane")} met nothing new in the second half of their traces. ` +
      `${never ? `${count(never)} still lack a state that they are there to meet.` : "Each has met every state that it is there to meet."}`
    : "No shard has ended yet.";
  return [
    html("h2", { id: "coverage-title" }, "Rare states met"),
    html("p", { class: "lead" }, words),
    board.targets.map((target, number) => [
      html("h3", {}, html("i", { class: `key ${colored(number)}` }), target.name),
      html("div", { class: "cards" }, target.lanes.map((lane) => laneCard(board, target, number, lane, inner))),
    ]),
  ];
}

function bounds(low, high, shown) {
  return html("span", { class: "quiet" }, ` ${shown(low)} to ${shown(high)}`);
}

function estimateRow(target, number, lane, what, found, least) {
  const words = `${decimal(found.next)} of them on average, 95 %: ${decimal(found.next_low)} to ${decimal(found.next_high)}`;
  return [
    html("span", {}, html("i", { class: `key ${colored(number)}` }), `${target.name} ${lane.name}`),
    what,
    count(found.units),
    count(found.seen),
    `${count(found.once)} / ${count(found.twice)}`,
    [whisker(150, words, found.next_low, found.next, found.next_high, least)],
    html("span", {}, found.next > 0 ? `${oneIn(found.next)}; ` : "", `at most ${oneIn(found.next_high)}`),
    found.left > 0 ? html("span", {}, decimal(found.left), bounds(found.left_low, found.left_high, decimal)) : "0",
  ];
}

function unseen(board) {
  const rows = [];
  const all = board.targets.flatMap((target) => target.lanes).flatMap((lane) => [lane.of_states, lane.of_pairs]).filter(Boolean);
  const least = Math.min(0.1, ...all.map((one) => 1 / one.units)) / 3;
  board.targets.forEach((target, number) => target.lanes.forEach((lane) => {
    if (lane.of_states) rows.push(estimateRow(target, number, lane, "states", lane.of_states, least));
    if (lane.of_pairs) rows.push(estimateRow(target, number, lane, "pairs", lane.of_pairs, least));
  }));
  const never = board.targets.flatMap((target) => target.lanes.filter((lane) => lane.never.length && lane.rate_at_most)
    .map((lane) => html("li", {}, `${target.name} ${lane.name}: ${lane.never.map((one) => one.state).join("; ")}: at most ${oneIn(lane.rate_at_most)} traces each`)));
  const unit = board.targets.some((target) => target.lanes.some((lane) => lane.traces && lane.unit === "shard")) ? "shard" : "trace";
  return [
    html("h2", { id: "unseen-title" }, "What is left unseen"),
    html("p", { class: "lead" }, `An estimate of what the next ${unit} of a lane would bring that none before it did, and of how much there is still to be met.`),
    rows.length ? table("Estimates by lane", ["lane", "of", [`${unit}s`, "number"], ["met", "number"], ["once / twice", "number"],
      `new in the next ${unit}`, "that is", ["unseen, at least", "number"]], rows) : html("p", { class: "quiet" }, "There is nothing to estimate from."),
    never.length ? html("div", {}, html("p", {}, "How rare a state that was never met can be, at 95 %:"), html("ul", { class: "plain" }, never)) : null,
    details("estimators", "How this is estimated, and where it is not to be relied upon",
      html("p", {}, `New in the next ${unit}: Good and Turing's estimator, those met in exactly one ${unit} divided by all ${unit}s; ` +
        "the probability to meet anything new is at most that. Bounds are of 95 %, by Esty's variance. Unseen, at least: Chao's estimator for incidence (Chao2) with its log-normal bounds. " +
        "Böhme's STADS (2018) uses both for fuzzing. The scale of the bars is one of powers of ten."),
      html("p", {}, `Both assume that ${unit}s are drawn independently of each other from one distribution, as the seeds of one lane are. They say nothing of what this lane's generator cannot make. ` +
        "With few units, or where states come in groups, bounds are too narrow: pairs do, since a trace that meets a new state meets several new pairs. " +
        "Where a search is guided by what it has met, or its end was chosen by what it found, do not rely on them.")),
  ];
}
