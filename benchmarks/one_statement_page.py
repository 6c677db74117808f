"""docs/evidence/one-statement.md: what is seen of one-statement changes, and what survives, with
why."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from statements import RELEASE

JUDGEMENTS = Path(__file__).parent / "one_statement.toml"
COMMAND = ".venv/bin/python benchmarks/one_statement.py"


class Seen(msgspec.Struct, frozen=True):
    """Where a change first showed: what broke (a contract, or the lockstep), in a sentence, on the
    trace of which lane and seed, how many of its traces had been run by then, and after how many
    seconds. `alike`: it may also be a listed fault that shows, after the change decided otherwise;
    nothing else was found."""

    by: str
    kind: str
    depth: str
    lane: str
    seed: int
    event: int
    sentence: str
    traces: int
    seconds: float
    alike: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change. `traces` were run, `differing` of them had another result than the
    unchanged release has. `void` is what made a host break, which voids a campaign."""

    key: str
    path: str
    kind: str
    words: str
    seeds: int
    by_contracts: Seen | None
    in_lockstep: Seen | None
    void: str | None
    traces: int
    differing: int
    seconds: float

    @property
    def is_broken(self) -> bool:
        """Whether it breaks a contract, and no listed fault can be what shows."""
        return self.by_contracts is not None and not self.by_contracts.alike

    @property
    def is_seen(self) -> bool:
        """Whether a search with lockstep, which judges the contracts as well, finds it."""
        return self.is_broken or self.in_lockstep is not None


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a reader of the change says of it.

    equivalent: no call can tell it from the release's text.
    refused: only a feature that no trace can ask for can.
    alone: only the lockstep sees it, and why.
    survives: a trace could see it, and none did.
    """

    key: str
    verdict: Literal["equivalent", "refused", "alone", "survives"]
    why: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    judged: list[Judgement] = []


def judgements(path: Path = JUDGEMENTS) -> dict[str, Judgement]:
    """The judgements on file, by the key of their change."""
    file = msgspec.convert(tomllib.loads(path.read_text()), _File)
    return {one.key: one for one in file.judged}


def contradictions(outcomes: Iterable[Outcome], judged: Mapping[str, Judgement]) -> list[str]:
    """Judgements that what was run contradicts, or that are of no change that was run."""
    by_key = {outcome.key: outcome for outcome in outcomes}
    found = []
    for key, one in judged.items():
        outcome = by_key.get(key)
        if outcome is None:
            found.append(f"{key}: no such change was run")
        elif one.verdict in ("equivalent", "refused", "survives") and outcome.is_seen:
            by = outcome.by_contracts if outcome.is_broken else outcome.in_lockstep
            assert by is not None
            found.append(f"{key}: called {one.verdict}, and seen by {by.by} ({by.sentence})")
        elif one.verdict == "alone" and outcome.is_broken:
            assert outcome.by_contracts is not None
            found.append(f"{key}: seen by {outcome.by_contracts.by}, not by the lockstep alone")
    return found


def page(
    outcomes: Sequence[Outcome],
    judged: Mapping[str, Judgement],
    seed: int,
    seeds: int,
    untraced: int,
) -> str:
    """docs/evidence/one-statement.md. Of lanes that need no engine each has so many `seeds`; of
    those of connectors, which only changes of these are run on, so many are `untraced`."""
    verdicts = {
        outcome.key: judged[outcome.key].verdict for outcome in outcomes if outcome.key in judged
    }
    lines = [
        "# One changed statement of a real release",
        "",
        f"    {COMMAND} --workers 2",
        "",
        "makes this page; an interrupted run goes on where it stopped. Each change is one",
        f"statement of the text of vLLM {RELEASE}, in a function that the harness models or that",
        "a connector of the release has: a statement left out, another comparison, another",
        "constant; constructors are among them. The sample has as many of each module",
        f"and of each kind of change as there can be (seed {seed}). A place that no trace reaches",
        "and that belongs to a [refused "
        "feature](../explain/scheduler.md#the-surface-of-vllm-0330) is not",
        "sampled.",
        "",
        f"Each change was run on seeds 0 to {seeds - 1} of every lane that needs no engine; one of",
        f"a connector on seeds 0 to {untraced - 1} of the lanes of connectors as well.",
        "*By contracts alone* is what a change breaks that the release itself keeps on that very",
        "trace, and that is no listed fault's by its cause. Where a change has decided otherwise",
        "at an event before, and breaks what a listed fault breaks too, that may be what shows",
        "and does not count. *With lockstep* counts both. A change on whose account a host breaks,",
        "or refuses a trace for a documented reason, voids a campaign (exit code 3) and counts as",
        "not seen; its row says so. Shares are of what is neither equivalent nor of a refused",
        "feature,",
        "as argued below.",
        "",
        "The changed function runs in a fork of the unchanged release, which",
        "`tests/benchmarks/test_one_statement.py` holds to an import of the changed tree, as",
        f"`{COMMAND} --tree KEY DIR`",
        "writes. Traces that do not call the function are not run, and results that are the",
        "unchanged release's to the last byte are not judged again.",
        "",
        *_table("module", (outcome.path for outcome in outcomes), outcomes, verdicts),
        "",
        *_table("kind of change", (outcome.kind for outcome in outcomes), outcomes, verdicts),
        "",
        *_with_refused(outcomes, verdicts),
        "",
        "## What sees them first",
        "",
        "| contract | depth | changes | seconds until then, median and most |",
        "|---|---|---|---|",
        *_first(outcomes),
    ]
    sections = (
        ("Seen by the lockstep alone", "alone"),
        ("Not seen", "survives"),
        ("Of a refused feature", "refused"),
        ("Equivalent", "equivalent"),
    )
    for title, verdict in sections:
        rows = [
            (outcome, judged.get(outcome.key))
            for outcome in outcomes
            if _section(outcome, verdicts.get(outcome.key)) == verdict
        ]
        lines += ["", f"## {title}: {len(rows)}", ""]
        for outcome, judgement in rows:
            why = "not argued" if judgement is None else judgement.why
            void = "" if outcome.void is None else f". A host breaks: {outcome.void}"
            lines.append(f"- `{outcome.key}`, {outcome.words}: {why}{void}")
    return "\n".join(lines) + "\n"


def _section(outcome: Outcome, verdict: str | None) -> str:
    if outcome.is_broken:
        return "contracts"
    if outcome.in_lockstep is not None:
        return "alone"
    return verdict or "survives"


def _table(
    name: str,
    rows: Iterable[str],
    outcomes: Sequence[Outcome],
    verdicts: Mapping[str, str],
) -> list[str]:
    lines = [
        f"| {name} | changes | equivalent | refused | left | by contracts alone | with lockstep |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in (*dict.fromkeys(rows), None):
        mine = [one for one in outcomes if row in (None, one.path, one.kind)]
        count = Counter(verdicts.get(one.key) for one in mine)
        left = len(mine) - count["equivalent"] - count["refused"]
        contracts = sum(one.is_broken for one in mine)
        seen = sum(one.is_seen for one in mine)
        shares = [f"{n} ({n / left:.0%})" if left else "0" for n in (contracts, seen)]
        numbers = [len(mine), count["equivalent"], count["refused"], left, *shares]
        title = "**all**" if row is None else row
        lines.append(f"| {title} | {' | '.join(map(str, numbers))} |")
    return lines


def _with_refused(outcomes: Sequence[Outcome], verdicts: Mapping[str, str]) -> list[str]:
    """The shares where features that the harness does not model count as well."""
    count = Counter(verdicts.get(one.key) for one in outcomes)
    left = len(outcomes) - count["equivalent"]
    contracts = sum(one.is_broken for one in outcomes)
    seen = sum(one.is_seen for one in outcomes)
    return [
        f"With the {count['refused']} of refused features counted as not seen, {left} are left:",
        f"{contracts} ({contracts / left:.0%}) of them are seen by contracts alone, {seen} "
        f"({seen / left:.0%}) with lockstep.",
    ]


def _first(outcomes: Sequence[Outcome]) -> list[str]:
    found: dict[tuple[str, str], list[float]] = {}
    for outcome in outcomes:
        for one in (outcome.by_contracts, outcome.in_lockstep):
            if one is not None:
                found.setdefault((one.by, one.depth), []).append(one.seconds)
    return [
        f"| {by} | {depth} | {len(seconds)} | {sorted(seconds)[len(seconds) // 2]:.1f}, "
        f"{max(seconds):.1f} |"
        for (by, depth), seconds in sorted(found.items(), key=lambda one: -len(one[1]))
    ]
