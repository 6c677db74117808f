"""docs/evidence/disguised-faults.md: what disguised faults are told as."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from disguised_table import RELEASE, Disguised, Shown, Turned

from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.traces.records import TraceResult

HEAD = (
    "| depth | change | breaks | in | looks like | contracts alone | lockstep | review |",
    "|---|---|---|---|---|---|---|---|",
)
COMMAND = ".venv/bin/python benchmarks/disguised.py"


@dataclass(frozen=True)
class Run:
    """A change on its trace, and as what its break is told in each way. `is_own`: the unchanged
    release breaks the same there."""

    change: Disguised
    is_own: bool
    alone: Attributed
    in_lockstep: Attributed
    reviewed: Attributed
    result: TraceResult

    @property
    def ways(self) -> tuple[Attributed, ...]:
        return self.alone, self.in_lockstep, self.reviewed

    @property
    def is_new(self) -> bool:
        """Whether it breaks, and is told as new in every way."""
        return all(told.fault is None and told.why != "does not break" for told in self.ways)

    @property
    def line(self) -> str:
        """What came of it."""
        ways = " ".join(_word(told) for told in self.ways)
        return f"{self.change.name}: {self.change.contract} like {self.change.looks_like}: {ways}"


def page(
    runs: Sequence[Run],
    shown: Sequence[tuple[Shown, Attributed]],
    turned: Sequence[tuple[Turned, Attributed]],
) -> str:
    """The page."""
    return "\n".join(_lines(runs, shown, turned)) + "\n"


def _lines(
    runs: Sequence[Run],
    shown: Sequence[tuple[Shown, Attributed]],
    turned: Sequence[tuple[Turned, Attributed]],
) -> Iterator[str]:
    new = [run for run in runs if run.is_new]
    passing = [run for run in runs if not run.is_new]
    by_hand = sum(run.change.made == "by hand" for run in runs)
    like = {run.change.looks_like for run in runs}
    contracts = {run.change.contract for run in runs}
    yield from (
        "# Disguised faults",
        "",
        f"    {COMMAND}",
        "",
        "makes this page. A search tells a [known fault](../reference/known-faults.md) by "
        "its cause. Whether it",
        "does is tested here with faults in disguise. Each is one changed statement of the text of",
        f"vLLM {RELEASE}. On one trace it breaks a contract that the release keeps there, and a",
        "listed fault of the release covers that contract, lane and kind. The cause is another,",
        "so a search must tell the break as new.",
        "",
        f"{len(new)} of {len(runs)} changes are told as new in every way: by a search with the",
        "contracts alone, by one in lockstep, and by a review against the release. They look like",
        f"{len(like)} listed faults in {len(contracts)} contracts. {by_hand} of the changes are",
        f"made by hand, {len(runs) - by_hand} are generated, by the operators of [one changed",
        "statement](one-statement.md). `tests/benchmarks/test_disguised.py` holds every row, and",
        "holds each condition of the attribution to be needed.",
        "",
        "## Told as new",
        "",
        *HEAD,
    )
    yield from map(_row, sorted(new, key=lambda run: run.change.of_lane.depth))
    if passing:
        yield from ("", f"## Not told as new: {len(passing)}", "", *HEAD, *map(_row, passing))
    yield from (
        "",
        "Where the reference runs no such trace, as of connectors, a search holds a changed",
        "checkout against the release itself. If that is not installed, the changes of connectors",
        "above pass for the faults that they look like, which have no cause that is modelled.",
    )
    yield from (
        "",
        "## Faults of the model",
        "",
        "A changed release parts from the model, so [condition "
        "(a)](../reference/known-faults.md#when-a-break-"
        "is-a-known-fault)",
        "alone tells it as new. Conditions (b) and (c) decide where target and model agree. Here",
        f"the model of {RELEASE} has one more flag that is not true, and is its own target.",
        "With the condition switched off the break passes for the fault that it looks like.",
        "",
        "| flag | breaks | in | told as | looks like | told apart by |",
        "|---|---|---|---|---|---|",
    )
    conditions = {
        "b": "(b): without the cause of that fault it breaks too",
        "c": "(c): that fault is not listed to break it",
        None: "nothing",
    }
    for one, told in turned:
        apart = conditions[one.condition] + (f": {one.why}" if one.why else "")
        cells = f"`{one.flag}`", _broken(one), one.where
        yield f"| {' | '.join((*cells, _word(told), one.looks_like, apart))} |"
    yield from (
        "",
        "## The listed faults themselves",
        "",
        f"Each fault that a change looks like is met on the unchanged {RELEASE}, and told by name.",
        "",
        "| fault | breaks | in | told as |",
        "|---|---|---|---|",
    )
    for fault, told in shown:
        by = " (by what it breaks alone)" if told.by_symptom else ""
        cells = fault.fault, _broken(fault), fault.where
        yield f"| {' | '.join((*cells, _word(told) + by))} |"


def _row(run: Run) -> str:
    change = run.change
    where = f"{change.function}: {change.said}".replace("|", "\\|")
    cells = (
        change.of_lane.depth,
        f"{change.name}: {where}",
        _broken(change),
        change.where,
        change.looks_like,
        *map(_word, run.ways),
    )
    return f"| {' | '.join(cells)} |"


def _broken(place: Disguised | Shown | Turned) -> str:
    return f"{place.contract}: {place.kind}" if place.kind else place.contract


def _word(told: Attributed) -> str:
    return told.fault or ("does not break" if told.why == "does not break" else "new")
