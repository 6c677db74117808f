"""Every stable release: in lockstep with the reference, and held to every contract.

At each depth the lanes take their turns, from one seed on, until so many operations were compared
with the reference (judged, where the reference does not model the release at that depth). Releases
run side by side. What came of each is kept in a file at once, so that an interrupted run goes on
where it stopped; docs/evidence/releases-checked.md is written from it when all releases are done.
"""

import argparse
import datetime
import itertools
import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision.versions import order
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.seeded import LaneReport, search
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import by_id
from cacheproof.work.workplace import Workplace

ROOT = Path(__file__).parent.parent
OUTCOMES = ROOT / "benchmarks" / "every_release.json"
PAGE = ROOT / "docs" / "evidence" / "releases-checked.md"
COMMAND = ".venv/bin/python benchmarks/every_release.py"
FIRST_SEED = 20261123
SEEDS_AT_A_TIME = 20
BATCHES = 40
"""Tries to make an unlisted break smaller: enough to tell of what kind it is."""

SLICES = 18
"""So many slices have all releases between them."""

OPERATIONS: dict[str, tuple[str, int, str]] = {
    "scheduler": ("steps", 20_000, "scheduler steps"),
    "kv_cache": ("events", 30_000, "KV cache events"),
    "block_hash": ("calls", 20_000, "pairs of block keys"),
    "manager": ("calls", 100_000, "manager calls"),
    "media_hash": ("calls", 2_000, "media hash calls"),
    "front_end": ("calls", 100_000, "front end calls"),
    "media_identifier": ("calls", 100_000, "named items"),
}
"""Depth -> what is counted, how many are run, and their name."""


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a release at a depth: operations that were `wanted`, run, and compared; traces
    that differ; contracts that broke, and sentences of breaks that no entry lists."""

    release: str
    depth: str
    first_seed: int
    seeds: int
    wanted: int
    done: int
    compared: int
    differences: int
    broken: list[str]
    unlisted: list[str]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether all that was wanted was compared, and nothing found that is not known."""
        modelled = (
            self.depth != "kv_cache"
            or Semantics.of_vllm(self.release).kv_cache.tells_external_tokens
        )
        is_complete = self.compared >= self.wanted if modelled else self.done == 0
        return is_complete and not (self.differences or self.unlisted)


def checked(
    target: Target,
    reference: ReferenceTarget | None,
    depth: str,
    first_seed: int,
    operations: int,
    seconds: float = math.inf,
) -> Outcome:
    """Run one depth of a release, until so many operations or `seconds` are done; by the clock what
    was done by then, one batch of seeds at least, is all that was wanted.

    Raises:
        SystemExit: the release's host broke.
    """
    assert target.release is not None
    release = target.release
    lanes = [
        lane
        for lane in LANES.values()
        if lane.depth == depth and lane.is_offered_by(release) and target.runs_depth(depth)
    ]
    unit = OPERATIONS[depth][0]
    done = compared = differences = seeds = 0
    broken: set[str] = set()
    unlisted: list[str] = []
    attribution = Attribution(fault_folders.load(), release, reference)
    started = time.monotonic()
    for first in itertools.count(first_seed, SEEDS_AT_A_TIME):
        outcome = search(
            target,
            lanes,
            against=reference,
            seeds=range(first, first + SEEDS_AT_A_TIME),
            kept_per_break=1,
            attribution=attribution,
        )
        if outcome.harness_errors:
            raise SystemExit(f"{target.name}: {outcome.harness_errors[0]}")
        seeds += SEEDS_AT_A_TIME
        more = sum(getattr(report, unit) for report in outcome.lanes)
        done += more
        compared += sum(_compared(report, unit) for report in outcome.lanes)
        differences += sum(outcome.broken[LOCKSTEP, lane.name] for lane in lanes)
        broken |= {contract for contract, _ in outcome.broken} - {LOCKSTEP}
        for found in outcome.breaks:
            if found.contract == LOCKSTEP:
                unlisted.append(f"{found.lane}, seed {found.trace.header.seed}, lockstep: "
                                f"{found.sentence}")  # fmt: skip
            elif sentence := _unlisted(target, found, attribution):
                unlisted.append(sentence)
        enough = compared if compared else done
        if time.monotonic() - started >= seconds:
            operations = min(operations, enough)
        if enough >= operations or more == 0:
            break
    took = round(time.monotonic() - started, 1)
    return Outcome(
        release, depth, first_seed, seeds, operations, done, compared, differences,
        sorted(broken), unlisted, took,
    )  # fmt: skip


def _compared(report: LaneReport, unit: str) -> int:
    return 0 if report.compared is None else int(getattr(report.compared, unit))


def _unlisted(target: Target, found: Break, attribution: Attribution) -> str | None:
    """The break in a sentence, unless it is a listed fault or harmless; by itself, or once it is
    small."""
    if found.attributed.fault is not None or by_id(found.contract).harm == "efficiency":
        return None
    parts = attribution.parts if found.attributed.parts else None
    small = found_in(
        target,
        found.trace,
        found.contract,
        kind=found.kind,
        times=2,
        batches=BATCHES,
        parts=parts,
    )
    if small is not None and attribution.of_finding(small, found.lane).fault is not None:
        return None
    return f"{found.lane}, seed {found.trace.header.seed}, {found.kind}: {found.sentence}"


def run_release(
    version: str, first_seed: int, depths: Sequence[str], seconds: float = math.inf
) -> list[Outcome]:
    """Run a release at these depths, in hosts of its own, for an equal share of `seconds` each."""
    calm_collector()
    target = resolve(f"vllm@{version}", report=print)
    reference = reference_for(target)
    try:
        return [
            checked(
                target, reference, depth, first_seed, OPERATIONS[depth][1], seconds / len(depths)
            )
            for depth in depths
        ]
    finally:
        target.close()
        if reference is not None:
            reference.close()


def page(outcomes: Sequence[Outcome]) -> str:
    """docs/evidence/releases-checked.md."""
    by_place = {(outcome.release, outcome.depth): outcome for outcome in outcomes}
    versions = sorted({outcome.release for outcome in outcomes}, key=order)
    names = [name for _, _, name in OPERATIONS.values()]
    first_seed = outcomes[0].first_seed
    lines = [
        "# Every stable release, compared with the reference",
        "",
        f"    {COMMAND}",
        "",
        "makes this page; it goes on where it stopped, and with `--again` begins anew. `--first`",
        "takes other seeds, `--release` and `--depth` parts. In each cell: operations compared",
        "with the reference; then traces that differ from it; then breaks of contracts that no",
        "entry of [the known faults](../reference/known-faults.md) lists. Seeds of every "
        "lane: from "
        f"{first_seed} on.",
        "*Not modelled*: the reference does not have this depth for that release, and contracts",
        "alone were judged. *Refused*: no trace of this depth asks what the release can answer.",
        "",
        f"| release | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for version in versions:
        cells = [_cell(by_place.get((version, depth))) for depth in OPERATIONS]
        lines.append(f"| {version} | {' | '.join(cells)} |")
    differences = sum(outcome.differences for outcome in outcomes)
    unlisted = sum(len(outcome.unlisted) for outcome in outcomes)
    lines += [
        "",
        f"{len(versions)} releases: {differences} differences, {unlisted} unlisted breaks.",
        "",
        "## Known faults that were met",
        "",
        "| release | contracts that broke |",
        "|---|---|",
    ]
    for version in versions:
        broken = {rule for one in outcomes if one.release == version for rule in one.broken}
        lines.append(f"| {version} | {', '.join(sorted(broken, key=_numbered))} |")
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run"
    if not outcome.done:
        return "refused"
    amount = f"{outcome.compared:,}" if outcome.compared else f"not modelled ({outcome.done:,})"
    return f"{amount}: {outcome.differences}, {len(outcome.unlisted)}"


def _numbered(contract: str) -> tuple[str, int, str]:
    prefix, _, number = contract.partition("-")
    digits = "".join(character for character in number if character.isdigit())
    return prefix, int(digits), number


def versions_of(slice_of: str | None) -> list[str]:
    """The releases to run: all that are modelled, or the slice of a day (YYYY-MM-DD)."""
    if slice_of is None:
        return [*MODELLED]
    day = datetime.date.fromisoformat(slice_of).toordinal()
    return [*MODELLED[day % SLICES :: SLICES]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--release", action="append", help="only this one")
    parser.add_argument("--depth", action="append", choices=OPERATIONS, help="only this one")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed of each lane")
    parser.add_argument("--again", action="store_true", help="run again what is on file")
    parser.add_argument(
        "--slice",
        metavar="DATE",
        nargs="?",
        const=datetime.date.today().isoformat(),
        help=f"the releases of that day, today without one: a {SLICES}th of all, and no page",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="of a slice: begin no further seeds of a release after so long",
    )
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Ray cluster that does the work")
    options = parser.parse_args()
    if options.seconds < math.inf and not options.slice:
        parser.error("--seconds: expected beside --slice; the page tells of whole runs alone")
    wanted = options.release or versions_of(options.slice)
    depths = options.depth or [*OPERATIONS]
    kept: list[Outcome] = []
    if OUTCOMES.exists() and not options.slice:
        kept = msgspec.json.decode(OUTCOMES.read_bytes(), type=list[Outcome])
    outcomes = {(one.release, one.depth): one for one in kept if one.first_seed == options.first}
    due = [
        version
        for version in wanted
        if options.again or any((version, depth) not in outcomes for depth in depths)
    ]
    run = partial(run_release, first_seed=options.first, depths=depths, seconds=options.seconds)
    place = Workplace(cluster=options.cluster)
    for _, found in place.results(run, due) if due else ():
        for outcome in found:
            outcomes[outcome.release, outcome.depth] = outcome
            print(
                f"{outcome.release:8} {outcome.depth:10} {_cell(outcome)} "
                f"({outcome.seconds:.0f} s)",
                *outcome.unlisted,
                sep="\n    ",
                flush=True,
            )
        if not options.slice:
            OUTCOMES.write_bytes(
                msgspec.json.format(msgspec.json.encode([*outcomes.values()]), indent=1)
            )
    found_all = [*outcomes.values()]
    if not options.slice:
        missing = set(versions_of(None)) - {one.release for one in found_all}
        if missing:
            print(f"{PAGE.name} stays as it is: {len(missing)} releases have no outcome here")
        else:
            PAGE.write_text(page(found_all))
    if not all(outcome.is_clean for outcome in found_all):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
