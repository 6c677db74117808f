"""How well shapes of traces tell faults apart: listed faults, found and minimised many times.

    .venv/bin/python benchmarks/identities.py [RELEASE...]

With releases, their faults are searched and minimised anew, each finding by itself, and kept in
benchmarks/identities.jsonl. Without, docs/evidence/identities-measured.md is written from what is
there. Truth is the list of known faults: two findings are one fault where it gives them one name.
"""

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec

from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.findings.identity import ingredients
from cacheproof.differential.findings.shrinking.edits import kind, shape
from cacheproof.differential.findings.shrinking.fields import extras_of
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.trace import AnyEvent, Header, Showing, Trace

ROOT = Path(__file__).parent.parent
DATA = ROOT / "benchmarks" / "identities.jsonl"
PAGE = ROOT / "docs" / "evidence" / "identities-measured.md"
COMMAND = ".venv/bin/python benchmarks/identities.py"
DEPTHS = ("manager", "scheduler", "kv_cache", "block_hash")
SEEDS = 40
BATCH = 10
KEPT = 8
"""Findings of each fault, contract and kind of break, of a release."""
SHRINK_SECONDS = 12.0
"""A trace that is not small by then is left out."""
RELEASE_SECONDS = 190.0
"""Faults take turns, so that none uses it all."""


class Row(msgspec.Struct, frozen=True):
    """A finding of a listed fault, minimised. `functions` is a digest of those that its last event
    calls in the release, `modules` are theirs."""

    release: str
    fault: str
    contract: str
    kind: str
    lane: str
    seed: int
    functions: str
    modules: tuple[str, ...]
    configuration: Header
    events: tuple[AnyEvent, ...]

    @property
    def trace(self) -> Trace:
        return Trace(self.configuration, self.events)

    @property
    def face(self) -> tuple[str, str]:
        return self.fault, self.contract


class Score(NamedTuple):
    """Pairs of findings of one contract: of one fault and of two, and how many of those are taken
    for the other. `identities` are there for `faces`, which are faults and contracts."""

    split: int
    of_one: int
    merged: int
    of_two: int
    identities: int
    faces: int


def kinds(row: Row) -> frozenset[str]:
    """Kinds of events."""
    return frozenset(map(kind, row.events))


def counts(row: Row) -> Hashable:
    """How many events there are of each kind."""
    return tuple(sorted(Counter(map(kind, row.events)).items()))


def roles(row: Row) -> Hashable:
    """Per request the kinds of its events in order; requests in no order."""
    of_request: dict[str, list[str]] = {}
    for event in row.events:
        of_request.setdefault(getattr(event, "request", ""), []).append(kind(event))
    return tuple(sorted(map(tuple, of_request.values())))


def sharing(row: Row) -> Hashable:
    """Whether a request has an item twice, and whether two requests share one."""
    holders: dict[str, list[str]] = {}
    for event in row.events:
        for item in event.items if isinstance(event, Showing) else ():
            holders.setdefault(item.identifier, []).append(event.request)
    return (
        any(len(names) > len(set(names)) for names in holders.values()),
        any(len(set(names)) > 1 for names in holders.values()),
    )


def settings(row: Row) -> Hashable:
    """Settings that are not plain."""
    return tuple(extras_of(row.configuration.config))


SHAPES: dict[str, Callable[[Row], Hashable]] = {
    "nothing": lambda row: (),
    "events in order, requests and items renamed": lambda row: shape(row.trace),
    "events of each request in order": roles,
    "how many events of each kind": counts,
    "kinds of events": kinds,
    "kinds of events, how items are shared": lambda row: (kinds(row), sharing(row)),
    "kinds of events, settings": lambda row: (kinds(row), settings(row)),
    "functions that the last event calls": lambda row: row.functions,
    "modules of these functions": lambda row: row.modules,
    "ingredients (chosen)": lambda row: ingredients(row.trace),
    "ingredients, how items are shared": lambda row: (ingredients(row.trace), sharing(row)),
    "ingredients, modules": lambda row: (ingredients(row.trace), row.modules),
    "ingredients, functions": lambda row: (ingredients(row.trace), row.functions),
}
"""What stands beside the contract and the kind of break."""


def score(rows: Sequence[Row], of: Callable[[Row], Hashable]) -> Score:
    """How well a shape does."""
    keys = [(row.contract, row.kind, of(row)) for row in rows]
    pairs = [
        (one.fault == other.fault, key == another)
        for (one, key), (other, another) in combinations(zip(rows, keys, strict=True), 2)
        if one.contract == other.contract
    ]
    return Score(
        sum(is_one and not is_same for is_one, is_same in pairs),
        sum(is_one for is_one, _ in pairs),
        sum(is_same and not is_one for is_one, is_same in pairs),
        sum(not is_one for is_one, _ in pairs),
        len(set(keys)),
        len({row.face for row in rows}),
    )


def mistakes(rows: Sequence[Row]) -> Iterator[str]:
    """Where the chosen shape is wrong, a row of a table each."""
    of_face: dict[tuple[str, str], Counter[Hashable]] = {}
    faults: dict[Hashable, Counter[str]] = {}
    for row in rows:
        key = (row.contract, row.kind, ingredients(row.trace))
        of_face.setdefault(row.face, Counter())[key] += 1
        faults.setdefault(key, Counter())[row.fault] += 1
    for (fault, contract), keys in sorted(of_face.items()):
        if len(keys) > 1:
            told = ", ".join(str(count) for _, count in keys.most_common())
            yield f"| {contract} | {fault} | has {len(keys)} identities, of {told} findings |"
    for (contract, *_), names in sorted(faults.items(), key=str):  # type: ignore[misc]
        if len(names) > 1:
            told = " and ".join(f"{name} ({count})" for name, count in sorted(names.items()))
            yield f"| {contract} | {told} | have one identity |"


def page(rows: Sequence[Row]) -> str:
    """docs/evidence/identities-measured.md."""
    releases = ", ".join(sorted({row.release for row in rows}, key=lambda one: one.split(".")))
    faults = {row.fault for row in rows}
    lines = [
        "# How well identities tell faults apart",
        "",
        f"    {COMMAND}",
        "",
        f"makes this page of {len(rows)} findings of {len(faults)} listed faults in vLLM",
        f"{releases}.",
        f"Each was found in one of {SEEDS} seeds of a lane and minimised by itself. A pair is two",
        "findings of one contract. Wrong are pairs of one fault with two identities, and of two",
        "faults with one. Beside the contract and the kind of break an identity has:",
        "",
        "| shape | one fault, two identities | two faults, one identity | identities | faces |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, of in SHAPES.items():
        got = score(rows, of)
        lines.append(
            f"| {name} | {_part(got.split, got.of_one)} | {_part(got.merged, got.of_two)} | "
            f"{got.identities} | {got.faces} |"
        )
    lines += [
        "",
        "A face is a fault and a contract that it breaks. Where the chosen shape is wrong:",
        "",
        "| contract | fault | |",
        "|---|---|---|",
        *mistakes(rows),
    ]
    return "\n".join(lines) + "\n"


def _part(wrong: int, pairs: int) -> str:
    return f"{wrong:,} of {pairs:,} ({wrong / pairs:.1%})" if pairs else "0 of 0"


def collect(release: str) -> Iterator[Row]:
    """Search a release and make what is listed small."""
    known, until = load(), time.monotonic() + RELEASE_SECONDS
    with closing(resolve(f"vllm@{release}", report=print)) as target:
        assert isinstance(target, HostTarget)
        for _, fault, contract, of_kind, lane, trace in sorted(
            _breaks(target, release, known), key=lambda one: one[0]
        ):
            now = time.monotonic()
            if now > until:
                return
            found = found_in(
                target,
                trace,
                contract,
                kind=of_kind,
                times=1,
                until=now + SHRINK_SECONDS,
                elsewhere=target,
            )
            if found is not None and not found.stopped_early:
                called = target.called(found.trace)[found.event]
                yield Row(
                    release,
                    fault,
                    contract,
                    found.kind,
                    lane,
                    trace.header.seed or 0,
                    hashlib.sha256("\n".join(called).encode()).hexdigest()[:10],
                    tuple(sorted({name.partition(":")[0] for name in called})),
                    found.configuration,
                    found.events,
                )


Met = tuple[int, str, str, str, str, Trace]
"""Which break of its place it is, from 1; fault, contract, kind of break, lane, and the trace."""


def _breaks(target: HostTarget, release: str, known: Sequence[KnownFault]) -> Iterator[Met]:
    """Breaks of listed faults in all lanes, the first few of each."""
    attribution = Attribution(known, release, reference_for(target))
    met: Counter[tuple[str, str, str]] = Counter()
    for lane in LANES.values():
        if lane.depth not in DEPTHS or not lane.is_offered_by(release):
            continue
        for first in range(0, SEEDS, BATCH):
            traces = [lane.trace(seed, release) for seed in range(first, first + BATCH)]
            for trace, result in zip(traces, target.run(traces), strict=True):
                told = attribution.of(trace, result, examine(trace, result, target), lane.name)
                for (contract, of_kind), listed in told.items():
                    if listed.fault is None:
                        continue
                    place = listed.fault, contract, of_kind
                    met[place] += 1
                    if met[place] <= KEPT:
                        yield met[place], *place, lane.name, trace


def read() -> list[Row]:
    """The findings that were kept."""
    decoder = msgspec.json.Decoder(Row)
    return [decoder.decode(line) for line in DATA.read_bytes().splitlines()]


def main(releases: Sequence[str]) -> None:
    calm_collector()
    if not releases:
        PAGE.write_text(page(read()))
        return
    kept = [row for row in read() if row.release not in releases]
    for release in releases:
        kept += collect(release)
        print(release, len(kept), flush=True)
        DATA.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in kept))


if __name__ == "__main__":
    main(sys.argv[1:])
