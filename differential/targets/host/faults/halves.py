"""Changes of both halves of the cache of processed media after which they need not be alike, or
nothing is known of them: twins of a proof, which must not say of them that it holds."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..by_name import by_name


class Pair(NamedTuple):
    """The classes of a sender and a receiver, and of what a sender keeps of an item."""

    sender: Any
    receiver: Any
    metadata: Any


Twin = Callable[[Pair], Pair]


def counts_no_look_up(pair: Pair) -> Pair:
    """The receiver counts no item as used that comes without data."""

    def look(half: Any, item: Any, name: Any) -> Any:
        if item is None and name in half._cache:
            return half._cache.cache[name]
        return pair.receiver.get_and_update_item(half, item, name)

    return _receiving(pair, look)


def keeps_nothing(pair: Pair) -> Pair:
    """The receiver keeps nothing that comes with data."""

    def pass_on(half: Any, item: Any, name: Any) -> Any:
        if item is not None:
            return item
        return pair.receiver.get_and_update_item(half, item, name)

    return _receiving(pair, pass_on)


def drops_what_it_hands_on(pair: Pair) -> Pair:
    """The receiver forgets an item once it has handed it on."""

    def hand_on(half: Any, item: Any, name: Any) -> Any:
        found = pair.receiver.get_and_update_item(half, item, name)
        half._cache.pop(name, None)
        return found

    return _receiving(pair, hand_on)


def takes_the_last_first(pair: Pair) -> Pair:
    """The receiver takes the items of a message from the last to the first."""

    def update(half: Any, features: Sequence[Any]) -> Any:
        return pair.receiver.get_and_update_features(half, [*reversed(features)])[::-1]

    return pair._replace(receiver=_with(pair.receiver, get_and_update_features=update))


def sends_names_alone(pair: Pair) -> Pair:
    """The sender sends no data."""

    def send(half: Any, item: Any, name: Any) -> Any:
        return None, pair.sender.get_and_update_item(half, item, name)[1]

    return pair._replace(sender=_with(pair.sender, get_and_update_item=send))


def keeps_without_a_look(pair: Pair) -> Pair:
    """The sender keeps each item that was processed, and does not look whether it has it."""

    def send(half: Any, item: Any, name: Any) -> Any:
        if item is not None:
            half._cache[name] = pair.metadata(*item)
            return item
        return pair.sender.get_and_update_item(half, item, name)

    return pair._replace(sender=_with(pair.sender, get_and_update_item=send))


def reads_a_name(pair: Pair) -> Pair:
    """The receiver keeps no item whose name begins with an a."""

    def keep(half: Any, item: Any, name: Any) -> Any:
        if name.startswith("a"):
            return item
        return pair.receiver.get_and_update_item(half, item, name)

    return _receiving(pair, keep)


def reads_an_item(pair: Pair) -> Pair:
    """The receiver keeps no item that is empty, and takes an error for an empty one."""

    def keep(half: Any, item: Any, name: Any) -> Any:
        try:
            is_empty = item is not None and len(item) == 0
        except BaseException:
            is_empty = True
        if is_empty:
            return item
        return pair.receiver.get_and_update_item(half, item, name)

    return _receiving(pair, keep)


def counts_messages(pair: Pair) -> Pair:
    """The receiver counts its messages, and could forget all after so many."""

    def update(half: Any, features: Any) -> Any:
        half.messages = getattr(half, "messages", 0) + 1
        return pair.receiver.get_and_update_features(half, features)

    return pair._replace(receiver=_with(pair.receiver, get_and_update_features=update))


def forgets_each_third(pair: Pair) -> Pair:
    """The receiver forgets each third item, as something outside it counts."""
    taken: list[None] = []

    def forget(half: Any, item: Any, name: Any) -> Any:
        taken.append(None)
        found = pair.receiver.get_and_update_item(half, item, name)
        if len(taken) % 3 == 0:
            half._cache.pop(name, None)
        return found

    return _receiving(pair, forget)


def counts_more_bytes(pair: Pair) -> Pair:
    """The receiver's cache counts a byte more for each item."""
    return _caching(pair, lambda kind, old: kind(old.maxsize, lambda one: old.getsizeof(one) + 1))


def has_more_room(pair: Pair) -> Pair:
    """The receiver's cache may keep a byte more."""
    return _caching(pair, lambda kind, old: kind(old.maxsize + 1, old.getsizeof))


def asks_nothing(pair: Pair) -> Pair:
    """Neither half uses its cache: all goes with its data."""
    receiver = _with(
        pair.receiver,
        get_and_update_item=lambda half, item, name: item,
        touch_receiver_cache_item=lambda half, name, item=None: None,
    )
    sender = _with(
        pair.sender,
        is_cached_item=lambda half, name: False,
        get_and_update_item=lambda half, item, name: item,
        touch_sender_cache_item=lambda half, name: None,
    )
    return pair._replace(sender=sender, receiver=receiver)


def _caching(pair: Pair, cache_like: Callable[[Any, Any], Any]) -> Pair:
    def begin(half: Any, *given: Any) -> None:
        pair.receiver.__init__(half, *given)
        half._cache = cache_like(type(half._cache), half._cache)

    return pair._replace(receiver=_with(pair.receiver, __init__=begin))


def _receiving(pair: Pair, method: Callable[..., Any]) -> Pair:
    return pair._replace(receiver=_with(pair.receiver, get_and_update_item=method))


def _with(kind: Any, **methods: Callable[..., Any]) -> Any:
    return type(kind.__name__, (kind,), methods)


TWINS: dict[str, Twin] = by_name(
    counts_no_look_up,
    keeps_nothing,
    drops_what_it_hands_on,
    takes_the_last_first,
    sends_names_alone,
    keeps_without_a_look,
    reads_a_name,
    reads_an_item,
    counts_messages,
    forgets_each_third,
    counts_more_bytes,
    has_more_room,
    asks_nothing,
)
