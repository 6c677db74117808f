"""A scheduler is explored as a manager is: every state of a scope, once, by a shortest trace."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import msgspec
import pytest

from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.scheduler_kv import follows
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.explore.job import UNJUDGED, ExploreReport, Task, run, variants
from cacheproof.differential.search.explore.scheduler_scopes import LARGE, SMALL
from cacheproof.differential.search.explore.scope import SchedulerScope
from cacheproof.differential.search.explore.search import _Search, explore, traces_of
from cacheproof.differential.search.gallery.kill_matrix import VARIANTS, Variant, target_of
from cacheproof.differential.targets import reference
from cacheproof.differential.targets.host.explorer import ExplorerMoment
from cacheproof.differential.targets.host.protocol import HostError
from cacheproof.differential.targets.host.scheduler import states as scheduler_states
from cacheproof.differential.targets.host.scheduler.states import SchedulerStates
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.manager import Add
from cacheproof.spec.evidence import Outcome
from tests.differential.search.explore.shortest import judge_shortest
from tests.differential.search.explore.steps import step

BY_NAME = {scope.name: scope for scope in SMALL}
CHUNKS = BY_NAME["items in chunks"]
WHOLE = BY_NAME["whole items"]
VARIANT = {variant.name: variant for variant in VARIANTS}


def test_the_reference_closes_a_scope_and_breaks_nothing() -> None:
    exploration = explore(ReferenceTarget(), CHUNKS)
    assert (exploration.states, exploration.transitions, exploration.closed) == (182, 601, True)
    assert exploration.broken == {}
    assert exploration.reach == (
        "closed: 1 identifiers x 2 requests x capacity 2 x 3 blocks of 2 x 2 tokens a step, "
        "182 states"
    )


@pytest.mark.parametrize(
    ("variant", "scope", "contract", "events"),
    [
        ("stalled-request-keeps-entries", "whole items", "SC-6", 6),
        ("threshold-below-an-item", "whole items", "LV-1", 5),
        ("roll-back-splits", "whole items and a drafter", "SC-4", 2),
        ("takes-what-fits-no-step", "whole items", "LV-2", 1),
        ("scheduler-stops-early", "items in chunks", "SC-3", 2),
        ("scheduler-computes-the-same-again", "items in chunks", "LV-3", 14),
        ("scheduler-preempts-the-most-urgent", "two steps in flight", "SC-13", 4),
    ],
)
def test_a_shortest_trace_breaks_the_contract_with_its_last_event(
    variant: str, scope: str, contract: str, events: int
) -> None:
    found, again = judge_shortest(VARIANT[variant], BY_NAME[scope], contract, events)
    assert again.why == found.why


class _Apart(SchedulerStates):
    """Tells every moment from every other, so that nothing is put back but what was kept."""

    _moments = count()

    def now(self) -> ExplorerMoment:
        return super().now()._replace(key=next(self._moments))


def successors(scope: SchedulerScope, *, walks: int, events: int) -> Mapping[bytes, set[Any]]:
    """For the key of each state that walks come by, the sets of keys of what follows from it."""
    found: dict[bytes, set[Any]] = {}
    random = Random(0)
    for _ in range(walks):
        search = _Search(ReferenceTarget(), scope, None)
        state = search._level[0]
        for _ in range(events):
            search._met.clear()
            step(search, state)
            found.setdefault(search._key(state), set()).add(frozenset(search._keys))
            state = random.choice(search._level)
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["preemption", "a drafter", "two steps in flight", "adapters"])
def test_states_with_one_key_lead_to_the_same_states(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "SchedulerStates", _Apart)
    found = successors(BY_NAME[name], walks=12, events=25)
    assert all(len(sets) == 1 for sets in found.values())
    assert len(found) < 150  # of 300: they have come by some more than once


def test_leaving_out_what_counts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red twin of the keys: how much a request has decoded that starts over."""
    monkeypatch.setattr(reference, "SchedulerStates", _Apart)
    leave_out(monkeypatch, "ScheduledRequest", "all_token_ids")
    found = successors(BY_NAME["preemption"], walks=12, events=25)
    assert any(len(sets) > 1 for sets in found.values())


def leave_out(monkeypatch: pytest.MonkeyPatch, kind: str, attribute: str) -> None:
    told: Any = scheduler_states._APART
    monkeypatch.setitem(told, kind, {**told.get(kind, {}), attribute: None})


def test_the_numbers_of_blocks_do_not_tell_states_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = replace(BY_NAME["preemption"], requests="a")
    fewer = explore(ReferenceTarget(), scope)
    told: Any = scheduler_states._APART
    monkeypatch.setitem(told, "KVCacheBlock", {})
    more = explore(ReferenceTarget(), scope)
    assert more.closed
    assert fewer.states < more.states


def test_an_arrival_that_is_refused_is_no_transition() -> None:
    served = tuple(one for one in WHOLE.arrivals if one.prompt < 4)
    with_refused = explore(ReferenceTarget(), WHOLE)
    without = explore(ReferenceTarget(), replace(WHOLE, arrivals=served))
    assert with_refused.transitions == without.transitions


def test_requests_that_come_again_in_a_trace_have_names_of_their_own() -> None:
    scope = replace(BY_NAME["order of eviction"], requests="a")
    found = explore(
        ReferenceTarget(), scope, fault="evicts_newest_first", until={"EC-7"}.issubset
    ).broken["EC-7"]
    names = [one.request for one in found[1].events if isinstance(one, Add)]
    assert names == ["a", "a2", "a3"]


def test_a_scheduler_with_connectors_is_refused() -> None:
    config = msgspec.structs.replace(CHUNKS.config, kv_connector="recompute")
    with pytest.raises(HostError, match="with connectors"):
        explore(ReferenceTarget(), replace(CHUNKS, config=config))


def test_an_item_that_would_enlarge_the_cache_is_no_scope() -> None:
    with pytest.raises(ValueError, match="an item of 2 is larger"):
        replace(CHUNKS, config=msgspec.structs.replace(CHUNKS.config, capacity=1))


@pytest.mark.full
def test_a_release_decides_every_transition_as_the_reference_does(newest: HostTarget) -> None:
    """What it breaks, the reference with its decisions breaks, by the same shortest trace."""
    scope = BY_NAME["whole items and a drafter"]
    with closing(resolve("reference@0.33.0", report=print)) as decisions:
        assert isinstance(decisions, ReferenceTarget)
        traces = list(traces_of(decisions, scope))
        examined = [
            examine(trace, result, newest, decisions)
            for trace, result in zip(traces, newest.run(traces), strict=True)
        ]
        _, shortest = explore(decisions, scope).broken["SC-4"]
        last = traces[-50:]
        stopped = zip(last, newest.run(last, "stops"), strict=True)  # red twin
        assert all(examine(*one, newest, decisions).difference for one in stopped)
    assert len(traces) > 400
    assert all(one.illegal is None and one.difference is None for one in examined)
    broken = [trace for trace, one in zip(traces, examined, strict=True) if one.violations]
    assert {contract for one in examined for contract in one.violations} == {"SC-4"}
    assert broken[0] == shortest


def test_a_listed_fault_of_a_scheduler_is_told_by_its_kind() -> None:
    with closing(resolve("reference@0.33.0", report=print)) as decisions:
        assert isinstance(decisions, ReferenceTarget)
        report = ExploreReport(Task("reference@0.33.0", "scheduler", (WHOLE,)), decisions.release)
        report.explorations.append(explore(decisions, WHOLE))
        for contract, exploration in report.broken.items():
            violation, trace = exploration.broken[contract]
            kind = violation.kind
            found = found_in(decisions, trace, contract, kind=kind, batches=0, times=2)
            assert found is not None
            report.findings.append(found)
    assert set(report.broken) == {"LV-1", "LV-2"}
    assert report.broken["LV-1"].broken["LV-1"][0].kind == "whole items"
    report.annotate(fault_folders.load())
    named = {one.contract: one.fault for one in report.findings}
    assert named == {"LV-1": "whole-item-sparse", "LV-2": "whole-item-sparse"}


def test_a_contract_that_no_scope_judges_has_no_row() -> None:
    assert UNJUDGED.isdisjoint(Task("reference", "scheduler", SMALL).contracts(None))
    assert not any(follows(one.header.config, is_decoder=False) for one in (*SMALL, *LARGE))


@pytest.mark.parametrize("variant", variants("scheduler"), ids=lambda one: one.name)
def test_every_faulty_scheduler_of_the_gallery_can_be_explored(variant: Variant) -> None:
    """In full they are explored below, which takes minutes."""
    found = explore(target_of(variant), CHUNKS, fault=variant.fault, transitions_max=50)
    assert found.transitions >= 50 or found.closed


def test_a_cache_of_another_size_than_configured_is_judged_by_its_own() -> None:
    variant = VARIANT["scheduler-has-a-slot-too-many"]
    found = explore(target_of(variant), CHUNKS, fault=variant.fault, transitions_max=1)
    assert found.broken.keys() == {"SC-21"}


@pytest.mark.full
def test_every_contract_holds_and_every_faulty_scheduler_of_the_gallery_is_refuted() -> None:
    report = run([Task("reference", "scheduler", SMALL)])[0]
    rows = {row.contract: row for row in report.evidence()}
    assert {row.outcome for row in rows.values()} == {Outcome.HOLDS}
    assert {one for one, row in rows.items() if not row.counts} == {"EC-8b", "EC-10", "EC-11"}
    assert all(report.excuse(one) for one in report.unshown)
    assert report.unrefuted == []
    twins = {twin.name for several in report.twins.values() for twin in several}
    assert {variant.name for variant in variants("scheduler")} <= twins
    assert rows["SC-1a"].subject == "Scheduler"
    assert all(each.closed for each in report.explorations)
