"""Faults to plant in the front ends of any release that name items: canaries that a search must
find. A fault makes another namer of one."""

import itertools
from collections.abc import Callable, Sequence

from ..by_name import breaks, by_name
from ..vllm_objects.media_names import Item, Name, Namer

NOW_AND_THEN = 2
Fault = Callable[[Namer], Name]


def nothing(namer: Namer) -> Name:
    """No fault."""
    return namer.name


@breaks("ID-1", kind="with another adapter")
def forgets_adapters(namer: Namer) -> Name:
    """An item has one identifier under all adapters."""
    return lambda request, items, adapter, options: namer.name(request, items, None, options)


@breaks("ID-1", kind="with other options")
def forgets_options(namer: Namer) -> Name:
    """An item has one identifier whatever its processor is told."""
    return lambda request, items, adapter, options: namer.name(request, items, adapter, 0)


@breaks("ID-1", kind="of another request")
def names_by_place(namer: Namer) -> Name:
    """Items are called by their places in a request."""
    return lambda request, items, adapter, options: [str(at) for at in range(len(items))]


@breaks("ID-1", kind="of one request's id")
def names_by_request(namer: Namer) -> Name:
    """Items are called by the id of their request, and their places in it."""

    def name(request: str, items: Sequence[Item], adapter: str | None, options: int) -> list[str]:
        return [f"{request}-{at}" for at in range(len(items))]

    return name


@breaks("ID-1", kind="with a client's id")
def takes_ids_as_they_are(namer: Namer) -> Name:
    """A client's id is the identifier."""

    def name(request: str, items: Sequence[Item], adapter: str | None, options: int) -> list[str]:
        named = namer.name(request, items, adapter, options)
        return [item.uuid or own for item, own in zip(items, named, strict=True)]

    return name


@breaks("ID-1", kind="of before a restart")
@breaks("ID-1", kind="of another engine")
@breaks("ID-1", kind="of another server")
@breaks("ID-2", kind="by its content")
@breaks("ID-2", kind="by a client's id")
def counts_items(namer: Namer) -> Name:
    """Each item of a life has the next number for an identifier."""
    numbers = itertools.count()
    return lambda request, items, adapter, options: [str(next(numbers)) for _ in items]


@breaks("ID-3", kind="ValueError")
def refuses_now_and_then(namer: Namer) -> Name:
    """Every second request is refused."""
    calls = itertools.count(1)

    def name(request: str, items: Sequence[Item], adapter: str | None, options: int) -> list[str]:
        if next(calls) % NOW_AND_THEN == 0:
            raise ValueError("no identifier")
        return namer.name(request, items, adapter, options)

    return name


MEDIA_IDENTIFIER_FAULTS: dict[str, Fault] = by_name(
    nothing,
    forgets_adapters,
    forgets_options,
    names_by_place,
    names_by_request,
    takes_ids_as_they_are,
    counts_items,
    refuses_now_and_then,
)
