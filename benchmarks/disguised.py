"""Disguised faults: changes of vLLM 0.33.0 that break what a listed fault breaks, by another cause.

    .venv/bin/python benchmarks/disguised.py

Each change of `disguised.jsonl` is run on the one trace that it names. By its contract, lane and
kind a listed fault of the release would cover the break. It is to be told as new all the same: by a
search with the contracts alone, by one in lockstep, and by a review.
docs/evidence/disguised-faults.md is written from what is seen. `--tree NAME DIR` writes the tree of
one change, `--kept` the small findings that the tests judge without a release.
"""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from disguised_page import Run, page
from disguised_table import PAGE, RELEASE, Disguised, Gallery, Place, Shown, Turned, gallery

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.provision import releases
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.search.paired import Both, RunSeeds
from cacheproof.differential.search.weighing import tallies
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.changed import ChangedText, ChangingHost, write_tree
from cacheproof.differential.targets.reference import ReferenceTarget, protocol_of
from cacheproof.differential.targets.resolve import host_of
from cacheproof.differential.texts.edits import edited
from cacheproof.differential.traces.records import TraceResult
from cacheproof.reference.semantics import Semantics

KEPT = Path(__file__).parent.parent / "tests" / "benchmarks" / "disguised"
KEPT_BATCHES = 60
KNOWN = tuple(load())
NOT_BROKEN = Attributed(why="does not break")


def reading(tree: Path, change: Disguised) -> ChangedText:
    """The changed text.

    Raises:
        ValueError: the function does not have what is replaced as often as the edit says.
    """
    text = edited((tree / change.path).read_text(), change.edit)
    return ChangedText(change.path, change.function, text)


def symptom(place: Place) -> list[str]:
    """The listed faults of the release that a break may be, by what it breaks and where."""
    listed = may_be(KNOWN, place.contract, place.kind, RELEASE, (place.lane,))
    return [one.name for one in listed]


def model(turned: str | None = None) -> ReferenceTarget:
    """The model of the release, in this process; with one more flag that is not true."""
    semantics = Semantics.of_vllm(RELEASE)
    if turned is not None:
        semantics = semantics.changed({turned: False})
    return ReferenceTarget(semantics, protocol_of(semantics), release=RELEASE)


def told(
    place: Place,
    result: TraceResult,
    target: Target,
    attribution: Attribution,
    beside: ReferenceTarget | None = None,
) -> Attributed:
    """As what the break of a trace is told, with a model `beside` the target in lockstep."""
    seen = examine(place.trace, result, target, beside)
    found = attribution.of(place.trace, result, seen, place.lane)
    return found.get(place.broken, NOT_BROKEN)


def told_of_model(place: Place, turned: str | None = None) -> Attributed:
    """As what a break of the model is told, where its semantics are those of the target."""
    target = model(turned)
    (result,) = target.run([place.trace])
    return told(place, result, target, Attribution(KNOWN, RELEASE, target))


class Room:
    """The release, unchanged and to be changed, and what judges both."""

    def __init__(self) -> None:
        release = releases.install(RELEASE, report=print)
        self.tree = release.tree
        self.host = ChangingHost(release)
        self.base = host_of(release, f"vllm@{RELEASE}")
        self._both = Both(self.base, self.host, KNOWN)
        assert self._both.reference is not None
        self.model = self._both.reference
        self.attribution = Attribution(
            KNOWN, RELEASE, self.model, is_changed=True, release_itself=release
        )
        self._both.attributions = (self._both.attributions[0], self.attribution)

    @contextlib.contextmanager
    def changed(self, change: Disguised) -> Iterator[None]:
        """The host runs the changed text for so long."""
        self.host.change(reading(self.tree, change))
        try:
            yield
        finally:
            try:
                self.host.restore()
            except HarnessError:
                self.host.close()

    def run(self, change: Disguised) -> Run:
        """Run a change on its trace, and have the break told in every way."""
        (own,) = self.base.run([change.trace])
        is_own = change.broken in examine(change.trace, own, self.base).by_kind
        with self.changed(change):
            (result,) = self.host.run([change.trace])
            reviewed = self._reviewed(change)
        return Run(
            change,
            is_own,
            self.told(change, result),
            self.told(change, result, in_lockstep=True),
            reviewed,
            result,
        )

    def told(self, place: Place, result: TraceResult, *, in_lockstep: bool = False) -> Attributed:
        """As what a break of the changed release is told."""
        beside = self.model if in_lockstep else None
        return told(place, result, self.host, self.attribution, beside)

    def told_without_release(self, place: Place, result: TraceResult) -> Attributed:
        """As what it is told where the release itself is not on this machine."""
        without = Attribution(KNOWN, RELEASE, self.model, is_changed=True)
        return told(place, result, self.host, without)

    def told_unchanged(self, shown: Shown) -> Attributed:
        """As what a break of the unchanged release is told."""
        (result,) = self.base.run([shown.trace])
        return told(shown, result, self.base, self.attribution)

    def _reviewed(self, change: Disguised) -> Attributed:
        """As what a review of the change against the release tells the break."""
        pairs = RunSeeds(change.of_lane, [change.seed]).run(self._both)
        rows = tallies(pairs, KNOWN, RELEASE, RELEASE)
        brought = [one for one in rows if one.broken == change.broken and one.head_alone]
        return Attributed(brought[0].fault) if brought else NOT_BROKEN

    def small(self, change: Disguised) -> Finding:
        """The change's finding, minimised.

        Raises:
            ValueError: it breaks nothing there.
        """
        with self.changed(change):
            found = found_in(
                self.host,
                change.trace,
                change.contract,
                kind=change.kind,
                times=1,
                batches=KEPT_BATCHES,
                elsewhere=self.host,
                parts=self.attribution.parts,
            )
        if found is None:
            raise ValueError(f"{change.name}: {change.contract} does not break")
        return found

    def close(self) -> None:
        """End its processes."""
        self._both.close()


def kept(change: Disguised) -> Finding:
    """The finding that the tests hold of a change."""
    found = finding_file.load(KEPT / f"{change.name}.json")
    assert isinstance(found, Finding)
    return found


def write_kept(room: Room, of: Gallery) -> None:
    """Write the findings that the tests hold."""
    KEPT.mkdir(exist_ok=True)
    for change in of.changes:
        if change.is_kept:
            data = msgspec.json.encode(room.small(change))
            (KEPT / f"{change.name}.json").write_bytes(data + b"\n")


def write_one(name: str, folder: Path, of: Gallery) -> None:
    """Write the tree of one change.

    Raises:
        SystemExit: there is no such change, or the folder cannot be written.
    """
    named = {change.name: change for change in of.changes}
    if name not in named:
        raise SystemExit(f"--tree {name!r}: no such change; expected a name of {PAGE.name}")
    release = releases.install(RELEASE, report=print)
    try:
        write_tree(release, reading(release.tree, named[name]), folder)
    except OSError as error:
        raise SystemExit(
            f"--tree: {folder}: {error.strerror}; expected a folder that is not there yet"
        ) from None
    print(f"{named[name].said}; run: .venv/bin/cacheproof fuzz --target path:{folder}")


def told_turned(of: Gallery) -> list[tuple[Turned, Attributed]]:
    """Faults of the model, and as what each is told."""
    return [(one, told_of_model(one, one.flag)) for one in of.turned]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tree", nargs=2, metavar=("NAME", "DIR"), help="write a change's tree")
    parser.add_argument("--kept", action="store_true", help="write the findings of the tests")
    given = parser.parse_args()
    of = gallery()
    if given.tree:
        name, folder = given.tree
        write_one(name, Path(folder), of)
        return
    with contextlib.closing(Room()) as room:
        if given.kept:
            write_kept(room, of)
            return
        runs = []
        for change in of.changes:
            runs.append(room.run(change))
            print(runs[-1].line, flush=True)
        shown = [(one, room.told_unchanged(one)) for one in of.shown]
    PAGE.write_text(page(runs, shown, told_turned(of)))


if __name__ == "__main__":
    main()
