"""Faults to plant on the target's side of the pipe, by name: canaries that a search must find.

A fault patches one manager instance of any release by replacing bound methods, before the recorder
wraps them; what it counts it keeps on the instance, with all else that the manager holds. It says
nothing to the harness: if the search is blind, the fault goes unnoticed.
"""

from collections.abc import Callable
from typing import Any

from ..by_name import breaks, by_name

Fault = Callable[[Any], None]


def nothing(manager: Any) -> None:
    """No fault: the canary that must be reported missed."""


@breaks("EC-1")
@breaks("ED-5", kind="as an item is debited")
def leaks_a_slot(manager: Any) -> None:
    """An allocation loses a slot for ever."""

    def lose(answer: Any, request: Any, input_id: int) -> None:
        if manager.num_free_slots > 0:
            manager.num_free_slots -= 1
            if hasattr(manager, "num_freeable_slots"):
                manager.num_freeable_slots -= 1

    _after(manager, "allocate", lose)


@breaks("EC-2")
def miscounts_freeable(manager: Any) -> None:
    """An allocation is not debited from the freeable slots."""

    def forget(answer: Any, request: Any, input_id: int) -> None:
        manager.num_freeable_slots += 1

    _after(manager, "allocate", forget)


@breaks("EC-3", "ED-1")
def overdraws(manager: Any) -> None:
    """An allocation leaves fewer than no free slots."""

    def overdraw(answer: Any, request: Any, input_id: int) -> None:
        manager.num_free_slots -= manager.cache_size + 1

    _after(manager, "allocate", overdraw)


@breaks("EC-4")
def keeps_hits_queued(manager: Any) -> None:
    """A hit on an idle entry leaves it in the eviction queue."""
    check = manager.check_and_update_cache

    def patched(request: Any, input_id: int) -> bool:
        queue = dict(manager.freeable)
        hit: bool = check(request, input_id)
        _refill(manager.freeable, queue)
        return hit

    manager.check_and_update_cache = patched


@breaks("EC-5")
def books_what_nobody_encoded(manager: Any) -> None:
    """An allocation brings a second entry into the ledger, which nothing encodes."""

    def book(answer: Any, request: Any, input_id: int) -> None:
        manager.cached["nobody"] = {0} if hasattr(manager, "has_cache") else {"nobody"}

    _after(manager, "allocate", book)


@breaks("EC-6")
def evicts_what_is_held(manager: Any) -> None:
    """The end of a step evicts an entry that requests hold."""
    drain = manager.get_freed_mm_hashes

    def patched() -> Any:
        held = [identifier for identifier, holders in manager.cached.items() if holders]
        for identifier in held[:1]:
            _forget(manager, identifier)
        return drain()

    manager.get_freed_mm_hashes = patched


@breaks("EC-6a")
def forgets_the_holder(manager: Any) -> None:
    """An allocation does not note who holds the entry."""

    def forget(answer: Any, request: Any, input_id: int) -> None:
        manager.cached[_identifier(request, input_id)].discard(request.request_id)

    _after(manager, "allocate", forget)


@breaks("EC-14")
@breaks("SC-6", kind="after the end")
def frees_nothing(manager: Any) -> None:
    """The end of a request releases nothing."""
    manager.free = lambda request: None


@breaks("EC-7")
def evicts_newest_first(manager: Any) -> None:
    """An entry that becomes idle goes to the front of the eviction queue."""
    release = manager.free_encoder_input

    def patched(request: Any, input_id: int) -> None:
        identifier = _identifier(request, input_id)
        was_idle = identifier in manager.freeable
        release(request, input_id)
        if identifier in manager.freeable and not was_idle:
            size = manager.freeable.pop(identifier)
            _refill(manager.freeable, {identifier: size, **manager.freeable})

    manager.free_encoder_input = patched


@breaks("EC-8a")
def evicts_one_more(manager: Any) -> None:
    """An admission evicts an entry more than it takes."""

    def evict(answer: Any, *arguments: Any) -> None:
        if answer and manager.freeable:
            identifier = next(iter(manager.freeable))
            manager.num_free_slots += manager.freeable.pop(identifier)
            _forget(manager, identifier)

    _after(manager, "can_allocate", evict)


@breaks("EC-15")
def grants_without_room(manager: Any) -> None:
    """An admission does not credit what it evicts."""
    can_allocate = manager.can_allocate

    def patched(*arguments: Any) -> Any:
        free = manager.num_free_slots
        granted = can_allocate(*arguments)
        manager.num_free_slots = free
        return granted

    manager.can_allocate = patched


@breaks("EC-9", "WM-3", "ED-3")
def loses_notices(manager: Any) -> None:
    """The worker is never told what to drop."""
    drain = _drain(manager)

    def patched() -> list[Any]:
        drain()
        return []

    _set_drain(manager, patched)


@breaks("EC-10")
def credits_again(manager: Any) -> None:
    """Releasing what the request does not hold credits a slot."""
    release = manager.free_encoder_input

    def patched(request: Any, input_id: int) -> None:
        held = request.request_id in manager.cached.get(_identifier(request, input_id), ())
        release(request, input_id)
        if not held:
            manager.num_freeable_slots += 1

    manager.free_encoder_input = patched


@breaks("ED-2")
def credits_decoder_again(manager: Any) -> None:
    """Releasing an encoder-decoder item that is not debited credits a slot."""
    manager.debited = set()

    def debit(answer: Any, request: Any, input_id: int) -> None:
        manager.debited.add((request.request_id, input_id))

    def credit(answer: Any, request: Any, input_id: int) -> None:
        if (request.request_id, input_id) not in manager.debited:
            manager.num_free_slots += 1
        manager.debited.discard((request.request_id, input_id))

    _after(manager, "allocate", debit)
    _after(manager, "free_encoder_input", credit)


@breaks("EC-11")
def refusal_leaves_a_reference(manager: Any) -> None:
    """A refused admission leaves the request among the holders of an entry."""

    def refer(answer: Any, request: Any, input_id: int, *arguments: Any) -> None:
        if answer:
            return
        if hasattr(manager, "has_cache"):
            manager.cached.setdefault(request.request_id, set()).add(input_id)
        else:
            for holders in list(manager.cached.values())[:1]:
                holders.add(request.request_id)

    _after(manager, "can_allocate", refer)


@breaks("EC-12", "ED-6")
def refuses_now_and_then(manager: Any) -> None:
    """Every third admission is refused whether it fits or not."""
    admit = manager.can_allocate
    manager.asked = 0

    def patched(*arguments: Any) -> bool:
        manager.asked += 1
        return bool(admit(*arguments)) and manager.asked % 3 != 0

    manager.can_allocate = patched


@breaks("EC-8b")
def refuses_after_evicting(manager: Any) -> None:
    """An admission that evicted is refused all the same."""
    admit = manager.can_allocate

    def patched(*arguments: Any) -> bool:
        before = len(manager.freed)
        return bool(admit(*arguments)) and len(manager.freed) == before

    manager.can_allocate = patched


@breaks("EC-13", "ED-4")
def raises_now_and_then(manager: Any) -> None:
    """Every seventh release raises."""
    manager.released = 0

    def count(answer: Any, request: Any, input_id: int) -> None:
        manager.released += 1
        if manager.released % 7 == 0:
            raise KeyError(input_id)

    _after(manager, "free_encoder_input", count)


@breaks("WM-1")
def reports_what_is_resident(manager: Any) -> None:
    """The worker is told to drop an entry that stays resident."""
    drain = _drain(manager)

    def patched() -> list[Any]:
        freed = list(drain())
        for key, members in list(manager.cached.items())[:1]:
            freed += [(key, min(members))] if hasattr(manager, "has_cache") else [key]
        return freed

    _set_drain(manager, patched)


@breaks("WM-2")
def hits_what_is_absent(manager: Any) -> None:
    """Every third look-up that misses is answered as a hit."""
    name = "has_cache" if hasattr(manager, "has_cache") else "check_and_update_cache"
    check = getattr(manager, name)
    manager.missed = 0

    def patched(request: Any, input_id: int) -> bool:
        if check(request, input_id):
            return True
        manager.missed += 1
        return bool(manager.missed % 3 == 0)

    setattr(manager, name, patched)


@breaks("EC-16")
def misses_what_is_resident(manager: Any) -> None:
    """Every third look-up of a resident entry is answered as a miss."""
    check = manager.check_and_update_cache
    manager.looked_up = 0

    def patched(request: Any, input_id: int) -> bool:
        manager.looked_up += _identifier(request, input_id) in manager.cached
        return bool(check(request, input_id)) and manager.looked_up % 3 != 0

    manager.check_and_update_cache = patched


@breaks("EC-17")
def tells_a_size_of_the_absent(manager: Any) -> None:
    """Of an entry that is absent, the size that is told is none at all: 0."""
    tell = getattr(manager, "get_cached_num_encoder_embeds", None)
    if tell is not None:
        manager.get_cached_num_encoder_embeds = lambda *given: tell(*given) or 0


@breaks("EC-18", "ED-7")
def leaves_an_input_out(manager: Any) -> None:
    """Of the inputs that a request may release the first is not told."""
    ask = manager.get_cached_input_ids
    manager.get_cached_input_ids = lambda request: set(sorted(ask(request))[1:])


@breaks("WM-4")
def reports_what_it_just_encoded(manager: Any) -> None:
    """The worker is told to drop what it encodes in the same step."""
    allocate, drain = manager.allocate, _drain(manager)
    manager.encoded = []

    def patched_allocate(request: Any, input_id: int) -> None:
        allocate(request, input_id)
        if hasattr(manager, "has_cache"):
            manager.encoded.append((request.request_id, input_id))
        else:
            manager.encoded.append(_identifier(request, input_id))

    def patched_drain() -> list[Any]:
        freed = [*drain(), *manager.encoded]
        manager.encoded.clear()
        return freed

    manager.allocate = patched_allocate
    _set_drain(manager, patched_drain)


FAULTS: dict[str, Fault] = by_name(
    nothing,
    leaks_a_slot,
    miscounts_freeable,
    overdraws,
    keeps_hits_queued,
    books_what_nobody_encoded,
    evicts_what_is_held,
    forgets_the_holder,
    frees_nothing,
    evicts_newest_first,
    evicts_one_more,
    grants_without_room,
    loses_notices,
    credits_again,
    credits_decoder_again,
    refusal_leaves_a_reference,
    refuses_now_and_then,
    refuses_after_evicting,
    raises_now_and_then,
    reports_what_is_resident,
    hits_what_is_absent,
    misses_what_is_resident,
    tells_a_size_of_the_absent,
    leaves_an_input_out,
    reports_what_it_just_encoded,
)


def _after(manager: Any, name: str, then: Callable[..., None]) -> None:
    """Let `then(answer, *arguments)` run after a method of this instance."""
    method = getattr(manager, name)

    def patched(*arguments: Any) -> Any:
        answer = method(*arguments)
        then(answer, *arguments)
        return answer

    setattr(manager, name, patched)


def _identifier(request: Any, input_id: int) -> str:
    """The key of an item's entry: `mm_features` hold it, in older releases `mm_hashes`."""
    features = getattr(request, "mm_features", None)
    key: str = request.mm_hashes[input_id] if features is None else features[input_id].identifier
    return key


def _drain(manager: Any) -> Callable[[], Any]:
    return getattr(manager, "get_freed_mm_hashes", None) or manager.get_freed_ids


def _set_drain(manager: Any, drain: Callable[[], Any]) -> None:
    name = "get_freed_mm_hashes" if hasattr(manager, "get_freed_mm_hashes") else "get_freed_ids"
    setattr(manager, name, drain)


def _forget(manager: Any, identifier: str) -> None:
    """Take an entry out of the ledger and report it; newer releases keep its size as well."""
    del manager.cached[identifier]
    getattr(manager, "num_embeds_by_hash", {}).pop(identifier, None)
    manager.freed.append(identifier)


def _refill(mapping: Any, items: dict[str, int]) -> None:
    mapping.clear()
    mapping.update(items)
