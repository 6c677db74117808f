"""What is asked, judged and told once for many transitions comes to what it comes to each time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.search.explore import judged, symmetry
from cacheproof.differential.search.explore.explored import Steps
from cacheproof.differential.search.explore.scheduler_scopes import SMALL as SCHEDULERS
from cacheproof.differential.search.explore.scope import Scope
from cacheproof.differential.search.explore.scopes import SMALL
from cacheproof.differential.search.explore.search import Exploration, _Search, explore
from cacheproof.differential.search.gallery.kill_matrix import VARIANTS, target_of
from cacheproof.differential.targets.reference import ReferenceTarget

BY_NAME = {(scope.subject, scope.name): scope for scope in (*SMALL, *SCHEDULERS)}
ORDER = BY_NAME["encoder_cache", "order of eviction"]
TINY = replace(ORDER, capacity=1, compute_budget=1, prompts=ORDER.prompts[:2])
SCHEDULER = BY_NAME["scheduler", "a cached item"]
VARIANT = {variant.name: variant for variant in VARIANTS}


def found(exploration: Exploration) -> Any:
    """All that an exploration comes to, but the time that it takes."""
    return replace(exploration, seconds=0.0), exploration.broken


class _Forgetful(dict[Any, Any]):
    """Has each step judged again."""

    def get(self, key: Any, default: Any = None) -> Any:
        return default


class _Blurred(dict[Any, Any]):
    """Takes steps for one before which the judge knew something else."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)


def judging(scope: Scope, known: dict[Any, Any], target: Any = None, fault: Any = None) -> Any:
    """What comes of a scope when steps that were judged are kept in `known`."""
    search = _Search(target or ReferenceTarget(), scope, fault)
    search._judged = known
    return found(search.run(5_000, lambda broken: False))


@pytest.mark.parametrize("scope", [TINY, SCHEDULER], ids=lambda one: one.subject)
def test_a_step_that_is_judged_each_time_comes_to_the_same(scope: Scope) -> None:
    assert judging(scope, _Forgetful()) == judging(scope, {})


def test_a_step_that_breaks_a_contract_is_found_as_early() -> None:
    variant = VARIANT["newest-evicted-first"]
    target, fault = target_of(variant), variant.fault
    assert judging(ORDER, {}, target, fault) == judging(ORDER, _Forgetful(), target, fault)


def test_steps_that_are_taken_for_one_and_are_not_are_noticed() -> None:
    """Red twin of judging once."""
    with pytest.raises(HarnessError, match="do not add up"):
        judging(ORDER, _Blurred())


def ask_twice(target: Any, scope: Scope, fault: Any, states_max: int) -> None:
    """Ask each of the first states of a scope for its steps twice; the answers are the same."""
    explorer = target.explorer(scope.header, scope.alphabet, fault)
    steps, state = Steps(explorer), 0
    while state < min(len(steps.trees), states_max):
        known = steps.of(state)
        explorer.submit([state])
        again = explorer.collect()
        assert [number for step in known for number in step] == again.steps[0]
        assert (again.records, again.trees) == ([], [])
        state += 1


@pytest.mark.parametrize("scope", [TINY, SCHEDULER], ids=lambda one: one.subject)
def test_a_state_that_is_asked_for_again_has_the_same_steps(scope: Scope) -> None:
    ask_twice(ReferenceTarget(), scope, None, 1_000)


def test_what_a_fault_keeps_is_put_back_with_the_state() -> None:
    variant, scope = VARIANT["scheduler-keeps-drafts"], BY_NAME["scheduler", "a drafter"]
    ask_twice(target_of(variant), scope, variant.fault, 300)


def test_steps_of_another_state_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red twin of asking once."""
    honest = Steps.of
    monkeypatch.setattr(Steps, "of", lambda steps, state: honest(steps, max(0, state - 1)))
    with pytest.raises(HarnessError):
        explore(ReferenceTarget(), ORDER)


def test_a_record_that_is_taken_for_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red twin of sending each record once."""
    honest = Steps.of

    def shifted(steps: Steps, state: int) -> Iterator[tuple[int, int, int]]:
        return ((event, max(0, record - 1), after) for event, record, after in honest(steps, state))

    monkeypatch.setattr(Steps, "of", shifted)
    with pytest.raises(HarnessError):
        explore(ReferenceTarget(), ORDER)


def test_parts_that_are_taken_for_one_and_are_not_lose_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Red twin of telling each part once."""
    honest, whole = symmetry.as_bytes, explore(ReferenceTarget(), TINY)
    monkeypatch.setattr(symmetry, "as_bytes", lambda tree: honest(tree)[:12])
    assert explore(ReferenceTarget(), TINY).states < whole.states


def test_what_a_judge_knew_and_is_not_put_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red twin of what is kept: without the claims that requests have made."""
    honest = judged._ghost
    monkeypatch.setattr(judged, "_ghost", lambda *parts: honest((), *parts[1:]))
    with pytest.raises(HarnessError):
        explore(ReferenceTarget(), ORDER)


def test_why_a_contract_is_broken_is_told_for_the_break_that_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variant = VARIANT["newest-evicted-first"]
    target, fault = target_of(variant), variant.fault
    once = explore(target, ORDER, fault=fault, transitions_max=3_000)
    told = property(lambda evaluator: frozenset(), lambda evaluator, names: None)
    monkeypatch.setattr(Evaluator, "explained", told, raising=False)
    each_time = explore(target, ORDER, fault=fault, transitions_max=3_000)
    assert found(once) == found(each_time)
    assert all(violation.why for violation, _ in once.broken.values())
