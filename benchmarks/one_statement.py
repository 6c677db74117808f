"""What one changed statement of a real release's text is seen by: contracts alone, and lockstep.

    .venv/bin/python benchmarks/one_statement.py

Changes of vLLM 0.33.0, one statement each, are run on the lanes' traces. Of each is recorded which
contract breaks first, and where the changed release first differs from the reference. Outcomes are
appended to a file as they come, so that an interrupted run goes on where it stopped;
docs/one-statement.md is written from it when all are there. `--tree KEY DIR` writes the tree of one
change, for `cacheproof fuzz --target path:DIR`.

A trace in which the release calls the changed function nowhere is not run, and a result that is
the unchanged release's to the last byte is not judged again: both can show nothing new.
"""

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import msgspec
from one_statement_page import (
    JUDGEMENTS,
    Outcome,
    Seen,
    contradictions,
    judgements,
    page,
)
from statements import PATHS, RELEASE, Statement, sample

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.judges.examination import LOCKSTEP, examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.campaign import BATCH_TRACES, HARNESS_ERRORS_MAX
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets import releases
from cacheproof.differential.targets.cache import Cache
from cacheproof.differential.targets.changed import ChangingHost, decoded, write_tree
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.workers import results

ROOT = Path(__file__).parent.parent
OUTCOMES = ROOT / "benchmarks" / "one_statement.jsonl"
PAGE = ROOT / "docs" / "one-statement.md"
SEED = 20261123
CHANGES = 200
SEEDS = 215
"""Of each lane: as many as `cacheproof fuzz --target vllm@0.33.0 --seconds 60` ran on two cores
when it had two lanes fewer."""

Kept = TypeVar("Kept")


class Unchanged(msgspec.Struct, frozen=True):
    """What the unchanged release does. By lane, for each seed: its result as the host writes it,
    and the functions (`path:name`) that it calls. By module: lines that are reached."""

    results: dict[str, list[bytes]]
    called: dict[str, list[list[str]]]
    reached: dict[str, set[int]]
    unchangeable: list[str]


Own = frozenset[tuple[str, str, str]]
"""What the unchanged release breaks by itself: contract, lane, kind of break."""


def lanes() -> list[Lane]:
    """All that a release alone can run."""
    return [lane for lane in LANES.values() if lane.depth != "engine"]


def in_turn(count: int) -> Iterator[tuple[Lane, list[int]]]:
    """The lanes and their seeds in the order in which a search has them."""
    for first in range(0, count, BATCH_TRACES):
        for lane in lanes():
            yield lane, [*range(first, min(first + BATCH_TRACES, count))]


def unchanged(host: ChangingHost, count: int) -> Unchanged:
    """What the unchanged release does with so many seeds of each lane. Raises HarnessError when the
    host breaks."""
    called: dict[str, list[list[str]]] = {}
    written: dict[str, list[bytes]] = {}
    reached: dict[str, set[int]] = {path: set() for path in PATHS}
    for lane in lanes():
        called[lane.name], written[lane.name] = [], []
        for seed in range(count):
            traced = host.traced(lane.trace(seed, RELEASE), PATHS)
            written[lane.name].append(bytes(traced.result))
            names = {name.partition(".<locals>")[0] for name in traced.called}
            called[lane.name].append(sorted(names))
            for path, lines in traced.lines.items():
                reached[path].update(lines)
        print(f"unchanged: {lane.name}", flush=True)
    return Unchanged(written, called, reached, [*host.hello.called_by_imports])


def broken_by_itself(host: ChangingHost, reference: ReferenceTarget, known: Unchanged) -> Own:
    """What the unchanged release breaks.

    Raises:
        SystemExit: it differs from the reference, which would be taken for a change's doing.
    """
    found: set[tuple[str, str, str]] = set()
    for lane in lanes():
        for seed, result in enumerate(known.results[lane.name]):
            trace = lane.trace(seed, RELEASE)
            for contract, kind, _, sentence in examine(
                trace, decoded(result), host, reference
            ).breaks():
                if contract == LOCKSTEP:
                    raise SystemExit(
                        f"{host.name} differs from the reference in {lane.name}, seed {seed}: "
                        f"{sentence}; expected none, so that a difference is a change's doing"
                    )
                found.add((contract, lane.name, kind))
        print(f"judged: {lane.name}", flush=True)
    return frozenset(found)


def kept(name: str, kind: type[Kept], digest: str, make: Callable[[], Kept]) -> Kept:
    """What `make` makes, or what it made before of that digest: kept in the cache folder."""
    file = Cache.locate().scratch / "one-statement" / f"{name}-{digest}.msgpack"
    if file.exists():
        return msgspec.msgpack.decode(file.read_bytes(), type=kind)
    found = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_bytes(msgspec.msgpack.encode(found))
    draft.replace(file)
    return found


def unchanged_of(host: ChangingHost, count: int) -> Unchanged:
    """What the unchanged release does, run once."""
    return kept("unchanged", Unchanged, digest_of(count), lambda: unchanged(host, count))


def digest_of(count: int, *folders: str) -> str:
    """Of the release, the traces, what drives them, and the sources in these folders; planted
    faults do nothing here."""
    digest = hashlib.sha256(str((RELEASE, count, PATHS)).encode())
    for lane in lanes():
        for seed in range(count):
            digest.update(msgspec.json.encode(lane.trace(seed, RELEASE)))
    for folder in ("differential/targets/host", *folders):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if not file.stem.endswith("faults"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Search:
    """Looks for changes with the traces of `count` seeds of each lane."""

    def __init__(self, host: ChangingHost, reference: ReferenceTarget, count: int) -> None:
        self._host = host
        self._reference = reference
        self._count = count
        self.unchanged = unchanged_of(host, count)
        self._own = kept(
            "own",
            Own,
            digest_of(count, "spec", "reference", "differential"),
            lambda: broken_by_itself(host, reference, self.unchanged),
        )
        self._faults = fault_folders.load()
        self._of_reference: Callable[[str, int], TraceResult] = lru_cache(512)(self._referenced)

    def _referenced(self, lane: str, seed: int) -> TraceResult:
        return self._reference.run([LANES[lane].trace(seed, RELEASE)])[0]

    def outcome(self, statement: Statement) -> Outcome:
        """Run a change until both contracts and lockstep have seen it, or there are no more traces.

        A host that breaks over a batch, or refuses its traces, is gone on with a few times.

        Raises:
            HarnessError: the function cannot be changed.
        """
        started = time.monotonic()
        seen: dict[str, Seen] = {}
        ran = differing = 0
        voids: list[str] = []
        self._host.change(statement.reading)
        name = f"{statement.reading.path}:{statement.reading.name}"
        for lane, seeds in in_turn(self._count):
            called = self.unchanged.called[lane.name]
            seeds = [seed for seed in seeds if name in called[seed]]
            if not seeds:
                continue
            traces = [lane.trace(seed, RELEASE) for seed in seeds]
            try:
                written = self._host.written(traces)
            except HarnessError as error:
                voids.append(f"{lane.name}: {error}")
                if len(voids) == HARNESS_ERRORS_MAX:
                    break
                self._host.change(statement.reading)
                continue
            for seed, trace, result in zip(seeds, traces, written, strict=True):
                ran += 1
                if result == self.unchanged.results[lane.name][seed]:
                    continue
                differing += 1
                try:
                    found = self._judged(lane, trace, decoded(result))
                except HarnessError as error:
                    voids.append(f"{lane.name}, seed {seed}: {error}")
                    continue
                for which, (by, kind, event, sentence) in found.items():
                    elapsed = round(time.monotonic() - started, 2)
                    seen.setdefault(
                        which,
                        Seen(by, kind, lane.depth, lane.name, seed, event, sentence, ran, elapsed),
                    )
            if len(seen) == 2 or len(voids) >= HARNESS_ERRORS_MAX:
                break
        self._put_back()
        return Outcome(
            key=statement.key,
            path=statement.reading.path,
            kind=statement.kind,
            words=statement.words,
            seeds=self._count,
            by_contracts=seen.get("contracts"),
            in_lockstep=seen.get(LOCKSTEP),
            void=voids[0] if voids else None,
            traces=ran,
            differing=differing,
            seconds=round(time.monotonic() - started, 2),
        )

    def _put_back(self) -> None:
        try:
            self._host.restore()
        except HarnessError:
            self._host.close()

    def _judged(
        self, lane: Lane, trace: Trace, result: TraceResult
    ) -> Mapping[str, tuple[str, str, int, str]]:
        """What a result shows that the unchanged release does not: by contracts, in lockstep."""
        seen = examine(trace, result, self._host)
        if seen.illegal is not None:
            raise HarnessError(f"it refuses what the release runs: {seen.illegal}")
        found: dict[str, tuple[str, str, int, str]] = {}
        for broken in seen.breaks():
            contract, kind = broken[:2]
            if (contract, lane.name, kind) in self._own:
                continue
            runner = trace.runner
            if not may_be(self._faults, contract, kind, RELEASE, (lane.name,), runner):
                found.setdefault("contracts", broken)
        if self._reference.runs(trace):
            assert trace.header.seed is not None
            differs = compare(self._of_reference(lane.name, trace.header.seed), result)
            if differs is not None:
                found[LOCKSTEP] = (LOCKSTEP, "", differs.event, differs.sentence)
        return found


def run_slice(part: tuple[int, int], options: "Options") -> int:
    """Run every n-th change that is due, and append what comes of each to the file; how many."""
    calm_collector()
    release = releases.install(RELEASE, report=print)
    host = ChangingHost(release)
    reference = reference_for(host)
    assert reference is not None
    try:
        search = Search(host, reference, options.seeds)
        first, parts = part
        mine = due(options, search.unchanged)[first::parts]
        for statement in mine:
            outcome = search.outcome(statement)
            with OUTCOMES.open("ab") as file:
                file.write(msgspec.json.encode(outcome) + b"\n")
            print(sentence_of(outcome), flush=True)
        return len(mine)
    finally:
        host.close()
        reference.close()


def sentence_of(outcome: Outcome) -> str:
    """An outcome in a line."""
    seen = " ".join(
        "-" if one is None else f"{one.by} ({one.lane}, {one.seconds:.0f} s)"
        for one in (outcome.by_contracts, outcome.in_lockstep)
    )
    void = "" if outcome.void is None else " void"
    return f"{outcome.seconds:5.0f} s {outcome.key} {outcome.words!r}: {seen}{void}"


class Options(msgspec.Struct, frozen=True):
    """Which changes are run, and on how many seeds of each lane: all that are not on file, or
    those `again`."""

    changes: int
    seed: int
    seeds: int
    again: frozenset[str] = frozenset()


def statements(options: Options, own: Unchanged) -> list[Statement]:
    """The changes of the sample, the same at each time."""
    tree = releases.install(RELEASE, report=print).tree
    reached, cannot = own.reached, own.unchangeable
    return sample(tree, PATHS, options.changes, options.seed, reached, cannot)


def due(options: Options, own: Unchanged) -> list[Statement]:
    """Those that are to be run."""
    there = {outcome.key for outcome in outcomes()}
    return [
        one
        for one in statements(options, own)
        if (one.key in options.again if options.again else one.key not in there)
    ]


def outcomes() -> list[Outcome]:
    """What is on file: the last outcome of each change. An interrupted write leaves half a line."""
    found: dict[str, Outcome] = {}
    for line in OUTCOMES.read_bytes().splitlines() if OUTCOMES.exists() else ():
        try:
            outcome = msgspec.json.decode(line, type=Outcome)
        except msgspec.DecodeError:
            continue
        found[outcome.key] = outcome
    return [*found.values()]


def write_one(key: str, folder: Path, options: Options) -> None:
    """Write the tree of a change.

    Raises:
        SystemExit: there is no such change, or the folder cannot be made.
    """
    release = releases.install(RELEASE, report=print)
    host = ChangingHost(release)
    try:
        found = {one.key: one for one in statements(options, unchanged_of(host, options.seeds))}
    finally:
        host.close()
    if key not in found:
        raise SystemExit(f"--tree {key!r}: no such change; expected a key of {PAGE.name}")
    try:
        write_tree(release, found[key].reading, folder)
    except OSError as error:
        raise SystemExit(
            f"--tree: {folder}: {error.strerror}; expected a folder that is not there yet"
        ) from None
    print(f"{found[key].words}; run: .venv/bin/cacheproof fuzz --target path:{folder}")


def write_page(options: Options) -> None:
    """Write the page from what is on file.

    Raises:
        SystemExit: a judgement is contradicted by what was run.
    """
    found = outcomes()
    judged = judgements()
    if wrong := contradictions(found, judged):
        raise SystemExit("\n".join([f"{JUDGEMENTS}: judgements that do not hold:", *wrong]))
    PAGE.write_text(page(found, judged, options.seed, options.seeds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=CHANGES, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=SEED, help="of the sample; %(default)s")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each lane; %(default)s")
    parser.add_argument("--workers", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--unseen", action="store_true", help="run again what differs and no contract has seen"
    )
    parser.add_argument(
        "--again", nargs="+", default=[], metavar="KEY", help="run again these, and no others"
    )
    parser.add_argument("--page", action="store_true", help="write the page, and run nothing")
    parser.add_argument("--tree", nargs=2, metavar=("KEY", "DIR"), help="write a change's tree")
    given = parser.parse_args()
    unseen = (one for one in outcomes() if one.by_contracts is None and one.differing)
    again = {*given.again, *((one.key for one in unseen) if given.unseen else ())}
    options = Options(given.changes, given.seed, given.seeds, frozenset(again))
    if given.tree:
        key, folder = given.tree
        write_one(key, Path(folder), options)
        return
    parts = [(number, given.workers) for number in range(0 if given.page else given.workers)]
    for _ in results(partial(run_slice, options=options), parts) if parts else ():
        pass
    write_page(options)


if __name__ == "__main__":
    main()
