"""What is kept of a scheduler's state: what never changes by itself, all else by its content."""

import io
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from cacheproof.differential.targets.host.scheduler import states
from cacheproof.differential.targets.host.scheduler.states import _Dumper, _Loader


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Frozen:
    held: Any


@dataclass(frozen=True, eq=False)
class FrozenByName:
    held: Any


def put_back(value: Any) -> Any:
    kept: dict[int, object] = {}
    target = io.BytesIO()
    _Dumper(target, kept).dump([value])
    (back,) = _Loader(io.BytesIO(target.getvalue()), kept).load()
    return back


@pytest.mark.parametrize("value", [Colour.RED, Frozen((1, "a")), Frozen(Colour.RED), lambda: 1])
def test_what_never_changes_is_put_back_itself(value: Any) -> None:
    assert put_back(value) is value


@pytest.mark.parametrize("value", [[1], {"a": {1}}, Frozen([1]), Frozen(Frozen({1: 2}))])
def test_what_can_change_is_put_back_as_it_was(value: Any) -> None:
    back = put_back(value)
    assert back == value
    assert back is not value


def test_a_record_without_equality_says_nothing_of_what_it_holds() -> None:
    value = FrozenByName([1])
    assert put_back(value).held is not value.held


def test_a_record_that_is_kept_and_can_change_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red twin: what a state is put back into has changed since."""
    monkeypatch.setattr(states, "_is_hashable", lambda value: True)
    value = Frozen([1])
    back = put_back(value)
    value.held.append(2)
    assert back.held == [1, 2]
