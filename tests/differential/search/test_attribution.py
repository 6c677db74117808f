"""A break is a listed fault's by its cause: each of the three conditions, and what follows where
one of them fails."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.search import mending
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.campaigns.outcomes import SearchedShard, read, written
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import Cause, KnownFault, Symptom
from cacheproof.differential.search.paired import Both, RunSeeds
from cacheproof.differential.search.seeded import SearchOutcome, search
from cacheproof.differential.targets import reference_scheduler
from cacheproof.differential.targets.changes import reads_otherwise
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.media_identifier import (
    MediaIdentifierConfig,
    MediaIdentifierHeader,
    NamedItem,
    NameItems,
)
from cacheproof.differential.traces.records import Raised, TraceResult
from cacheproof.differential.traces.scheduler import SchedulerHeader
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics

OLD = "0.31.0"
"""A release that claims no second occurrence of an item in one step."""
CLAIMED = "encoder_cache.claims_duplicates"
OTHER = "encoder_cache.releases_decoder_once"
"""Not true of that release either, and nothing to it."""
LANE = "encoder cache"


def model(release: str = OLD) -> ReferenceTarget:
    return ReferenceTarget(Semantics.of_vllm(release), release=release)


def fault(name: str, *flags: str, contract: str = "EC-6a", lane: str = LANE) -> KnownFault:
    """By its cause; without flags by its symptom, in a lane."""
    if flags:
        cause = (Cause(flags, (contract,)),)
        return KnownFault(name, "a title", "safety", seen="0.29.0 to 0.31.0", cause=cause)
    return KnownFault(name, "a title", "safety", symptom=(Symptom(contract, "all", (lane,)),))


def told(
    target: ReferenceTarget, known: Sequence[KnownFault], release: str = OLD, lane: str = LANE
) -> list[Attributed]:
    """Which fault each break of EC-6a is, in sixty traces."""
    attribution = Attribution(known, release, model(release))
    found = []
    for seed in range(60):
        trace = LANES[lane].trace(seed, release)
        (result,) = target.run([trace])
        breaks = attribution.of(trace, result, examine(trace, result, target), lane)
        found += [one for (contract, _), one in breaks.items() if contract == "EC-6a"]
    return found


def names(several: Sequence[Attributed]) -> set[str | None]:
    return {one.fault for one in several}


def test_what_the_model_breaks_by_a_listed_cause_is_that_fault() -> None:
    found = told(model(), [fault("other", OTHER), fault("same", CLAIMED)])
    assert names(found) == {"same"}
    assert not any(one.by_symptom or one.why for one in found)


def test_of_two_faults_with_one_cause_that_of_the_release_is_told() -> None:
    elsewhere = replace(fault("elsewhere", CLAIMED), seen="0.20.0 to 0.21.0")
    assert names(told(model(), [elsewhere, fault("same", CLAIMED)])) == {"same"}


def test_a_fault_without_that_cause_is_none_whatever_it_is_listed_to_break() -> None:
    """Condition (b)."""
    found = told(model(), [fault("other", OTHER)])
    assert names(found) == {None}
    assert {one.why for one in found} == {"EC-6a breaks without other too"}


def test_a_cause_that_is_not_listed_to_break_the_contract_explains_nothing() -> None:
    """Condition (c)."""
    assert set(told(model(), [fault("same", CLAIMED, contract="EC-7")])) == {Attributed()}


class Parting(ReferenceTarget):
    """Breaks what the release breaks, and decides otherwise before: it leaks a slot."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return super().run(traces, "leaks_a_slot")


@pytest.mark.parametrize("cause", [(CLAIMED,), ()])
def test_what_a_target_breaks_behind_a_decision_of_its_own_is_new(cause: tuple[str, ...]) -> None:
    """Condition (a)."""
    parting = Parting(Semantics.of_vllm(OLD), release=OLD)
    found = told(parting, [fault("same", *cause)])
    new = [one for one in found if one.fault is None]
    assert new
    assert all(one.parts for one in new)
    assert all("decides otherwise than 0.31.0 before: event" in one.why for one in new)


def test_a_fault_without_a_cause_is_told_by_what_it_breaks_and_marked() -> None:
    found = told(model(), [fault("without")])
    assert names(found) == {"without"}
    assert all(one.by_symptom for one in found)
    assert set(told(model(), [fault("without", lane="scheduler")])) == {Attributed()}


class Refusing(ReferenceTarget):
    """Runs no trace."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return [TraceResult((), illegal="not that one") for _ in traces]


class MendedByFlag(mending.Mending):
    """Mends that the reference stands in for: all together they turn a flag, or refuse all traces;
    fewer of them do nothing."""

    def __init__(self, flag: str | None, *faults: str) -> None:
        self.all = {*faults}
        self.left = model()
        if flag is None:
            self.target: ReferenceTarget = Refusing(Semantics.of_vllm(OLD), release=OLD)
        else:
            self.target = ReferenceTarget(Semantics.of_vllm(OLD).changed({flag: True}), release=OLD)

    def can_mend(self, fault: str, kind: str | None) -> bool:
        return fault in self.all

    def without(self, *faults: str) -> ReferenceTarget:
        return self.target if self.all == {*faults} else self.left


def told_by_mends(known: Sequence[KnownFault], mends: mending.Mending) -> set[Attributed]:
    """Which fault breaks of EC-6a are, in sixty traces."""
    attribution = Attribution(known, OLD, model(), mending=mends)
    found = set()
    for seed in range(60):
        trace = LANES[LANE].trace(seed, OLD)
        (result,) = model().run([trace])
        breaks = attribution.of(trace, result, examine(trace, result, model()), LANE)
        found |= {one for (contract, _), one in breaks.items() if contract == "EC-6a"}
    return found


@pytest.mark.parametrize(
    ("flag", "others", "outcome"),
    [
        (CLAIMED, ["first"], Attributed("mended")),
        (OTHER, [], Attributed(why="EC-6a breaks without mended too")),
        (OTHER, ["first"], Attributed("first", by_symptom=True)),
        (None, [], Attributed(why="a release without mended refuses the trace")),
        (None, ["first"], Attributed("first", by_symptom=True)),
    ],
)
def test_a_fault_without_a_cause_is_told_by_its_mend(
    flag: str | None, others: list[str], outcome: Attributed
) -> None:
    known = [fault(one) for one in (*others, "mended")]
    assert told_by_mends(known, MendedByFlag(flag, "mended")) == {outcome}


@pytest.mark.parametrize(
    ("flag", "outcome"),
    [
        (CLAIMED, Attributed("one", "takes other as well")),
        (OTHER, Attributed(why="EC-6a breaks without one too")),
        (None, Attributed(why="EC-6a breaks without one too")),
    ],
)
def test_two_faults_that_break_a_contract_at_one_event_are_told_by_both_mends(
    flag: str | None, outcome: Attributed
) -> None:
    """The other fault breaks it in another kind."""
    other = fault("other")
    other = replace(other, symptom=(replace(other.symptom[0], kind="another kind"),))
    assert told_by_mends([fault("one"), other], MendedByFlag(flag, "one", "other")) == {outcome}


class Hosts(ReferenceTarget):
    """Says when it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_what_tells_breaks_apart_ends_the_hosts_of_mended_releases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, tree = Hosts(Semantics.of_vllm(OLD)), Path("tree")
    monkeypatch.setattr(mending, "host_of", lambda *told, **more: host)
    release = InstalledRelease(OLD, tree, tree, tree, (), "sdist", "", "", pinned=True)
    mends_of = mending.Mending(release)
    assert mends_of.without("stripped-item") is mends_of.without("stripped-item")
    attribution = Attribution([], OLD, None, mending=mends_of)
    assert not host.is_closed
    attribution.close()
    assert host.is_closed


def test_a_release_that_is_not_modelled_has_its_faults_told_by_what_they_break() -> None:
    target = model()
    attribution = Attribution([fault("same", CLAIMED)], OLD, None)
    for seed in range(60):
        trace = LANES[LANE].trace(seed, OLD)
        (result,) = target.run([trace])
        breaks = attribution.of(trace, result, examine(trace, result, target), LANE)
        if ("EC-6a", "") in breaks:
            assert breaks["EC-6a", ""] == Attributed("same", by_symptom=True)
            return
    pytest.fail("nothing was broken")


def test_two_causes_that_it_takes_together_are_both_named() -> None:
    """Block keys of 0.30.0: one item of a grown block is left out, and a discarded token stays."""
    lane, release = "block keys", "0.30.0"
    attribution = Attribution(load(), release, model(release))
    for seed in range(40):
        trace = LANES[lane].trace(seed, release)
        (result,) = model(release).run([trace])
        breaks = attribution.of(trace, result, examine(trace, result, model(release)), lane)
        both = breaks.get(("BK-3", ""))
        if both is not None and both.why:
            assert both == Attributed("discarded-token", "takes grown-block as well")
            return
    pytest.fail("no trace took both")


def test_behind_one_cause_another_may_break_the_contract_in_its_own_kind() -> None:
    """Named by a count, the third request's pictures have the first one's name; named by digests
    one of them has that of a picture alone. Neither cause is listed to break so as the other."""
    release = "0.28.0"
    config = MediaIdentifierConfig(
        processor_cache=False, prefix_caching=False, external_store=True, model="deepseek_vl2"
    )
    header = MediaIdentifierHeader(schema=1, manager="media_identifier", config=config)
    one, two = NamedItem(content=1), NamedItem(content=2)
    trace = Trace(
        header,
        (
            NameItems("a", items=(one,), engine=1),
            NameItems("b", items=(two,), server=1),
            NameItems("c", items=(two, two, two)),
        ),
    )
    target = model(release)
    (result,) = target.run([trace])
    attribution = Attribution(load(), release, model(release))
    breaks = attribution.of(trace, result, examine(trace, result, target), "media identifier")
    both = Attributed("media-names-repeated", "takes media-names-by-count as well")
    assert breaks["ID-1", "of another engine"] == both


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        ("EC-6a", Attributed("same")),
        ("EC-7", Attributed(why="EC-6a holds without same, which does not list it")),
    ],
)
def test_a_finding_is_told_by_its_records_and_by_a_cause_that_does_not_list_it(
    contract: str, told: Attributed
) -> None:
    attribution = Attribution([fault("same", CLAIMED, contract=contract)], OLD, model())
    for seed in range(60):
        trace = LANES[LANE].trace(seed, OLD)
        found = found_in(model(), trace, "EC-6a", times=2, batches=4)
        if found is not None:
            assert attribution.of_finding(found, LANE) == told
            return
    pytest.fail("nothing was broken")


def test_what_a_changed_target_breaks_is_laid_to_no_cause_of_its_release() -> None:
    """The model without any cause keeps a contract that the model keeps with all of them."""
    attribution = Attribution([fault("same", CLAIMED)], OLD, model())
    found = found_in(
        Parting(Semantics.of_vllm(OLD), release=OLD), LANES[LANE].trace(0, OLD), "EC-1"
    )
    assert found is not None
    assert attribution.of_finding(found, LANE) == Attributed()


def test_a_search_counts_the_traces_that_are_a_listed_fault_and_a_store_keeps_it() -> None:
    known = [fault("same", CLAIMED)]
    lanes = [LANES[LANE]]
    counted, unknown = (
        search(
            model(),
            lanes,
            against=None,
            seeds=range(60),
            attribution=Attribution(listed, OLD, model()),
        )
        for listed in (known, [])
    )
    traces = counted.kinds["EC-6a", LANE, ""]
    assert traces
    assert counted.listed == {("EC-6a", LANE, "", "same"): traces}
    assert counted.listed_in("EC-6a", LANE, "") == {"same": traces}
    assert unknown.kinds == counted.kinds
    assert not unknown.listed
    kept = read(SearchedShard, written(SearchedShard.of(counted)))
    again = SearchOutcome.begun("it", None, lanes, compared=False)
    kept.put_into(again)
    assert (again.kinds, again.listed) == (counted.kinds, counted.listed)


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_changed_target_has_no_known_faults_on_traces_that_its_model_does_not_run(
    is_changed: bool,
) -> None:
    """A release has: it is known by its text to decide as it did when the fault was listed."""
    listed = [fault("same", CLAIMED)]
    attribution = Attribution(listed, OLD, Deaf(), is_changed=is_changed)
    for seed in range(60):
        trace = LANES[LANE].trace(seed, OLD)
        (result,) = model().run([trace])
        seen = examine(trace, result, model())
        if "EC-6a" in seen.violations:
            told = attribution.of(trace, result, seen, LANE)["EC-6a", ""]
            assert told.fault == (None if is_changed else "same")
            assert told.parts == is_changed
            event = seen.violations["EC-6a"].event
            assert attribution.parts(trace, result, event) == is_changed
            return
    pytest.fail("nothing was broken")


class Deaf(ReferenceTarget):
    """A model that runs no trace."""

    def compares(self, trace: Trace) -> bool:
        return False


def test_another_text_of_whatever_file_is_another_text(tmp_path: Path) -> None:
    for name, text in (("one", "a = 1"), ("same", "a = 1"), ("other", "a = 2"), ("more", "a = 1")):
        folder = tmp_path / name / "vllm" / "config"
        folder.mkdir(parents=True)
        (folder / "ec_transfer.py").write_text(text)
    (tmp_path / "more" / "vllm" / "new.py").write_text("")
    (tmp_path / "same" / "vllm" / "notes.md").write_text("")
    one = tmp_path / "one"
    names = ("same", "other", "more")
    assert [name for name in names if reads_otherwise(one, tmp_path / name)] == ["other", "more"]


def test_a_model_that_raises_before_has_kept_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cause a trace goes another way, and may end on it."""
    release, lane = "0.31.0", "block keys"
    attribution = Attribution(load(), release, model(release))
    trace = next(
        one
        for one in (LANES[lane].trace(seed, release) for seed in range(40))
        if "BK-1" in examine(one, model(release).run([one])[0], model(release)).violations
    )
    (result,) = model(release).run([trace])
    seen = examine(trace, result, model(release))
    assert attribution.of(trace, result, seen, lane)["BK-1", ""].fault == "discarded-token"
    run = ReferenceTarget._run

    def ending(target: ReferenceTarget, one: Trace, planted: str | None) -> TraceResult:
        whole = run(target, one, planted)
        if not target.turned:
            return whole
        raised = Raised("RuntimeError", "gone another way")
        return TraceResult([whole.records[0]._replace(raised=raised)], capacity=whole.capacity)

    monkeypatch.setattr(ReferenceTarget, "_run", ending)
    assert Attribution(load(), release, model(release)).of(trace, result, seen, lane)[
        "BK-1", ""
    ] == Attributed(why="BK-1 breaks without discarded-token and zero-embedding too")


def refused_trace() -> tuple[Trace, TraceResult]:
    """A trace with an item that must be whole and has no room in a step, and what a target makes of
    it that does not refuse it, as releases do."""
    trace = LANES["scheduler"].trace(25, NEWEST)
    assert isinstance(trace.header, SchedulerHeader)
    assert trace.header.config.disable_chunked_mm_input
    config = replace(trace.header.config, max_num_batched_tokens=11)
    narrow = Trace(replace(trace.header, config=config), trace.events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_scheduler, "_check_whole", lambda *_: None)
        (result,) = model(NEWEST).run([narrow])
    return narrow, result


@pytest.mark.parametrize("in_lockstep", [False, True])
def test_what_the_release_would_not_run_breaks_nothing_that_is_listed(in_lockstep: bool) -> None:
    trace, result = refused_trace()
    target = model(NEWEST)
    seen = examine(trace, result, target, target if in_lockstep else None)
    assert not seen.compared
    attribution = Attribution(load(), NEWEST, target, is_changed=True)
    told = attribution.of(trace, result, seen, "scheduler")
    assert names([*told.values()]) == {None}
    why = "whole-item-sparse breaks LV-2 too, but the reference runs no such trace"
    assert told["LV-2", ""].why == why


def test_what_both_sides_of_a_review_break_is_told_as_of_base() -> None:
    """A mend decides otherwise than its release, and breaks behind that what both break."""
    known = [fault("same", CLAIMED), fault("leak", contract="EC-1", lane="scheduler")]
    both = Both(model(), Parting(Semantics.of_vllm(OLD), release=OLD), known)
    pairs = RunSeeds(LANES[LANE], range(30)).run(both)
    shared = [one for one in pairs if ("EC-6a", "") in one.base and ("EC-6a", "") in one.head]
    assert shared
    assert all(one.head["EC-6a", ""].fault == "same" for one in shared)
    assert all(one.head["EC-1", ""].fault is None for one in pairs if ("EC-1", "") in one.head)
    assert any(("EC-1", "") in one.head and ("EC-1", "") not in one.base for one in pairs)


@pytest.mark.full
def test_what_lies_behind_a_mend_is_told_by_a_second_mend_beside_it() -> None:
    """The release itself ends before that, with the second mend alone as well."""
    trace = LANES["connectors in memory"].trace(10, NEWEST)
    with closing(resolve(f"vllm@{NEWEST}+mended:larger-than-the-region", report=print)) as target:
        (result,) = target.run([trace])
        seen = examine(trace, result, target)
        found = Attribution.of_target(load(), target, None).of(trace, result, seen, None)
    assert [one.fault for one in found.values()] == ["save-of-the-preempted"]
