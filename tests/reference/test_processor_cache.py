"""Sender and receiver of processed media, as they are to be and as releases have them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.reference.processor_cache import (
    CacheMiss,
    EvictsForEver,
    LeastRecentlyUsed,
    Message,
    Processed,
    ProcessorOnly,
    Receiver,
    Sender,
)
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.front_end import FrontEndSemantics

NAMES = st.sampled_from("vwxyz")
REQUESTS = st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=20)


def of(release: str) -> FrontEndSemantics:
    return Semantics.of_vllm(release).front_end


def sent(sender: Sender, *names: str, size: int = 1) -> Message:
    return sender.send(names, lambda at: Processed(names[at], size))


def received(receiver: Receiver, message: Message) -> list[str]:
    again = [name for name, _ in message.items]
    return [one.content for one in receiver.receive(message, lambda at: Processed(again[at], 1))]


@given(REQUESTS, st.integers(1, 4), st.sampled_from([None, *MODELLED]))
def test_halves_that_see_the_same_keep_the_same(
    requests: list[list[str]], capacity: int, release: str | None
) -> None:
    semantics = FrontEndSemantics() if release is None else of(release)
    sender, receiver = Sender(capacity, semantics), Receiver(capacity, semantics)
    for names in requests:
        try:
            message = sent(sender, *names)
        except (KeyError, EvictsForEver):
            return  # what was noted of the request is never sent
        assert received(receiver, message) == names
        assert list(sender.cache) == list(receiver.cache)
        assert sender.cache.size == receiver.cache.size == len(list(sender.cache))


@given(st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), st.booleans())))
def test_halves_agree_of_items_of_any_modality_and_of_what_skips_the_front_end(
    requests: list[tuple[list[str], bool]],
) -> None:
    modality = dict(zip("vwxyz", ("video", "image", "audio", "image", "video"), strict=True))
    sender, receiver = Sender(3), Receiver(3)
    for names, skips in requests:
        send = sender.send_unlooked if skips else sender.send
        process = [Processed(name, 1) for name in names].__getitem__
        message = send(names, process, [modality[name] for name in names])
        assert received(receiver, message) == names
        assert list(sender.cache) == list(receiver.cache)


def test_halves_may_take_items_by_modality_in_front_and_in_the_prompts_order_behind() -> None:
    semantics = Semantics.ideal().without("front_end.takes_in_one_order").front_end
    sender, receiver = Sender(3, semantics), Receiver(3, semantics)
    names, modalities = "xyz", ("video", "audio", "image")
    message = sender.send(names, lambda at: Processed(names[at], 1), modalities)
    assert [name for name, _ in message.items] == [*names]
    assert received(receiver, message) == [*names]
    assert list(sender.cache) == ["z", "y", "x"]
    assert list(receiver.cache) == ["x", "y", "z"]


def test_what_skips_the_front_end_may_be_kept_behind_alone() -> None:
    semantics = Semantics.ideal().without("front_end.keeps_what_skips_it").front_end
    sender, receiver = Sender(1, semantics), Receiver(1, semantics)
    received(receiver, sent(sender, "x"))
    received(receiver, sender.send_unlooked("y", lambda at: Processed("y", 1)))
    assert (list(sender.cache), list(receiver.cache)) == (["x"], ["y"])
    assert sent(sender, "x").items[0].item is None  # which the receiver has evicted


@given(REQUESTS, st.integers(1, 4))
def test_a_cache_without_a_counterpart_sends_each_item_with_data(
    requests: list[list[str]], capacity: int
) -> None:
    cache = ProcessorOnly(capacity)
    made: list[str] = []

    def process(name: str) -> Processed:
        made.append(name)
        return Processed(name, 1)

    for names in requests:
        before, kept = len(made), list(cache.caches[0])
        message = cache.send(names, lambda at, names=names: process(names[at]))
        assert [item.content for _, item in message.items if item] == names
        assert not set(made[before:]) & set(kept) or len(set(names)) > capacity
        assert cache.caches[0].size == len(list(cache.caches[0])) <= capacity


@pytest.mark.parametrize("release", [None, MODELLED[-1]])
def test_a_reset_reaches_all_api_servers_and_in_releases_the_one_that_is_called(
    release: str | None,
) -> None:
    cache = ProcessorOnly(4, of(release) if release else None, servers=3)
    for server in range(3):
        cache.send("x", lambda at: Processed("x", 1), server=server)
    cache.clear(1)
    assert [list(one) for one in cache.caches] == [["x"] * bool(release), [], ["x"] * bool(release)]


@given(REQUESTS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_in_whatever_order_messages_come_each_has_its_items(
    requests: list[list[str]], capacity: int, random: object
) -> None:
    sender, receiver = Sender(capacity), Receiver(capacity)
    messages = [(names, sent(sender, *names)) for names in requests]
    random.shuffle(messages)  # type: ignore[attr-defined]
    for names, message in messages[: len(messages) // 2 + 1]:
        assert received(receiver, message) == names
        assert receiver.cache.size <= capacity


def test_what_the_receiver_lacks_is_reported_by_name_and_then_sent_again() -> None:
    sender, receiver = Sender(4, of("0.33.0")), Receiver(4, of("0.33.0"))
    sent(sender, "x")
    sent(sender, "y")
    with pytest.raises(CacheMiss) as miss:
        received(receiver, sent(sender, "x", "y"))
    assert miss.value.names == ("x", "y")
    sender.forget(miss.value.names)
    assert received(receiver, sent(sender, "y", "x")) == ["y", "x"]


def test_up_to_0_27_1_the_first_alone_is_missed_and_what_comes_after_it_is_not_kept() -> None:
    sender, receiver = Sender(4, of("0.27.1")), Receiver(4, of("0.27.1"))
    sent(sender, "x")
    with pytest.raises(CacheMiss) as miss:
        received(receiver, sent(sender, "x", "y"))
    assert miss.value.names == ("x",)
    assert list(receiver.cache) == []


@pytest.mark.parametrize(("release", "raised"), [("0.28.0", ValueError), ("0.29.0", None)])
def test_an_item_larger_than_the_cache(release: str, raised: type[Exception] | None) -> None:
    sender, receiver = Sender(4, of(release)), Receiver(4, of(release))
    if raised is not None:
        with pytest.raises(raised, match="too large"):
            sent(sender, "x", size=5)
        return
    assert received(receiver, sent(sender, "x", size=5)) == ["x"]
    assert list(sender.cache) == list(receiver.cache) == []


@pytest.mark.parametrize(("release", "is_refused"), [("0.11.2", True), ("0.12.0", False)])
def test_a_request_that_fits_may_evict_an_item_of_its_own(release: str, is_refused: bool) -> None:
    sender = Sender(2, of(release))
    sent(sender, "x")
    sent(sender, "y")
    if is_refused:
        with pytest.raises(KeyError, match="x"):
            sent(sender, "z", "x")
    else:
        assert [item is None for _, item in sent(sender, "z", "x").items] == [False, True]


def within(release: str, first: str, last: str) -> bool:
    return MODELLED.index(first) <= MODELLED.index(release) <= MODELLED.index(last)


@pytest.mark.parametrize("release", MODELLED)
def test_up_to_0_23_0_a_touch_counts_as_used_what_is_not_there(release: str) -> None:
    """Before 0.12.0 nothing is touched that may not be there."""
    cache = LeastRecentlyUsed(
        1, lambda size: size, touches_nothing=not of(release).touches_what_is_there
    )
    cache.touch("x")
    cache.put("y", 1)
    assert list(cache) == ["y"]
    if within(release, "0.10.2", "0.23.0"):
        with pytest.raises(EvictsForEver, match="x"):
            cache.put("z", 1)
        with pytest.raises(EvictsForEver):
            cache.clear()
    else:
        cache.put("z", 1)
        assert list(cache) == ["z"]


def test_nothing_of_before_a_reset_is_kept_after_it() -> None:
    sender, receiver = Sender(4), Receiver(4)
    late = sender.send(["x"], lambda at: Processed("old", 1))
    sender.clear()
    receiver.clear()
    new = sender.send(["x"], lambda at: Processed("new", 1))
    assert received(receiver, new) == ["new"]
    assert received(receiver, late) == ["old"]
    assert received(receiver, sent(sender, "x")) == ["new"]
