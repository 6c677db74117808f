"""Faults in how salts keep requests apart: what block keys are made of is another salt than the
request's own. Each changes how a scheduler's requests are made; a runner's prompts stay as they
are, so that its tags say whose KV is read.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...protocol import Event

if TYPE_CHECKING:
    from cacheproof.reference.scheduled_request import ScheduledRequest

Make = Callable[[Event, float], "ScheduledRequest"]
"""A function that makes a request of an event and its time of arrival."""


def _told(make: Make, salt_of: Callable[[Event], str | None]) -> Make:
    return lambda event, at: make({**event, "salt": salt_of(event)}, at)


def forgets_salts(make: Make) -> Make:
    """Keys are made without any salt."""
    return _told(make, lambda event: None)


def has_one_salt(make: Make) -> Make:
    """All salts are taken for one."""
    return _told(make, lambda event: event["salt"] and "tenant")


def keeps_the_beginning_of_a_salt(make: Make) -> Make:
    """Salts with one beginning are taken for one."""
    return _told(make, lambda event: event["salt"] and event["salt"][:3])


def takes_none_for_a_salt(make: Make) -> Make:
    """A request without a salt is taken for one of the first tenant's."""
    return _told(make, lambda event: event["salt"] or "tenant 1")


def takes_a_salt_for_none(make: Make) -> Make:
    """Requests of the first tenant are taken to have no salt."""
    return _told(make, lambda event: None if event["salt"] == "tenant 1" else event["salt"])


def takes_the_salt_of_who_came_before(make: Make) -> Make:
    """A request has the salt of the one that arrived before it."""
    salts: list[str | None] = [None]

    def late(event: Event) -> str | None:
        salts.append(event["salt"])
        return salts[-2]

    return _told(make, late)


def keeps_the_first_salt_of_a_prompt(make: Make) -> Make:
    """A prompt has the salt with which it was asked first."""
    first: dict[str, str | None] = {}
    return _told(
        make,
        lambda event: first.setdefault(f"{event['prompt']} {event['items']}", event["salt"]),
    )


def salts_each_request(make: Make) -> Make:
    """Requests of one salt share nothing."""
    return _told(make, lambda event: event["salt"] and f"{event['salt']} {event['request']}")


def salts_items(make: Make) -> Make:
    """An item has another identifier under each salt, in the encoder cache too."""

    def salted(event: Event) -> Event:
        items = [
            {**one, "identifier": f"{event['salt']} {one['identifier']}"} for one in event["items"]
        ]
        return event if event["salt"] is None else {**event, "items": items}

    return lambda event, at: make(salted(event), at)


def leaves_the_first_block_unsalted(make: Make) -> Make:
    """The first block has the key that it has without a salt, those after it their own."""

    def made(event: Event, at: float) -> "ScheduledRequest":
        request = make(event, at)
        request.block_hashes[:1] = make({**event, "salt": None}, at).block_hashes[:1]
        return request

    return made


SALT_FAULTS: dict[str, Callable[[Make], Make]] = by_name(
    forgets_salts,
    has_one_salt,
    keeps_the_beginning_of_a_salt,
    takes_none_for_a_salt,
    takes_a_salt_for_none,
    takes_the_salt_of_who_came_before,
    keeps_the_first_salt_of_a_prompt,
    salts_each_request,
    salts_items,
    leaves_the_first_block_unsalted,
)
