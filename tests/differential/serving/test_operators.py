"""An operator beside a server that is none: what it asks for, in which order."""

import time

from cacheproof.differential.serving.operators import OPERATIONS, Operation, Operator
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
        first, *then = operation.calls
        assert then == ["resume"] * first.startswith("pause") + ["wake_up"] * first.startswith(
            "sleep"
        )
