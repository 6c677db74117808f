"""Holds mends of listed faults to what they say: a row of each, in Markdown.

    .venv/bin/python benchmarks/mends.py [NAME ...] [--seeds A:B] [--depth DEPTH]

A release with one mend runs the kept traces of its fault and traces of seeds. It is to decide as
the reference does with the flags of the mend, and otherwise than the reference without them; what
the fault breaks is to be gone, and nothing else to break, but for what other listed faults break
behind it. A mend without flags is of what the reference does not model: there only the contracts
count. Exits with 1 where one is not so.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.texts import mends
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import parse
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import NEWEST


@dataclass
class Held:
    """What traces said of a mend: how many were compared, on how many the mended release decides
    otherwise than the reference with its flags, and than that without; contracts that the release
    breaks on them and the mended one does not, and the other way, unless by another listed fault:
    that lies behind."""

    name: str
    release: str
    flags: tuple[str, ...]
    traces: int = 0
    compared: int = 0
    differing: list[str] = field(default_factory=list)
    told_apart: int = 0
    gone: set[str] = field(default_factory=set)
    brought: dict[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether it does what it says."""
        shows = bool(self.told_apart or not self.flags) and bool(self.gone or self.told_apart)
        return shows and not self.differing and not self.brought

    def row(self) -> str:
        """As a table has it."""
        flags = ", ".join(f"`{flag}`" for flag in self.flags) or "none"
        brought = ", ".join(self.brought) or "none"
        return (
            f"| {self.name} | {self.release} | {flags} | {self.compared:,} of {self.traces:,} | "
            f"{len(self.differing)} | {self.told_apart} | {', '.join(sorted(self.gone))} | "
            f"{brought} |"
        )


HEADER = (
    "| fault | release | flags | traces compared | differ with the flags | differ without | "
    "contracts kept again | contracts broken anew |\n|---|---|---|--:|--:|--:|---|---|"
)


def traces_of(fault: KnownFault) -> Iterator[tuple[str, Trace]]:
    """The kept traces of a fault, by name."""
    for name in (*fault.traces, *fault.engines):
        file = kept_traces()[name]
        yield name, parse(file.read_bytes().splitlines(), str(file))


def traces_for(
    fault: KnownFault, release: str, seeds: Sequence[int], depths: Iterable[str]
) -> Iterator[tuple[str, Trace]]:
    """The kept traces of a fault, then those of seeds, lane by lane, first those that show it."""
    yield from traces_of(fault)
    for lane in LANES.values():
        if lane.depth in depths and lane.project == "vllm":
            for seed in dict.fromkeys((*fault.seeds.get(lane.name, ()), *seeds)):
                yield f"{lane.name}, seed {seed}", lane.trace(seed, release)


def held(
    name: str, release: str, seeds: Sequence[int], depths: Iterable[str], kind: str = "vllm"
) -> Held:
    """Run the release and the mended one on the traces of a mend.

    Raises:
        InputError: the fault has no mend for the release.
    """
    (fault,) = (one for one in load() if one.name == name)
    with (
        closing(resolve(f"{kind}@{release}+mended:{name}", report=print)) as mended,
        closing(resolve(f"{kind}@{release}", report=print)) as own,
    ):
        mend = mends.mends()[name]
        flags = (*mend.flags, *(f"not {flag}" for flag in mend.without))
        found = Held(name, release, flags)
        beside, without = reference_for(mended), reference_for(own)
        attribution = Attribution.of_target(load(), mended, beside)
        for where, trace in traces_for(fault, release, seeds, depths):
            if mended.runs_depth(trace.depth):
                _hold(found, where, trace, (mended, own), (beside, without), attribution)
        for one in (beside, without):
            if one is not None:
                one.close()
    return found


def _hold(
    found: Held,
    where: str,
    trace: Trace,
    targets: tuple[Target, Target],
    references: tuple[ReferenceTarget | None, ReferenceTarget | None],
    attribution: Attribution,
) -> None:
    (mended, own), (beside, without) = targets, references
    (result,), (released,) = mended.run([trace]), own.run([trace])
    if result.illegal is not None and released.illegal is not None:
        return
    found.traces += 1
    seen = examine(trace, result, mended, beside)
    if result.illegal is not None and beside is not None and without is not None:
        found.compared += 1
        if not _refuses(beside, trace):
            found.differing.append(f"{where}: refused: {result.illegal}")
        found.told_apart += not _refuses(without, trace)
    elif seen.compared:
        found.compared += 1
        if seen.difference is not None:
            found.differing.append(f"{where}: {seen.difference.sentence}")
        bare = examine(trace, result, mended, without)
        found.told_apart += bare.difference is not None
    before = set(examine(trace, released, own).violations)
    after = set(seen.violations)
    found.gone |= before - after
    if after - before:
        for (contract, _), told in attribution.of(trace, result, seen, None).items():
            if contract not in before and told.fault is None:
                found.brought.setdefault(contract, where)


def _refuses(reference: ReferenceTarget, trace: Trace) -> bool:
    return reference.run([trace])[0].illegal is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="all that have a mend for the release by default")
    parser.add_argument("--seeds", default="0:25")
    parser.add_argument("--depth", action="append", choices=DEPTHS, help="all by default")
    parser.add_argument("--release", default=NEWEST)
    parser.add_argument("--engine", action="store_true", help="the release as an engine")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(":"))
    names = arguments.names or list(mends.mended_in(arguments.release))
    kind = "engine" if arguments.engine else "vllm"
    print(HEADER, flush=True)
    all_hold = True
    for name in names:
        found = held(
            name, arguments.release, range(first, last), arguments.depth or list(DEPTHS), kind
        )
        print(found.row(), flush=True)
        for line in (*found.differing[:3], *(f"{c}: {w}" for c, w in found.brought.items())):
            print(f"    {line}", file=sys.stderr)
        all_hold &= found.holds
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
