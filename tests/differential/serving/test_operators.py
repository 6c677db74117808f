"""An operator beside a server that is none: what it asks for, in which order."""

import time
from pathlib import Path

import pytest

from cacheproof.differential.serving.operators import (
    LOADS,
    OPERATIONS,
    Load,
    Operation,
    Operator,
    operations_of,
)
from cacheproof.reference.releases import FIRST_MODELLED
from tests.differential.serving.stand_in import replying, replying_to

PAUSE = Operation("paused", ("pause?mode=keep", "resume"))
SECONDS = 30
WEIGHTS = (Path("first"), Path("second"), Path("third"))


def operated(status: int, *operations: Operation) -> tuple[Operator, list[str]]:
    """An operator that has done something, and what was posted."""
    with replying_to(lambda path: (status, b"no such thing")) as (url, posted):
        end = time.monotonic() + SECONDS
        with Operator(url, 0, operations, WEIGHTS) as operator:
            while not (operator.done or operator.refused) and time.monotonic() < end:
                time.sleep(0.01)
    return operator, posted


def test_what_is_begun_is_ended() -> None:
    operator, posted = operated(200, PAUSE)
    assert posted[:2] == ["/pause?mode=keep", "/resume"]
    assert len(posted) == 2 * operator.done["paused"]
    assert operator.refused == {}


def test_what_a_server_will_not_do_is_told() -> None:
    operator, _ = operated(404, PAUSE)
    assert operator.refused == dict.fromkeys(PAUSE.calls, "404: no such thing")


def test_a_server_that_is_gone_is_told() -> None:
    with Operator("http://127.0.0.1:9", 0, (PAUSE,)) as operator:
        end = time.monotonic() + SECONDS
        while not operator.refused and time.monotonic() < end:
            time.sleep(0.01)
    assert "refused" in operator.refused["pause?mode=keep"]


def test_nothing_that_stops_a_server_is_left_so() -> None:
    for operation in OPERATIONS:
        first, last = operation.calls[0], operation.calls[-1]
        goes_on = {"pause": "resume", "sleep": "wake_up"}.get(first.partition("?")[0])
        assert last == (goes_on or first)


def test_weights_are_loaded_where_a_release_answers_after_it() -> None:
    assert [one for one in OPERATIONS if one.since != FIRST_MODELLED] == [LOADS]
    assert LOADS in operations_of("0.26.0")
    assert LOADS not in operations_of("0.25.1")


def test_other_weights_are_loaded_each_time_and_it_is_noted_when() -> None:
    with replying(lambda body: (200, b"")) as (url, sent):
        end = time.monotonic() + SECONDS
        load = Operation("loaded", (LOADS.calls[1],))
        with Operator(url, 0, (load,), WEIGHTS) as operator:
            while len(operator.loads) < 4 and time.monotonic() < end:
                time.sleep(0.01)
    assert operator.refused == {}
    named = [WEIGHTS[one.version] for one in operator.loads]
    told = [{"method": "reload_weights", "kwargs": {"weights_path": str(one)}} for one in named]
    assert sent == told
    befores = [WEIGHTS[0], *named]
    assert all(one != other for one, other in zip(befores, named, strict=False))
    times = [when for one in operator.loads for when in (one.begun, one.ended)]
    assert times == sorted(times)
    assert named


def test_weights_that_a_server_does_not_load_are_not_noted() -> None:
    operator, _ = operated(500, LOADS)
    assert operator.refused[LOADS.calls[1]] == "500: no such thing"
    assert operator.loads == []


@pytest.mark.parametrize(
    ("call", "ends"),
    [
        ("pause?mode=abort", True),
        ("sleep?level=0", True),
        ("pause?mode=wait", False),
        ("reset_mm_cache", False),
    ],
)
def test_it_is_noted_when_requests_are_ended(call: str, ends: bool) -> None:
    begun = time.time()
    operator, _ = operated(200, Operation("one", (call,)))
    assert operator.has_ended(begun, time.time()) is ends
    assert not operator.has_ended(begun - 2, begun - 1)
    assert not operator.has_ended(time.time() + 1, time.time() + 2)


def test_which_weights_a_server_has_when() -> None:
    operator = Operator("", 0)
    assert operator.versions(3.0, 4.0) == [0]
    operator.loads += [Load(2, 10.0, 11.0), Load(1, 20.0, 21.0)]
    assert operator.versions(3.0, 9.0) == [0]
    assert operator.versions(3.0, 10.5) == operator.versions(10.5, 10.6) == [0, 2]
    assert operator.versions(12.0, 19.0) == [2]
    assert operator.versions(12.0, 30.0) == [2, 1]
    assert operator.versions(9.0, 30.0) == [0, 2, 1]
    assert operator.versions(22.0, 30.0) == [1]
