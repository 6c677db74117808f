"""Breaks of one cause are one finding with other faces; those of two causes are two findings."""

import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.findings import first_wrong as stepping
from cacheproof.differential.findings.faces import causes_of
from cacheproof.differential.findings.finding import (
    LOCKSTEP,
    MODEL_DIFFERENCE,
    Finding,
    found_in,
)
from cacheproof.differential.findings.first_wrong import FirstWrong, first_wrong
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.search.seeded import search
from cacheproof.differential.search.verdict import is_unlisted
from cacheproof.differential.targets.changes import changed_once, changed_once_in
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.differential.traces.records import CallRecord, Delta, StepRecord, TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics

FREE, CAN = "EncoderCacheManager.free_encoder_input", "EncoderCacheManager.can_allocate"
CONTENTS = ("entries", "queue", "freeable slots")
COUNTS = ("freeable slots",)
MENDED = Semantics.of_vllm(NEWEST)
FAULTY = MENDED.changed({"encoder_cache.holds_until_last_occurrence": False})


@cache
def _a_finding() -> Finding:
    target = ReferenceTarget(FAULTY, name="it", release=NEWEST)
    found = found_in(target, manager_trace(0), "EC-6a", times=2)
    assert found is not None
    return found


def face(
    contract: str,
    functions: Sequence[str],
    parts: Sequence[str] = CONTENTS,
    *,
    later: int = 0,
    kind: str = "",
    broken: Sequence[tuple[str, str]] = (),
    harm: str = "safety",
    changed: bool = True,
) -> Finding:
    """A finding of which only what makes its cause is of interest; it shows `later` events after
    its first wrong step."""
    found = _a_finding()
    first = FirstWrong(
        found.event - later, "release", tuple(functions), changed, tuple(parts), tuple(broken)
    )
    shape = f"{contract} {functions} {parts} {later}"
    return msgspec.structs.replace(
        found, contract=contract, kind=kind, harm=harm, shape=shape, first_wrong=first
    )


def told(findings: Sequence[Finding], once: Sequence[str] = ()) -> list[list[str]]:
    """The contracts of each cause."""
    return [
        [finding.contract for finding in cause.findings]
        for cause in causes_of(findings, is_unlisted, once)
    ]


def test_what_one_function_decides_otherwise_is_one_finding_and_its_consequences_come_after() -> (
    None
):
    lockstep = face(LOCKSTEP, [FREE], harm=MODEL_DIFFERENCE)
    several = [face("EC-6", [FREE], later=1), lockstep, face("EC-6a", [FREE])]
    assert told(several) == [["EC-6a", "EC-6", LOCKSTEP]]


def test_what_two_functions_decide_otherwise_is_two_findings() -> None:
    assert told([face("EC-6a", [FREE]), face("EC-6a", [CAN])]) == [["EC-6a"], ["EC-6a"]]


def test_two_changes_in_one_function_are_two_findings_where_its_text_shows_two() -> None:
    several = [face("EC-6a", [FREE]), face("EC-2", [FREE], COUNTS)]
    assert told(several) == [["EC-6a"], ["EC-2"]]
    assert told(several, once=[FREE]) == [["EC-6a", "EC-2"]]


def test_what_two_changed_functions_may_have_done_hides_in_neither() -> None:
    """While either function has no finding of its own, it may be that one's only face."""
    either = face("EC-6", [FREE, CAN], later=1)
    assert told([face("EC-6a", [FREE]), either]) == [["EC-6a"], ["EC-6"]]
    both = [face("EC-6a", [FREE]), either, face("EC-12", [CAN])]
    assert told(both) == [["EC-6a", "EC-6"], ["EC-12"]]


def test_a_difference_alone_joins_what_the_function_breaks_by_some_of_the_same_parts() -> None:
    order = face(LOCKSTEP, [CAN], ["notices"], harm=MODEL_DIFFERENCE)
    breaks = face("EC-8a", [CAN], ["entries", "queue", "notices"])
    assert told([order, breaks]) == [["EC-8a", LOCKSTEP]]
    counts = face(LOCKSTEP, [CAN], ["free slots"], harm=MODEL_DIFFERENCE)
    assert told([counts, breaks]) == [[LOCKSTEP], ["EC-8a"]]


def test_a_finding_worth_an_exit_code_is_never_the_face_of_one_that_is_not() -> None:
    efficiency = face("EC-8b", [CAN], harm="efficiency")
    (cause,) = causes_of([efficiency, face("EC-8a", [CAN], later=1)], is_unlisted)
    assert is_unlisted(cause.head)


def test_one_contract_alone_makes_no_cause() -> None:
    """Without a difference from the reference the trace must break that very contract first, by
    the same function, in the same kind, with the same ingredients."""
    own = face("EC-6a", [FREE], (), broken=[("EC-6a", "")])
    assert told([own, face("EC-6", [FREE], (), later=1, broken=[("EC-6a", "")])]) == [
        ["EC-6a", "EC-6"]
    ]
    assert len(told([own, face("EC-6a", [CAN], (), broken=[("EC-6a", "")])])) == 2
    other_kind = face("EC-6a", [FREE], (), kind="other", broken=[("EC-6a", "other")])
    assert len(told([own, other_kind])) == 2
    other_events = msgspec.structs.replace(own, events=own.events[:1])
    assert len(told([own, other_events])) == 2
    unseen = face("EC-6", [FREE], (), later=1, broken=[("EC-1", "")])
    assert len(told([own, unseen])) == 2


def test_a_finding_without_a_first_wrong_step_stands_alone() -> None:
    big = msgspec.structs.replace(face("EC-6a", [FREE]), first_wrong=None)
    assert told([face("EC-6a", [FREE]), big]) == [["EC-6a"], ["EC-6a"]]


def test_a_faulty_managers_break_is_first_wrong_where_the_reference_parts() -> None:
    step = step_of(ReferenceTarget(FAULTY, name="it", release=NEWEST))
    where = (_a_finding().event, "release", "entries")
    assert (step.event, step.operation, step.parts[0]) == where
    assert (step.functions, step.changed) == ((FREE,), False)
    assert ("EC-6a", "") in step.broken


class Reread(ReferenceTarget):
    """A target whose text differs in these definitions, and that calls some of them."""

    called: Sequence[Sequence[str]] = ()


def reread(differing: Sequence[str], called: Sequence[Sequence[str]] = ()) -> Reread:
    target = Reread(FAULTY, name="it", release=NEWEST)
    target.reading = Reading(NEWEST, NEWEST, 589, dict.fromkeys(differing, "changed"), ())
    target.called = called
    return target


def step_of(target: ReferenceTarget) -> FirstWrong:
    """The first wrong step of the finding, beside a reference that differs in that fault alone."""
    found = _a_finding()
    seen = examine(found.trace, target.run([found.trace])[0], target, ReferenceTarget(MENDED))
    step = first_wrong(target, found.trace, seen, found.event)
    assert step is not None
    return step


def test_the_one_definition_that_differs_decided_whatever_differs() -> None:
    step = step_of(reread([CAN]))
    assert (step.functions, step.changed) == ((CAN,), True)


def test_of_several_definitions_those_that_the_wrong_step_called_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stepping, "_called", lambda target, trace: target.called)
    wrong = _a_finding().event
    before = [[f"m:{CAN}"]] * wrong
    assert step_of(reread([FREE, CAN], [*before, [f"m:{FREE}"]])).functions == (FREE,)
    assert step_of(reread([FREE, CAN], [*before, [f"m:{CAN}", f"m:{FREE}"]])).functions == (
        FREE,
        CAN,
    )
    assert step_of(reread([FREE, CAN], [*before, []])).functions == (CAN,)
    assert not step_of(reread([FREE, CAN], [[]] * (wrong + 1))).changed


def test_what_the_reference_breaks_as_well_does_not_come_of_a_difference() -> None:
    """A target that differs from the reference in one thing and breaks a contract in another."""
    broken = _a_finding()
    counting = ReferenceTarget(FAULTY, name="it", release=NEWEST)
    for reference, differs in ((MENDED, True), (FAULTY, False)):
        beside = ReferenceTarget(reference, name="reference", release=NEWEST)
        found = found_in(counting, broken.trace, "EC-6a", beside, times=1, elsewhere=counting)
        assert found is not None
        assert found.first_wrong is not None
        assert bool(found.first_wrong.parts) == differs
    differing = Miscounting(FAULTY, name="it", release=NEWEST)
    both = ReferenceTarget(FAULTY, name="reference", release=NEWEST)
    seen = examine(broken.trace, differing.run([broken.trace])[0], differing, both)
    assert seen.difference is not None
    found = found_in(differing, broken.trace, "EC-6a", both, times=1, elsewhere=differing)
    assert found is not None
    assert found.first_wrong is not None
    assert (found.first_wrong.parts, found.first_wrong.broken[0][0]) == ((), "EC-6a")


class Miscounting(ReferenceTarget):
    """A target that answers its first call otherwise, which breaks nothing."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return [
            msgspec.structs.replace(
                result, records=[_otherwise(result.records[0]), *result.records[1:]]
            )
            for result in super().run(traces, fault)
        ]


def _otherwise(record: StepRecord) -> StepRecord:
    return record._replace(outcome={"other": True})


def test_parts_of_a_difference_name_what_the_others_follow_from_first() -> None:
    idle = Delta(0, 1, {"x": None}, [("x", 1)], None)
    ours, theirs = (
        TraceResult([StepRecord(None, [_call(delta)], None, None)]) for delta in (None, idle)
    )
    difference = compare(ours, theirs)
    assert difference is not None
    assert difference.parts == ("entries", "queue", "freeable slots", "free slots")
    more = TraceResult([StepRecord(None, [_call(idle._replace(freeable_slots=2))], None, None)])
    counted = compare(theirs, more)
    assert counted is not None
    assert (counted.field, counted.parts) == ("freeable slots", COUNTS)


def _call(delta: Delta | None) -> CallRecord:
    return CallRecord("release", "a", 0, None, None, None, delta)


MANAGER = "v1/core/encoder_cache_manager.py"
EARLY = (
    "if mm_hash in self.request_hash_refs.get(req_id, ()):",
    "if mm_hash in self.request_hash_refs.get(mm_hash, ()):",
)
TOO_MANY = (
    "            self.num_freeable_slots += num_encoder_embeds\n\n    def free(",
    "            self.num_freeable_slots += num_encoder_embeds + 1\n\n    def free(",
)
TOO_FEW = (
    "if num_embeds > self.num_freeable_slots:",
    "if num_embeds >= self.num_freeable_slots:",
)
Change = tuple[str, str]


def fork(folder: Path, *changes: Change) -> Path:
    """A checkout of the newest release, of links to its files, but for the changes."""
    tree = releases.install(NEWEST, report=print).tree / "vllm"
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(tree, folder / "vllm", copy_function=os.symlink, ignore=without)
    file = folder / "vllm" / MANAGER
    text = file.read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    file.unlink()
    file.write_text(text)
    return folder


def test_how_often_a_definition_was_changed_is_read_from_both_texts(tmp_path: Path) -> None:
    tree = releases.install(NEWEST, report=print).tree
    once = fork(tmp_path / "once", EARLY, TOO_FEW)
    assert changed_once(once, tree, [FREE, CAN]) == {FREE, CAN}
    twice = fork(tmp_path / "twice", EARLY, TOO_MANY)
    assert changed_once(twice, tree, [FREE, CAN]) == set()
    assert changed_once(twice, tree, ["EncoderCacheManager.no_such"]) == set()


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([EARLY], [{"EC-6a", "EC-6", LOCKSTEP}]),
        ([TOO_MANY], [{"EC-2", "EC-3", "EC-12", "EC-13", LOCKSTEP}]),
        ([EARLY, TOO_FEW], [{"EC-6a", "EC-6", LOCKSTEP}, {"EC-12", LOCKSTEP}]),
        ([EARLY, TOO_MANY], [{"EC-6a"}, {"EC-2"}]),
    ],
    ids=["early", "too many", "two functions", "two in one function"],
)
def test_one_change_of_a_release_is_one_finding_and_two_are_two(
    tmp_path: Path, changes: list[Change], expected: list[set[str]]
) -> None:
    with closing(resolve(f"path:{fork(tmp_path / 'fork', *changes)}", report=print)) as target:
        reference = reference_for(target)
        lane = LANES["encoder cache"]
        outcome = search(target, [lane], against=reference, seeds=range(2), kept_per_break=1)
        found = [
            found_in(
                target, one.trace, one.contract, reference, kind=one.kind, times=1, elsewhere=target
            )
            for one in outcome.breaks
        ]
        unique = {one.key: one for one in found if one is not None}
        causes = causes_of(list(unique.values()), is_unlisted, changed_once_in(target))
    contracts = [{one.contract for one in cause.findings} for cause in causes]
    heads = [cause.head.contract for cause in causes]
    assert len(contracts) == len(expected), contracts
    for wanted in expected:
        assert any(wanted & one and (one <= wanted or len(wanted) == 1) for one in contracts)
    assert all(is_unlisted(cause.head) for cause in causes), heads
