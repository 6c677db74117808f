"""Faults to plant on the target's side of the pipe, by name: canaries that a search must find.

A fault patches one manager instance of any release by replacing bound methods, before the recorder
wraps them; what it counts it keeps in the instance's `vars`, with all else that the manager
holds. It says nothing to the harness: if the search is blind, the fault goes unnoticed.
"""

from collections.abc import Callable

from ..by_name import breaks, by_name
from ..vllm_objects.encoder_cache import EncoderCacheManager, Notice, is_per_input
from ..vllm_objects.requests import CachedRequest

Fault = Callable[[EncoderCacheManager], None]


def nothing(manager: EncoderCacheManager) -> None:
    """No fault: the canary that must be reported missed."""


@breaks("EC-1")
@breaks("ED-5", kind="as an item is debited")
def leaks_a_slot(manager: EncoderCacheManager) -> None:
    """An allocation loses a slot for ever."""

    def lose(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        if manager.num_free_slots > 0:
            manager.num_free_slots -= 1
            if hasattr(manager, "num_freeable_slots"):
                manager.num_freeable_slots -= 1

    _after(manager, "allocate", lose)


@breaks("EC-2")
def miscounts_freeable(manager: EncoderCacheManager) -> None:
    """An allocation is not debited from the freeable slots."""

    def forget(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        manager.num_freeable_slots += 1

    _after(manager, "allocate", forget)


@breaks("EC-3", "ED-1")
def overdraws(manager: EncoderCacheManager) -> None:
    """An allocation leaves fewer than no free slots."""

    def overdraw(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        manager.num_free_slots -= manager.cache_size + 1

    _after(manager, "allocate", overdraw)


@breaks("EC-4")
def keeps_hits_queued(manager: EncoderCacheManager) -> None:
    """A hit on an idle entry leaves it in the eviction queue."""
    check = manager.check_and_update_cache

    def patched(request: CachedRequest, input_id: int) -> bool:
        queue = dict(manager.freeable)
        hit = check(request, input_id)
        _refill(manager.freeable, queue)
        return hit

    manager.check_and_update_cache = patched


@breaks("EC-5")
def books_what_nobody_encoded(manager: EncoderCacheManager) -> None:
    """An allocation brings a second entry into the ledger, which nothing encodes."""

    def book(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        if is_per_input(manager):
            manager.cached["nobody"] = {0}
        else:
            manager.cached["nobody"] = {"nobody"}

    _after(manager, "allocate", book)


@breaks("EC-6")
def evicts_what_is_held(manager: EncoderCacheManager) -> None:
    """The end of a step evicts an entry that requests hold."""
    drain = manager.get_freed_mm_hashes

    def patched() -> list[Notice]:
        held = [identifier for identifier, holders in manager.cached.items() if holders]
        for identifier in held[:1]:
            _forget(manager, identifier)
        return drain()

    manager.get_freed_mm_hashes = patched


@breaks("EC-6a")
def forgets_the_holder(manager: EncoderCacheManager) -> None:
    """An allocation does not note who holds the entry."""

    def forget(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        manager.cached[_identifier(request, input_id)].discard(request.request_id)

    _after(manager, "allocate", forget)


@breaks("EC-14")
@breaks("SC-6", kind="after the end")
def frees_nothing(manager: EncoderCacheManager) -> None:
    """The end of a request releases nothing."""
    manager.free = lambda request: None


@breaks("EC-7")
def evicts_newest_first(manager: EncoderCacheManager) -> None:
    """An entry that becomes idle goes to the front of the eviction queue."""
    release = manager.free_encoder_input

    def patched(request: CachedRequest, input_id: int) -> None:
        identifier = _identifier(request, input_id)
        was_idle = identifier in manager.freeable
        release(request, input_id)
        if identifier in manager.freeable and not was_idle:
            size = manager.freeable.pop(identifier)
            _refill(manager.freeable, {identifier: size, **manager.freeable})

    manager.free_encoder_input = patched


@breaks("EC-8a")
def evicts_one_more(manager: EncoderCacheManager) -> None:
    """An admission evicts an entry more than it takes."""

    def evict(answer: bool | None, request: CachedRequest, input_id: int, *budget: int) -> None:
        if answer and manager.freeable:
            identifier = next(iter(manager.freeable))
            manager.num_free_slots += manager.freeable.pop(identifier)
            _forget(manager, identifier)

    _after(manager, "can_allocate", evict)


@breaks("EC-15")
def grants_without_room(manager: EncoderCacheManager) -> None:
    """An admission does not credit what it evicts."""
    can_allocate = manager.can_allocate

    def patched(request: CachedRequest, input_id: int, *budget: int) -> bool:
        free = manager.num_free_slots
        granted = can_allocate(request, input_id, *budget)
        manager.num_free_slots = free
        return granted

    manager.can_allocate = patched


@breaks("EC-9", "WM-3", "ED-3")
def loses_notices(manager: EncoderCacheManager) -> None:
    """The worker is never told what to drop."""
    drain = _drain(manager)

    def patched() -> list[Notice]:
        drain()
        return []

    _set_drain(manager, patched)


@breaks("EC-10")
def credits_again(manager: EncoderCacheManager) -> None:
    """Releasing what the request does not hold credits a slot."""
    release = manager.free_encoder_input

    def patched(request: CachedRequest, input_id: int) -> None:
        held = request.request_id in manager.cached.get(_identifier(request, input_id), ())
        release(request, input_id)
        if not held:
            manager.num_freeable_slots += 1

    manager.free_encoder_input = patched


@breaks("ED-2")
def credits_decoder_again(manager: EncoderCacheManager) -> None:
    """Releasing an encoder-decoder item that is not debited credits a slot."""
    held = vars(manager)
    held["debited"] = set()

    def debit(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        held["debited"].add((request.request_id, input_id))

    def credit(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        if (request.request_id, input_id) not in held["debited"]:
            manager.num_free_slots += 1
        held["debited"].discard((request.request_id, input_id))

    _after(manager, "allocate", debit)
    _after(manager, "free_encoder_input", credit)


@breaks("EC-11")
def refusal_leaves_a_reference(manager: EncoderCacheManager) -> None:
    """A refused admission leaves the request among the holders of an entry."""

    def refer(answer: bool | None, request: CachedRequest, input_id: int, *budget: int) -> None:
        if answer:
            return
        if is_per_input(manager):
            manager.cached.setdefault(request.request_id, set()).add(input_id)
        else:
            for holders in list(manager.cached.values())[:1]:
                holders.add(request.request_id)

    _after(manager, "can_allocate", refer)


@breaks("EC-12", "ED-6")
def refuses_now_and_then(manager: EncoderCacheManager) -> None:
    """Every third admission is refused whether it fits or not."""
    admit = manager.can_allocate
    counted = vars(manager)
    counted["asked"] = 0

    def patched(request: CachedRequest, input_id: int, *budget: int) -> bool:
        counted["asked"] += 1
        return bool(admit(request, input_id, *budget)) and counted["asked"] % 3 != 0

    manager.can_allocate = patched


@breaks("EC-8b")
def refuses_after_evicting(manager: EncoderCacheManager) -> None:
    """An admission that evicted is refused all the same."""
    admit = manager.can_allocate

    def patched(request: CachedRequest, input_id: int, *budget: int) -> bool:
        before = len(manager.freed)
        return bool(admit(request, input_id, *budget)) and len(manager.freed) == before

    manager.can_allocate = patched


@breaks("EC-13", "ED-4")
def raises_now_and_then(manager: EncoderCacheManager) -> None:
    """Every seventh release raises."""
    counted = vars(manager)
    counted["released"] = 0

    def count(answer: bool | None, request: CachedRequest, input_id: int) -> None:
        counted["released"] += 1
        if counted["released"] % 7 == 0:
            raise KeyError(input_id)

    _after(manager, "free_encoder_input", count)


@breaks("WM-1")
def reports_what_is_resident(manager: EncoderCacheManager) -> None:
    """The worker is told to drop an entry that stays resident."""
    drain = _drain(manager)

    def patched() -> list[Notice]:
        freed = list(drain())
        if is_per_input(manager):
            freed += [(key, min(inputs)) for key, inputs in list(manager.cached.items())[:1]]
        else:
            freed += list(manager.cached)[:1]
        return freed

    _set_drain(manager, patched)


@breaks("WM-2")
def hits_what_is_absent(manager: EncoderCacheManager) -> None:
    """Every third look-up that misses is answered as a hit."""
    name = "has_cache" if hasattr(manager, "has_cache") else "check_and_update_cache"
    check = getattr(manager, name)
    counted = vars(manager)
    counted["missed"] = 0

    def patched(request: CachedRequest, input_id: int) -> bool:
        if check(request, input_id):
            return True
        counted["missed"] += 1
        return bool(counted["missed"] % 3 == 0)

    setattr(manager, name, patched)


@breaks("EC-16")
def misses_what_is_resident(manager: EncoderCacheManager) -> None:
    """Every third look-up of a resident entry is answered as a miss."""
    check = manager.check_and_update_cache
    counted = vars(manager)
    counted["looked_up"] = 0

    def patched(request: CachedRequest, input_id: int) -> bool:
        counted["looked_up"] += _identifier(request, input_id) in manager.cached
        return bool(check(request, input_id)) and counted["looked_up"] % 3 != 0

    manager.check_and_update_cache = patched


@breaks("EC-17")
def tells_a_size_of_the_absent(manager: EncoderCacheManager) -> None:
    """Of an entry that is absent, the size that is told is none at all: 0."""
    tell = getattr(manager, "get_cached_num_encoder_embeds", None)
    if tell is not None:
        manager.get_cached_num_encoder_embeds = lambda *given: tell(*given) or 0


@breaks("EC-18", "ED-7")
def leaves_an_input_out(manager: EncoderCacheManager) -> None:
    """Of the inputs that a request may release the first is not told."""
    ask = manager.get_cached_input_ids
    manager.get_cached_input_ids = lambda request: set(sorted(ask(request))[1:])


@breaks("WM-4")
def reports_what_it_just_encoded(manager: EncoderCacheManager) -> None:
    """The worker is told to drop what it encodes in the same step."""
    allocate, drain = manager.allocate, _drain(manager)
    held = vars(manager)
    held["encoded"] = []

    def patched_allocate(request: CachedRequest, input_id: int) -> None:
        allocate(request, input_id)
        if hasattr(manager, "has_cache"):
            held["encoded"].append((request.request_id, input_id))
        else:
            held["encoded"].append(_identifier(request, input_id))

    def patched_drain() -> list[Notice]:
        freed = [*drain(), *held["encoded"]]
        held["encoded"].clear()
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


def _after(manager: EncoderCacheManager, name: str, then: Callable[..., None]) -> None:
    """Let `then(answer, *arguments)` run after a method of this instance."""
    method = getattr(manager, name)

    def patched(request: CachedRequest, input_id: int, *budget: int) -> bool | None:
        answer: bool | None = method(request, input_id, *budget)
        then(answer, request, input_id, *budget)
        return answer

    setattr(manager, name, patched)


def _identifier(request: CachedRequest, input_id: int) -> str:
    """The key of an item's entry: `mm_features` hold it, in older releases `mm_hashes`."""
    if hasattr(request, "mm_features"):
        return request.mm_features[input_id].identifier
    return request.mm_hashes[input_id]


def _drain(manager: EncoderCacheManager) -> Callable[[], list[Notice]]:
    return getattr(manager, "get_freed_mm_hashes", None) or manager.get_freed_ids


def _set_drain(manager: EncoderCacheManager, drain: Callable[[], list[Notice]]) -> None:
    name = "get_freed_mm_hashes" if hasattr(manager, "get_freed_mm_hashes") else "get_freed_ids"
    setattr(manager, name, drain)


def _forget(manager: EncoderCacheManager, identifier: str) -> None:
    """Take an entry out of the ledger and report it; newer releases keep its size as well."""
    del manager.cached[identifier]
    getattr(manager, "num_embeds_by_hash", {}).pop(identifier, None)
    manager.freed.append(identifier)


def _refill(mapping: dict[str, int], items: dict[str, int]) -> None:
    mapping.clear()
    mapping.update(items)
