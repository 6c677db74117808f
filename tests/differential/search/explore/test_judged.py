"""A judge is put back into all that it knew, and what it knew has one number."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from cacheproof.differential.judges.examination import judge_of
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.requests import JudgedRequest
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.judges.scheduler_position import Arrivals, SchedulerPosition
from cacheproof.differential.search.explore import judged
from cacheproof.differential.search.explore.judged import Knowledge
from cacheproof.differential.search.explore.scheduler_scopes import SMALL
from cacheproof.differential.search.explore.symmetry import Symmetry
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.scheduler_records import Standing

SCOPE, TARGET = SMALL[0], ReferenceTarget()
ARRIVAL = Add("a", 3, (Item("x", 0, 1),))


def position() -> SchedulerPosition:
    """A position that differs from a new one in everything."""
    return SchedulerPosition(
        state=EncoderCacheState(2, 1, 2, {"x": 1}, {"x": frozenset("a")}, {"x": 1}, ("w",)),
        in_flight=[{"a": 1}, {}],
        ghost=Ghost(
            needed={"x": {"a"}},
            idle_since={"w": 1, "v": 0},
            size={"x": 1},
            stored={"x": 1},
            debits={("a", 0): 1},
            steps_since_encode={"x": 0},
            claimed_end={"a": {"x": 1}},
            _clock=2,
        ),
        requests={"a": JudgedRequest(ARRIVAL, TARGET.protocol)},
        encoded={"x": 1},
        gathered={"x"},
        evicting={"a"},
        allocating={"a"},
        arrivals=Arrivals({"a": ARRIVAL}, {"a"}),
        running={"a"},
        prompts={"a": 3},
        claims={"a": {0}},
        dropped={"w"},
        paused=True,
        pending={"x"},
        in_vain={"a"},
        stood=Standing(("a",), (), 1, 2, 2),
        steps_without_token=1,
        preempted={"a"},
        withheld={"a": frozenset({0})},
        present={"a"},
        ran=["a"],
        drafted=[{"a": 1}],
    )


def at(moment: SchedulerPosition) -> tuple[SchedulerJudge, Knowledge]:
    """A judge at that position, and what is to keep what it knows."""
    trace = Trace(SCOPE.header, ())
    judge = judge_of(trace, None, TARGET.protocol, None, Reachability())
    assert isinstance(judge, SchedulerJudge)
    knowledge = Knowledge(judge, Symmetry([{}]))
    judge.go_to(moment)
    return judge, knowledge


def told(moment: Any) -> Mapping[str, Any]:
    return {field.name: getattr(moment, field.name) for field in fields(moment)}


def differing(one: Any, other: Any) -> set[str]:
    return {name for name, value in told(one).items() if value != told(other)[name]}


def test_a_judge_is_put_back_into_all_that_it_knew() -> None:
    judge, knowledge = at(position())
    before = judge.position()
    number = knowledge.keep("a".__eq__)
    judge.go_to(SchedulerPosition(before.state, []))
    knowledge.put_back(number)
    assert judge.position() is not before
    assert differing(judge.position(), before) == set()
    assert knowledge.keep("a".__eq__) == number


def test_a_field_that_is_new_is_in_the_position_of_these_tests() -> None:
    judge, _ = at(position())
    new = SchedulerPosition(judge._initial_state(), [])
    assert differing(new, position()) == set(told(new))
    assert differing(new.ghost, position().ghost) == set(told(new.ghost))
    assert differing(new.arrivals, position().arrivals) == set(told(new.arrivals))


@pytest.mark.parametrize("name", ["_of_ghost", "_of_scheduler"])
def test_what_is_not_kept_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red twin: in the place of its first part nothing is kept."""
    honest: Any = getattr(judged, name)
    monkeypatch.setattr(judged, name, lambda *given: ((), *honest(*given)[1:]))
    judge, knowledge = at(position())
    before = judge.position()
    knowledge.put_back(knowledge.keep("a".__eq__))
    assert len(differing(judge.position(), before)) == 1


def test_moments_count_by_their_order() -> None:
    later = position()
    later.ghost.idle_since, later.ghost._clock = {"w": 70, "v": 40}, 100
    _, knowledge = at(position())
    number = knowledge.keep("a".__eq__)
    knowledge._judge.go_to(later)
    assert knowledge.keep("a".__eq__) == number
    later = position()
    later.ghost.idle_since = {"w": 0, "v": 1}
    knowledge._judge.go_to(later)
    assert knowledge.keep("a".__eq__) != number
