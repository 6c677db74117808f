"""What one changed statement of a real release's text is seen by: contracts alone, and lockstep.

    .venv/bin/python benchmarks/one_statement.py

Changes of vLLM 0.33.0, one statement each, are run on the lanes' traces. Of each is recorded which
contract breaks first, and where the changed release first differs from the reference. Outcomes are
appended to a file as they come, so that an interrupted run goes on where it stopped;
docs/evidence/one-statement.md is written from it when all are there. `--tree KEY DIR` writes the
tree of one change, for `cacheproof fuzz --target path:DIR`. `--depth D` makes every change of the
functions that the lanes of a depth call, says what came of each and in how many it was seen, and
writes nothing.

A trace in which the release calls the changed function nowhere is not run, and a result that is
the unchanged release's to the last byte is not judged again: both can show nothing new.
"""

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from one_statement_page import (
    JUDGEMENTS,
    Outcome,
    Seen,
    contradictions,
    judgements,
    page,
)
from statements import CONNECTORS, RELEASE, Statement, paths_in, sample

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.errors import HarnessError
from cacheproof.differential.judges.examination import LOCKSTEP, Examination, examine
from cacheproof.differential.judges.lockstep import Difference, compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.attribution import DRAWN, Attribution
from cacheproof.differential.search.mending import Mending
from cacheproof.differential.search.seeded import BATCH_TRACES, HARNESS_ERRORS_MAX
from cacheproof.differential.targets.changed import ChangingHost, decoded, write_tree
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.work.workers import results

ROOT = Path(__file__).parent.parent
OUTCOMES = ROOT / "benchmarks" / "one_statement.jsonl"
PAGE = ROOT / "docs" / "evidence" / "one-statement.md"
SEED = 20261129
CHANGES = 200
UNTRACED = "encoder_connector"
"""The depth whose engines are processes of their own: what they call is not known, and each trace
takes a second or more."""
UNTRACED_SEEDS = 60
WITHOUT_STATE = "media_hash"
"""The depth where nothing that was decided otherwise before can lead to a listed fault: what the
release keeps on a trace and the change breaks, the change breaks."""
SEEDS = 215
"""Of each lane."""


class Unchanged(msgspec.Struct, frozen=True):
    """What the unchanged release does. By lane, for each seed: its result as the host writes it,
    and the functions (`path:name`) that it calls. By module: lines that are reached."""

    results: dict[str, list[bytes]]
    called: dict[str, list[list[str]]]
    reached: dict[str, set[int]]
    unchangeable: list[str]


def lanes(depth: str | None = None) -> list[Lane]:
    """All that a release alone can run; of one depth alone."""
    return [
        lane
        for lane in LANES.values()
        if lane.depth != "engine" and depth in (None, lane.depth) and lane.is_offered_by(RELEASE)
    ]


def in_turn(count: int, depth: str | None = None) -> Iterator[tuple[Lane, list[int]]]:
    """The lanes and their seeds in the order in which a search has them."""
    for first in range(0, count, BATCH_TRACES):
        for lane in lanes(depth):
            yield lane, [*range(first, min(first + BATCH_TRACES, count))]


def unchanged(
    host: ChangingHost, paths: Sequence[str], count: int, depth: str | None = None
) -> Unchanged:
    """What the unchanged release does with so many seeds of each lane, in the modules at `paths`.
    Raises HarnessError when the host breaks."""
    called: dict[str, list[list[str]]] = {}
    written: dict[str, list[bytes]] = {}
    reached: dict[str, set[int]] = {path: set() for path in paths}
    for lane in lanes(depth):
        called[lane.name], written[lane.name] = [], []
        for seed in range(count):
            traced = host.traced(lane.trace(seed, RELEASE), paths)
            written[lane.name].append(bytes(traced.result))
            names = {name.partition(".<locals>")[0] for name in traced.called}
            called[lane.name].append(sorted(names))
            for path, lines in traced.lines.items():
                reached[path].update(lines)
        print(f"unchanged: {lane.name}", flush=True)
    return Unchanged(written, called, reached, [*host.hello.called_by_imports])


def unchanged_of(
    host: ChangingHost, release: InstalledRelease, count: int, depth: str | None = None
) -> Unchanged:
    """What the unchanged release does: run once, and kept in the cache folder."""
    paths = paths_in(release.tree)
    file = Cache.locate().scratch / "one-statement" / f"{digest_of(paths, count, depth)}.msgpack"
    if file.exists():
        return msgspec.msgpack.decode(file.read_bytes(), type=Unchanged)
    found = unchanged(host, paths, count, depth)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_bytes(msgspec.msgpack.encode(found))
    draft.replace(file)
    return found


def digest_of(paths: Sequence[str], count: int, depth: str | None = None) -> str:
    """Of the release, the traces, and what drives them; planted faults do nothing here."""
    digest = hashlib.sha256(str((RELEASE, count, paths)).encode())
    for lane in lanes(depth):
        for seed in range(count):
            digest.update(msgspec.json.encode(lane.trace(seed, RELEASE)))
    for file in sorted((ROOT / "differential/targets/host").rglob("*.py")):
        if not file.stem.endswith("faults"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Shown:
    """What a result shows: a contract's break, or the lockstep's difference, and at which event.
    `alike`: a listed fault breaks the same, and the change had decided otherwise at an event
    before, so that the fault may be what shows."""

    by: str
    kind: str
    event: int
    sentence: str
    alike: bool = False


class Search:
    """Looks for changes with the traces of `count` seeds of each lane."""

    def __init__(
        self,
        host: ChangingHost,
        reference: ReferenceTarget,
        release: InstalledRelease,
        count: int,
        depth: str | None = None,
    ) -> None:
        self._host = host
        self._reference = reference
        self._count, self._depth = count, depth
        self.unchanged = unchanged_of(host, release, count, depth)
        self._attribution = Attribution(
            fault_folders.load(),
            RELEASE,
            reference,
            is_changed=True,
            release_itself=release,
            mending=Mending(release),
        )
        self._of_reference: Callable[[str, int], TraceResult | None] = lru_cache(512)(
            self._referenced
        )

    def close(self) -> None:
        """End the hosts that were asked for causes."""
        self._attribution.close()

    def _referenced(self, lane: str, seed: int) -> TraceResult | None:
        trace = LANES[lane].trace(seed, RELEASE)
        if not self._reference.compares(trace):
            return None
        (expected,) = self._reference.run([trace])
        return None if expected.illegal else expected

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
        for lane, seeds in in_turn(self._count, self._depth):
            called = self.unchanged.called[lane.name]
            if lane.depth != UNTRACED:
                seeds = [seed for seed in seeds if name in called[seed]]
            elif statement.reading.path.startswith(CONNECTORS):
                seeds = [seed for seed in seeds if seed < UNTRACED_SEEDS]
            else:
                seeds = []
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
                elapsed = round(time.monotonic() - started, 2)
                for which, shown in found.items():
                    if which not in seen or (seen[which].alike and not shown.alike):
                        seen[which] = Seen(
                            by=shown.by,
                            kind=shown.kind,
                            depth=lane.depth,
                            lane=lane.name,
                            seed=seed,
                            event=shown.event,
                            sentence=shown.sentence,
                            traces=ran,
                            seconds=elapsed,
                            alike=shown.alike,
                        )
            if len(voids) >= HARNESS_ERRORS_MAX or (
                len(seen) == 2 and not any(one.alike for one in seen.values())
            ):
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

    def _judged(self, lane: Lane, trace: Trace, result: TraceResult) -> Mapping[str, Shown]:
        """What a result shows that no listed fault of the release explains: by contracts, in
        lockstep.

        Raises:
            SystemExit: the unchanged release differs from the reference too.
        """
        seen = examine(trace, result, self._host)
        if seen.illegal is not None:
            raise HarnessError(f"it refuses what the release runs: {seen.illegal}")
        seen = self._beside_reference(lane, trace, result, seen)
        told = self._attribution.of(trace, result, seen, lane.name)
        unchanged = decoded(self.unchanged.results[lane.name][trace.header.seed or 0])
        its_own = examine(trace, unchanged, self._host).broken
        parting = compare(unchanged, result, DRAWN)
        found: dict[str, Shown] = {}
        for contract, kind, event, sentence in seen.breaks():
            if contract == LOCKSTEP:
                self._no_difference_of_its_own(lane, trace, event)
                found[LOCKSTEP] = Shown(contract, kind, event, sentence)
            elif told[contract, kind].fault is None and contract not in its_own:
                decided_otherwise = parting is not None and parting.event < event
                carries_over = decided_otherwise and trace.depth != WITHOUT_STATE
                alike = carries_over and told[contract, kind].parts
                shown = Shown(contract, kind, event, sentence, alike)
                if found.setdefault("contracts", shown).alike:
                    found["contracts"] = shown
        return found

    def _beside_reference(
        self, lane: Lane, trace: Trace, result: TraceResult, seen: Examination
    ) -> Examination:
        expected = self._of_reference(lane.name, trace.header.seed or 0)
        if expected is None:
            return seen
        return replace(seen, difference=_differs(expected, result, trace), compared=True)

    def _no_difference_of_its_own(self, lane: Lane, trace: Trace, event: int) -> None:
        seed = trace.header.seed or 0
        expected = self._of_reference(lane.name, seed)
        assert expected is not None
        own = _differs(expected, decoded(self.unchanged.results[lane.name][seed]), trace)
        if own is not None and own.event <= event:
            raise SystemExit(
                f"{self._host.name} differs from the reference in {lane.name}, seed {seed}: "
                f"{own.sentence}; expected none, so that a difference is a change's doing"
            )


def _differs(expected: TraceResult, result: TraceResult, trace: Trace) -> Difference | None:
    return compare(expected, result, DEPTHS[trace.depth].its_own)


def run_slice(part: tuple[int, int], options: "Options") -> int:
    """Run every n-th change that is due, and append what comes of each to the file; how many."""
    calm_collector()
    release = releases.install(RELEASE, report=print)
    host = ChangingHost(release)
    reference = reference_for(host)
    assert reference is not None
    search = Search(host, reference, release, options.seeds)
    try:
        first, parts = part
        mine = due(options, search.unchanged)[first::parts]
        for statement in mine:
            outcome = search.outcome(statement)
            with OUTCOMES.open("ab") as file:
                file.write(msgspec.json.encode(outcome) + b"\n")
            print(sentence_of(outcome), flush=True)
        return len(mine)
    finally:
        search.close()
        host.close()
        reference.close()


def every_change(depth: str, seeds: int) -> None:
    """Make every change of the functions that the lanes of a depth call, and print what sees it."""
    calm_collector()
    release = releases.install(RELEASE, report=print)
    host = ChangingHost(release)
    reference = reference_for(host)
    assert reference is not None
    search = Search(host, reference, release, seeds, depth)
    try:
        own = search.unchanged
        called = {name for lane in own.called.values() for names in lane for name in names}
        paths = sorted({name.partition(":")[0] for name in called})
        made = sample(release.tree, paths, sys.maxsize, SEED, own.reached, own.unchangeable)
        found = []
        for one in made:
            if f"{one.reading.path}:{one.reading.name}" not in called:
                continue
            try:
                found.append(search.outcome(one))
            except HarnessError as error:
                host.close()
                print(f"void {one.key} {one.words!r}: {error}", flush=True)
            else:
                print(sentence_of(found[-1]), flush=True)
    finally:
        search.close()
        host.close()
        reference.close()
    by_contracts = sum(one.by_contracts is not None for one in found)
    either = sum((one.by_contracts or one.in_lockstep) is not None for one in found)
    silent = sum(not one.differing for one in found)
    print(
        f"{len(found)} changes: {by_contracts} seen by contracts alone, {either} by these or in "
        f"lockstep; {silent} change nothing that any trace shows"
    )


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
    return sample(tree, paths_in(tree), options.changes, options.seed, reached, cannot)


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
        found = {
            one.key: one for one in statements(options, unchanged_of(host, release, options.seeds))
        }
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
    PAGE.write_text(page(found, judged, options.seed, options.seeds, UNTRACED_SEEDS))


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
    parser.add_argument(
        "--depth", choices=sorted(DEPTHS), help="every change of what this depth calls"
    )
    parser.add_argument("--page", action="store_true", help="write the page, and run nothing")
    parser.add_argument("--tree", nargs=2, metavar=("KEY", "DIR"), help="write a change's tree")
    given = parser.parse_args()
    unseen = (one for one in outcomes() if not one.is_broken and one.differing)
    again = {*given.again, *((one.key for one in unseen) if given.unseen else ())}
    options = Options(given.changes, given.seed, given.seeds, frozenset(again))
    if given.depth:
        every_change(given.depth, given.seeds)
        return
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
