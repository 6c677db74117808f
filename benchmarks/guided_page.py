"""docs/guided-search.md: what guided search was measured to be worth."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import guided_costs
import guided_lines
import msgspec
from guided_faults import Listed, listed
from guided_lanes import OUTCOMES as LANE_OUTCOMES
from guided_lanes import LaneOutcome
from guided_ratios import Outcome, mean_ratio, median, ratio

PAGE = Path(__file__).parent.parent / "docs" / "guided-search.md"
OTHERS = ("swarm", "novelty", "feedback")
TEXT = """\
# Guided search: measured, and not kept

    .venv/bin/python benchmarks/guided.py --half "held out" --ways today feedback
    .venv/bin/python benchmarks/guided.py --half "held out" --ways swarm --bases 0:5
    .venv/bin/python benchmarks/guided.py --half "held out" --ways novelty --bases 0:2
    .venv/bin/python benchmarks/guided_lanes.py --bases 0:2
    .venv/bin/python benchmarks/guided.py --page

`cacheproof fuzz` makes each trace from a seed of its own. Nothing that a trace met guides what is
tried next. This page is about whether it should: four ways to learn were built and measured on
faults that are not found at once. **None of them was seen to find such faults sooner, so `fuzz` has
none.** The measure stays, for whoever has another idea: a way is a function in
`benchmarks/guided_choices.py`.

## How it is measured

A fault is looked for in one lane, on the reference, in traces of one way, until a trace breaks a
contract. The unmodified reference breaks none on the same traces. Events are counted, whole traces
of them, since a machine's load does not change them.

31 faults are listed in `benchmarks/guided.json`: variants of [the gallery](kill-matrix.md), flags
of the semantics that some release lacks, and changed statements of the reference. They were chosen
by today's way, among the gallery's managers, KV caches and schedulers, flags, and 160 changed
statements, ten of each of sixteen modules, on seeds from 1,000,000 on: a fault was taken if its
first break came after trace 20, or if it had none in 100 to 150 traces and the gallery names a seed
that shows it. Faults that came up twice, in another lane or under another name, were left out, and
two rare ones to save time. By a hash of their names every second fault of a lane was held out. Ways
were tried on the other half, the tuning half, which is not reported. The held-out half was run
once, with what that had left.

Ways learn from the unmodified reference, beside which a search runs its target anyway. So a way
makes the same traces whatever the target, and one base of it is compared with one base of seeds.

## What was tried

* *Swarm.* In each trace two in five places of the generator are bent: what is drawn there is rather
  small, or rather large, all through the trace.
* *Novelty.* Of eight seeds the one is run whose settings and kinds of events were paired least.
* *Feedback.* Every draw of a generator is written down. One trace in two is a child of a kept one:
  it makes the same choices, but for some that are drawn anew. The shortest trace is kept that met a
  rare state so often, a pair of rare states, or a rare state under a setting. What few traces met
  is more likely to be a parent. An earlier form, with the rarest eighth alone as parents and with
  splicing, did worse on the tuning half: its children were longer, and had fewer configurations.
* *Lanes by yield.* A lane that meets more new pairs of rare states for its time gets more of it.
* *Lines of the reference*, as what is fed back: see below.

## Events until a fault is found

The medians of events, and in how many runs the fault was found within 250 traces.

[[HELD OUT]]

"Today's events for one of its own" is above 1 where a way is better: events of all runs for each
break, today's by that way's on the same bases, and the geometric mean over the faults with its 95 %
interval.

[[MEANS]]

## Lanes by yield

A search of all sixteen lanes of managers, schedulers, KV caches and block keys, with two orders of
the same traces. What a search in turn spends until a fault is found, by what it spends by yield:

[[LANES]]

Below 1 the order by yield is worse. Shares go by time: an event of a manager costs less than one of
a scheduler, so an order can look better in events and be none the better for a search, which has
time.

## What it costs

`.venv/bin/python benchmarks/guided_costs.py`, microseconds of one core for an event: to run it on
the reference and judge it, and to make it in each way.

[[COSTS]]

Feedback makes a trace only when the one before it was run and judged on the reference. A search has
the reference run beside its target anyway, and judges what the target does.

## Why it does not pay

* *Today's generators are a swarm already.* A trace draws its own shape, configuration and rates, so
  hardly two are alike. A child shares its parent's configuration, so the search sees fewer of them.
* *What is fed back is used up early.* Hardly a trace after the 25th runs a line of the reference
  that none before it ran. There are hundreds of pairs of rare states in a lane, and most are met by
  one trace in fifty or more, so making one likelier makes the others rarer.
  `.venv/bin/python benchmarks/guided_lines.py`:

[[LINES]]

* *Faults are not deep.* Contracts are judged at every call, so a fault shows in the step in which
  its situation arises. A trace without a break shows few stepping stones on the way there.

## Limits

* Faults that one trace in 30 to one in 500 shows. HypoFuzz's authors found guidance not worth the
  trouble [for less than a thousand inputs](https://pypi.org/project/hypofuzz/22.7.1/); rarer faults
  take more traces than were run here.
* The reference under ideal semantics stands for a release. Its lines are not those of a release,
  and a changed statement is one statement.
* 250 traces of a base, one lane at a time, and no engines, connectors or media hashes. A long
  search is not what was measured.
* Counters by their size, such as free slots or blocks, were not fed back.
* The intervals are wide. What lies within one may be so: a gain or a loss of feedback by less than
  about a half, of the other ways by less than about two. They take faults as a sample of faults,
  and say nothing of another kind of fault.

## Related work

AFL keeps inputs that reach new branches and mutates their bytes; Zest (Padhye et al., 2019) mutates
a generator's choices instead, as the feedback here does, and HypoFuzz brings guidance by coverage
to tests of Hypothesis. Swarm testing (Groce et al., 2012) leaves features out of each test at
random, as each configuration of today's generators does. Antithesis explores on from states where a
"sometimes" assertion holds, which is what a rare state is here; it restores a machine for that,
where a trace here is run from its start in ten milliseconds.
"""


def write(outcomes: Sequence[Outcome]) -> None:
    """Write the page of what is on file; costs and lines are measured anew.

    Raises:
        SystemExit: a way pays on the held-out half, and the page says that none does.
    """
    if pays := paying(outcomes):
        raise SystemExit(
            f"{PAGE.name} says that no way pays, and {', '.join(pays)} does; expected another text"
        )
    PAGE.write_text(page(outcomes))


def paying(outcomes: Sequence[Outcome]) -> list[str]:
    """The ways whose whole interval lies above 1 on the held-out half."""
    ratios = {way: list(ratios_of(outcomes, way, of_half("held out"))) for way in OTHERS}
    return [way for way, some in ratios.items() if some and mean_ratio(some)[1] > 1]


def page(outcomes: Sequence[Outcome]) -> str:
    """The page: its text, with the tables where the text names them."""
    tables = {
        "HELD OUT": "\n".join(by_fault(outcomes, "held out")),
        "MEANS": "\n".join(means(outcomes)),
        "LANES": "\n".join(of_lanes(lane_outcomes())),
        "COSTS": "\n".join(guided_costs.table()),
        "LINES": "\n".join(guided_lines.table()),
    }
    text = TEXT
    for name, table in tables.items():
        text = text.replace(f"[[{name}]]", table)
    return text


def by_fault(outcomes: Sequence[Outcome], half: str) -> Iterator[str]:
    """Of each fault the median of events until it was found, and in how many runs it was."""
    ways = [way for way in ("today", *OTHERS) if runs_of(outcomes, way, of_half(half))]
    yield f"| fault | lane | {' | '.join(ways)} |"
    yield f"|---|---|{'--:|' * len(ways)}"
    for one in of_half(half):
        cells = (cell(runs_of(outcomes, way, [one])) for way in ways)
        yield f"| {one.words} | {one.lane} | {' | '.join(cells)} |"


def cell(found: Sequence[Outcome]) -> str:
    """A median and how many of the runs found it; nothing where none was run."""
    if not found:
        return ""
    middle = median(found)
    hits = sum(one.first is not None for one in found)
    said = f"not within {found[0].traces} traces" if middle == math.inf else f"{middle:,.0f}"
    return f"{said} ({hits}/{len(found)})"


def means(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Of each way and half, how many times as many events today's way needs."""
    yield "| way | half | faults | runs of each | today's events for one of its own | 95 % |"
    yield "|---|---|--:|--:|--:|---|"
    for half in ("held out", "tuning"):
        for way in OTHERS:
            ratios = list(ratios_of(outcomes, way, of_half(half)))
            if ratios:
                runs = len({one.base for one in runs_of(outcomes, way, of_half(half))})
                mean, low, high = mean_ratio(ratios)
                yield (
                    f"| {way} | {half} | {len(ratios)} | {runs} | {mean:.2f} | "
                    f"{low:.2f} to {high:.2f} |"
                )


def ratios_of(outcomes: Sequence[Outcome], way: str, faults: Iterable[Listed]) -> Iterator[float]:
    """Of each fault that a way was run on, its ratio on the bases that both have."""
    for one in faults:
        other = runs_of(outcomes, way, [one])
        bases = {run.base for run in other}
        today = [run for run in runs_of(outcomes, "today", [one]) if run.base in bases]
        if today and len(today) == len(other) and any(run.first for run in (*today, *other)):
            yield ratio(today, other)


def runs_of(outcomes: Sequence[Outcome], way: str, faults: Iterable[Listed]) -> list[Outcome]:
    """The runs of a way on these faults."""
    wanted = {(one.lane, one.words) for one in faults}
    return [one for one in outcomes if one.way == way and (one.lane, one.fault) in wanted]


def of_half(half: str) -> list[Listed]:
    """The faults of a half."""
    return [one for one in listed() if one.half == half]


def of_lanes(outcomes: Sequence[LaneOutcome]) -> Iterator[str]:
    """How many times as much a search of all lanes in turn spends, by the lane of the fault."""
    spent = {(one.order, one.lane, one.fault, one.base): one for one in outcomes}
    pairs = [
        (one, spent["by yield", *key[1:]]) for key, one in spent.items() if key[0] == "in turn"
    ]
    yield "| faults in lane | found | in turn, events | in turn, time |"
    yield "|---|--:|--:|--:|"
    for lane in (*sorted({one.lane for one, _ in pairs}), "all"):
        here = [pair for pair in pairs if lane in ("all", pair[0].lane)]
        events = mean_ratio([one.events / other.events for one, other in here])[0]
        seconds = mean_ratio([one.microseconds / other.microseconds for one, other in here])[0]
        yield f"| {lane} | {len(here)} | {events:.2f} | {seconds:.2f} |"


def lane_outcomes() -> list[LaneOutcome]:
    """What is on file of the order of lanes."""
    lines = LANE_OUTCOMES.read_bytes().splitlines() if LANE_OUTCOMES.exists() else ()
    return [msgspec.json.decode(line, type=LaneOutcome) for line in lines]
