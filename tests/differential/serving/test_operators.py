"""An operator beside a server that is none: what it asks for, in which order."""

import time

from cacheproof.differential.serving.operators import OPERATIONS, Operation, Operator, operations_of
from cacheproof.reference.releases import FIRST_MODELLED
from tests.differential.serving.stand_in import replying_to

PAUSE = Operation("paused", ("pause?mode=keep", "resume"))
SECONDS = 30


def operated(status: int, *operations: Operation) -> tuple[Operator, list[str]]:
    """An operator that has done something, and what was posted."""
    with replying_to(lambda path: (status, b"no such thing")) as (url, posted):
        end = time.monotonic() + SECONDS
        with Operator(url, 0, operations) as operator:
            while not operator.done and time.monotonic() < end:
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


def test_weights_are_loaded_again_where_a_release_answers_after_it() -> None:
    reloads = [one for one in OPERATIONS if one.since != FIRST_MODELLED]
    assert [one.name for one in reloads] == ["weights loaded again"]
    assert reloads[0] in operations_of("0.26.0")
    assert reloads[0] not in operations_of("0.25.1")


def test_what_a_call_posts_is_no_part_of_its_path() -> None:
    (_, reload, *_) = OPERATIONS[-1].calls
    operator, posted = operated(200, Operation("loaded", (reload,)))
    assert set(posted) == {"/collective_rpc"}
    assert operator.refused == {}
