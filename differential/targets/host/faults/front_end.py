"""Faults to plant in the caches of processed media of any release, by name: canaries that a search
must find.

A fault patches what a session drives, `Caches`, whose methods are the steps of both halves.
"""

import itertools
from collections.abc import Callable
from typing import Any

from ..by_name import breaks, by_name
from ..vllm_objects.media_caches import Asked, Caches, Lacking, Message

NOW_AND_THEN = 2
Fault = Callable[[Caches], None]


def nothing(caches: Caches) -> None:
    """No fault."""


@breaks("PM-1", kind="of another item")
def hands_on_the_first_for_all(caches: Caches) -> None:
    """All items of a request are handed on as the first of them."""
    receive = caches.receive

    def receive_one(message: Message, worker: int) -> list[str]:
        handed = receive(message, worker)
        return handed[:1] * len(handed)

    caches.receive = receive_one  # type: ignore[method-assign]


@breaks("PM-5")
def forgets_what_it_received(caches: Caches) -> None:
    """Every second message leaves nothing behind in the engine core, and what was there is gone."""
    _after_a_message(caches, lambda: caches.reset("receiver", 0))


@breaks("PM-3", kind="though there is room")
def refuses_now_and_then(caches: Caches) -> None:
    """The front end refuses every second request as too large."""
    process, calls = caches.process, itertools.count(1)

    def process_or_refuse(asked: Asked) -> Any:
        if next(calls) % NOW_AND_THEN == 0:
            raise ValueError("too large")
        return process(asked)

    caches.process = process_or_refuse  # type: ignore[method-assign]


@breaks("PM-4")
def counts_what_is_gone(caches: Caches) -> None:
    """The front end still counts bytes of what it has evicted."""
    state, most = caches.state, [0]

    def counted_at_most() -> list[tuple[list[str], int]]:
        (names, counted), *others = state()
        most[0] = max(most[0], counted)
        return [(names, most[0]), *others]

    caches.state = counted_at_most  # type: ignore[method-assign]


@breaks("PM-6")
def resets_one_half(caches: Caches) -> None:
    """A reset of both caches leaves the front end's as it is."""
    reset = caches.reset

    def reset_one(half: str, server: int) -> None:
        reset("receiver" if half == "both" else half, server)

    caches.reset = reset_one  # type: ignore[method-assign]


@breaks("PM-2", kind="though nothing was lost")
@breaks("PM-2", kind="though its data came")
def lacks_what_it_has(caches: Caches) -> None:
    """The engine core says of every second message that it lacks its items."""
    receive, calls = caches.receive, itertools.count(1)

    def receive_or_lack(message: Message, worker: int) -> list[str]:
        if next(calls) % NOW_AND_THEN == 0:
            raise Lacking(message.asked.names)
        return receive(message, worker)

    caches.receive = receive_or_lack  # type: ignore[method-assign]


@breaks("PM-7", kind="read too often")
def reads_twice(caches: Caches) -> None:
    """A worker reads what it reads a second time."""
    receive = caches.receive

    def receive_again(message: Message, worker: int) -> list[str]:
        receive(message, worker)
        return receive(message, worker)

    caches.receive = receive_again  # type: ignore[method-assign]


@breaks("PM-8", kind="though nothing was reset")
def finds_another_chunk(caches: Caches) -> None:
    """Every second message is read as if another chunk lay where it points."""
    receive, calls = caches.receive, itertools.count(1)

    def receive_or_raise(message: Message, worker: int) -> list[str]:
        if next(calls) % NOW_AND_THEN == 0:
            raise KeyError(message.asked.names[0])
        return receive(message, worker)

    caches.receive = receive_or_raise  # type: ignore[method-assign]


def _after_a_message(caches: Caches, forget: Callable[[], None]) -> None:
    receive, calls = caches.receive, itertools.count(1)

    def receive_and_forget(message: Message, worker: int) -> list[str]:
        handed = receive(message, worker)
        if next(calls) % NOW_AND_THEN == 0:
            forget()
        return handed

    caches.receive = receive_and_forget  # type: ignore[method-assign]


FRONT_END_FAULTS: dict[str, Fault] = by_name(
    nothing,
    hands_on_the_first_for_all,
    forgets_what_it_received,
    refuses_now_and_then,
    counts_what_is_gone,
    resets_one_half,
    lacks_what_it_has,
    reads_twice,
    finds_another_chunk,
)
