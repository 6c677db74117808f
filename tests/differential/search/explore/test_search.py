"""The search meets every state of a scope, once, and by a shortest trace."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.search.explore.scope import Scope
from cacheproof.differential.search.explore.scopes import SMALL
from cacheproof.differential.search.explore.search import Exploration, _Search, explore
from cacheproof.differential.search.gallery.kill_matrix import VARIANTS, target_of
from cacheproof.differential.targets.host.protocol import HostError
from cacheproof.differential.targets.host.scheduler.recorder import Recorder
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.encoder_cache import EncoderCacheManager
from tests.differential.search.explore.shortest import judge_shortest
from tests.differential.search.explore.steps import step
from tests.differential.targets.reference_process import ReferenceProcess

BY_NAME = {(scope.subject, scope.name): scope for scope in SMALL}
ORDER = BY_NAME["encoder_cache", "order of eviction"]
REPEATED = BY_NAME["encoder_cache", "repeated item"]
TINY = replace(ORDER, capacity=1, compute_budget=1, prompts=ORDER.prompts[:2])
VARIANT = {variant.name: variant for variant in VARIANTS}


def sizes(exploration: Exploration) -> tuple[int, int, bool]:
    return exploration.states, exploration.transitions, exploration.closed


def test_the_reference_closes_a_scope_and_breaks_nothing() -> None:
    exploration = explore(ReferenceTarget(), ORDER)
    assert sizes(exploration) == (1010, 5013, True)
    assert exploration.broken == {}
    assert exploration.reach == "closed: 3 identifiers x 2 requests x capacity 2, 1,010 states"


def test_a_process_is_explored_as_what_is_in_this_one() -> None:
    target = ReferenceProcess()
    there, here = explore(target, TINY), explore(ReferenceTarget(), TINY)
    target.close()
    assert sizes(there) == sizes(here)
    assert there.source == here.source


def test_a_process_that_is_left_in_the_middle_can_be_explored_again() -> None:
    target = ReferenceProcess()
    explore(target, ORDER, fault="evicts_one_more", until=bool)
    assert sizes(explore(target, TINY)) == sizes(explore(ReferenceTarget(), TINY))
    target.close()


def test_renaming_makes_fewer_states_of_the_same_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    with_names = explore(ReferenceTarget(), TINY)
    monkeypatch.setattr(Scope, "renamings", ({name: name for name in "abwx"},))
    without = explore(ReferenceTarget(), TINY)
    assert with_names.states * 2 < without.states < with_names.states * 4
    assert without.closed


def test_states_that_a_random_walk_comes_by_have_all_been_met() -> None:
    """The walk keeps to names that are free, as the search does; it knows no symmetry."""
    scope = replace(REPEATED, requests="a")
    met = explored_keys(scope)
    random = Random(1)
    for _ in range(20):
        search = _Search(ReferenceTarget(), scope, None)
        state = search._level[0]
        for _ in range(40):
            search._met.clear()
            step(search, state)
            assert search._keys <= met
            state = random.choice(search._level)


def explored_keys(scope: Scope) -> set[bytes]:
    search = _Search(ReferenceTarget(), scope, None)
    search.run(None, lambda broken: False)
    keys: set[bytes] = search._keys
    return keys


@pytest.mark.parametrize(
    ("variant", "scope", "contract", "events"),
    [
        ("first-occurrence-releases", "repeated item", "EC-6a", 4),
        ("newest-evicted-first", "order of eviction", "EC-7", 9),
        ("hits-the-departed", "refused behind a hit", "WM-2", 9),
        ("decoder-credits-every-release", "sizes", "ED-1", 2),
    ],
)
def test_a_shortest_trace_breaks_the_contract_with_its_last_event(
    variant: str, scope: str, contract: str, events: int
) -> None:
    where = BY_NAME[VARIANT[variant].manager, scope]
    judge_shortest(VARIANT[variant], where, contract, events)


def test_a_search_that_is_cut_off_says_how_long_the_traces_are_that_it_covered() -> None:
    exploration = explore(ReferenceTarget(), ORDER, transitions_max=100)
    assert not exploration.closed
    assert exploration.reach.startswith(f"up to {exploration.events} events: 3 identifiers")
    assert 100 <= exploration.transitions < 500


def test_an_event_that_raises_ends_its_trace() -> None:
    target = target_of(VARIANT["second-release-raises"])
    exploration = explore(target, TINY)
    assert set(exploration.broken) == {"EC-13"}
    assert exploration.closed


class _Opaque(EncoderCacheManager):
    """Holds what cannot be put back."""

    def __init__(self, cache_size: int, semantics: Any = None) -> None:
        super().__init__(cache_size, semantics)
        self.waiting: Iterator[int] = (number for number in ())


class _Foreign(EncoderCacheManager):
    """Holds what no tree can say."""

    def __init__(self, cache_size: int, semantics: Any = None) -> None:
        super().__init__(cache_size, semantics)
        self.held = Exception()


@pytest.mark.parametrize(
    ("manager", "words"), [(_Opaque, "generator"), (_Foreign, "holds a Exception")]
)
def test_a_manager_that_cannot_be_put_back_is_refused_by_name(manager: Any, words: str) -> None:
    target = ReferenceTarget(managers={"encoder_cache": manager})
    with pytest.raises(HostError, match=words):
        explore(target, ORDER)


def test_deltas_that_do_not_add_up_are_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red twin: records that leave a change out are noticed."""
    honest = Recorder._delta

    def forgetful(recorder: Recorder) -> Any:
        delta = honest(recorder)
        return delta and (*delta[:3], None, delta[4])

    monkeypatch.setattr(Recorder, "_delta", forgetful)
    with pytest.raises(HarnessError, match="do not add up"):
        explore(ReferenceTarget(), ORDER)


def test_a_scope_without_what_a_fault_needs_closes_and_misses_it() -> None:
    """Red twin of the scope: without a repeated item, nobody sees when it is released."""
    target = target_of(VARIANT["first-occurrence-releases"])
    elsewhere = explore(target, TINY)
    assert elsewhere.closed
    assert elsewhere.broken == {}
    assert explore(target, REPEATED, until=bool).broken
