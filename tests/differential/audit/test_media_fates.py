"""What became of an item that was taken for sent, by what both halves recorded."""

from collections.abc import Iterator

import pytest

from cacheproof.differential.audit.processed_media import PATIENCE_SECONDS, MediaAudit
from cacheproof.differential.audit.streams import Gap, Numbered, Part
from cacheproof.differential.recording.messages import (
    HOW,
    SCHEMA,
    ItemSent,
    ItemsReceived,
    MediaForgotten,
    Message,
    Opened,
    Raised,
)
from cacheproof.reference.releases import NEWEST

Told = tuple[str, Message]
NAME, DATA, ADDRESS = map(HOW.index, ("name", "data", "address"))
CLEARED = MediaForgotten(0, None)


def sent(item: str, how: int = DATA, error: str = "") -> Told:
    return "sender", ItemSent(0, item, how, error)


def came(*items: tuple[str, int], lacking: tuple[str, ...] = (), error: str = "") -> Told:
    failed = error or "MultiModalCacheMissError" * bool(lacking)
    return "receiver", ItemsReceived(0, list(items), list(lacking), failed)


def opened(store: str) -> Iterator[Told]:
    for role in ("sender", "receiver"):
        told = Opened(SCHEMA, role, "", NEWEST, 1, 0, 0.0, True, settings={"store": store})
        yield role, told


def kinds(*told: Told | tuple[str, Part], store: str = "lru") -> list[tuple[str, str]]:
    """What an audit says of these, recorded a second apart."""
    audit, found = MediaAudit(), []
    for now, (role, message) in enumerate([*opened(store), *told]):
        part = message if isinstance(message, Gap) else Numbered(now, message)  # type: ignore[arg-type]
        found += audit.feed(role, part, NEWEST, float(now))
    found += audit.end()
    return [(one.violation.contract.id, one.violation.kind) for one in found]


X, XN, LACKS = ("x", DATA), ("x", NAME), came(("x", NAME), lacking=("x",))


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ((sent("x"), sent("x", NAME), LACKS, came(X)), "overtaken"),
        ((sent("x"), sent("x", NAME), LACKS), "never sent"),
        ((sent("x"), came(X), sent("x", NAME), LACKS), "though nothing was lost"),
        ((sent("x"), came(X), ("receiver", CLEARED), sent("x", NAME), LACKS), "emptied alone"),
        (
            (sent("y"), sent("x"), came(X), came(("y", DATA)), sent("x", NAME), LACKS),
            "evicted",
        ),
        (
            (sent("y"), sent("x"), came(X, ("y", DATA)), sent("x", NAME), LACKS),
            "of items in two orders",
        ),
        (
            (sent("x"), came(X), came(("rows", DATA)), sent("x", NAME), LACKS),
            "of what the front end leaves out",
        ),
        (
            (sent("x"), sent("y"), came(X, ("y", DATA)), sent("x", NAME), LACKS),
            "though nothing was lost",
        ),
        ((sent("x"), came(X, lacking=("x",))), "though its data came"),
        (
            (sent("x"), came(X, error="RuntimeError"), sent("x", NAME), LACKS),
            "of a request that failed",
        ),
    ],
)
def test_why_an_item_is_not_there(told: tuple[Told, ...], kind: str) -> None:
    assert ("PM-2", kind) in kinds(*told)


def test_what_both_halves_agree_on_breaks_nothing() -> None:
    reset = ("receiver", CLEARED), ("sender", CLEARED)
    again = sent("x"), came(X), sent("x", NAME), came(XN)
    assert kinds(*again, *reset, *again) == []


def test_data_that_is_sent_again_is_not_taken_for_what_was_lost() -> None:
    told = ("sender", MediaForgotten(0, "x")), sent("x"), came(X)
    assert kinds(sent("x"), sent("x", NAME), LACKS, *told) == [("PM-2", "never sent")]


def test_nobody_waits_for_ever_to_be_told_that_data_never_came() -> None:
    audit = MediaAudit()
    for role, message in [*opened("lru"), sent("x"), sent("x", NAME), LACKS]:
        assert list(audit.feed(role, Numbered(0, message), NEWEST, 1.0)) == []  # type: ignore[arg-type]
    later = Numbered(0, ItemSent(0, "y", DATA))
    (found,) = audit.feed("sender", later, NEWEST, 2.0 + PATIENCE_SECONDS)
    assert (found.violation.kind, found.time) == ("never sent", 1.0)


@pytest.mark.parametrize(
    "gap", [Gap("a block is torn"), Raised(0, "recording", "ValueError", "on purpose", [])]
)
def test_after_a_gap_nothing_is_said_of_what_came_before(gap: Part | Message) -> None:
    audit = MediaAudit()
    for role, message in [*opened("lru"), sent("x"), came(X), ("sender", gap), LACKS]:
        part = message if isinstance(message, Gap) else Numbered(0, message)  # type: ignore[arg-type]
        assert list(audit.feed(role, part, NEWEST, 1.0)) == []
    assert len(audit.gaps) == 1 + isinstance(gap, Gap)  # that a recording ended is told elsewhere
    assert "who sent it" in audit.gaps[-1]


@pytest.mark.parametrize(
    ("told", "kind"),
    [((), "though nothing was reset"), ((("sender", CLEARED),), "after a reset")],
)
def test_an_address_that_is_another_s(told: tuple[Told, ...], kind: str) -> None:
    read = came(("x", ADDRESS), error="ValueError")
    assert kinds(sent("x", ADDRESS), *told, read, store="shm") == [("PM-8", kind)]


@pytest.mark.parametrize(
    ("error", "kind"),
    [("ValueError", "one too large"), ("AssertionError", "together too large")],
)
def test_a_front_end_that_has_no_room(error: str, kind: str) -> None:
    assert kinds(sent("x"), came(X), sent("x", NAME, error)) == [("PM-3", kind)]


def audited(*told: Told, store: str = "lru") -> MediaAudit:
    audit = MediaAudit()
    for now, (role, message) in enumerate([*opened(store), *told]):
        list(audit.feed(role, Numbered(now, message), NEWEST, float(now)))  # type: ignore[arg-type]
    list(audit.end())
    return audit


@pytest.mark.parametrize(
    ("told", "store"),
    [
        ((sent("x"), came(X), sent("x", NAME, "TypeError")), "lru"),
        ((sent("x"), came(X, error="RuntimeError")), "lru"),
        ((sent("x"), came(X), ("sender", CLEARED), sent("x", NAME, "AssertionError")), "lru"),
        ((sent("x", NAME, "TypeError"),), "shm"),
    ],
)
def test_a_failure_of_another_cause_is_not_explained(told: tuple[Told, ...], store: str) -> None:
    audit = audited(*told, store=store)
    assert (audit.failed, list(audit.explained)) == (1, [])
    assert any(one.startswith("why media are refused") for one in audit.unjudged)


def test_each_request_that_lacks_an_item_is_explained_once() -> None:
    both = came(("x", NAME), ("y", NAME), lacking=("x", "y"))
    told = sent("x"), sent("y"), sent("x", NAME), sent("y", NAME), both, came(X), came(("y", DATA))
    audit = audited(*told)
    assert (audit.failed, len(audit.explained)) == (1, 1)


def test_what_was_never_sent_stays_so() -> None:
    audit, found = MediaAudit(), []
    parts = [*opened("lru"), sent("x"), *[sent("x", NAME), LACKS] * 3]
    times = [0, 0, 0, 1, 1, 30, 30, 100, 100]
    for now, (role, message) in zip(times, parts, strict=True):
        found += audit.feed(role, Numbered(0, message), NEWEST, float(now))  # type: ignore[arg-type]
    found += audit.end()
    assert [one.violation.kind for one in found] == ["never sent"] * 3


def test_what_is_lost_before_a_reset_hides_nothing_after_it() -> None:
    reset = ("sender", CLEARED), ("receiver", CLEARED)
    then = sent("x"), came(X), sent("x", NAME), LACKS
    assert kinds(sent("y"), *reset, *then) == [("PM-2", "though nothing was lost")]
    alone = sent("x"), came(X), ("receiver", CLEARED), sent("x", NAME), LACKS
    assert kinds(sent("x"), *reset, *alone) == [("PM-2", "emptied alone")]


def test_a_message_that_comes_twice_disturbs_nothing() -> None:
    told = sent("x"), came(X), came(X), sent("x", NAME), LACKS
    assert kinds(*told) == [("PM-2", "though nothing was lost")]


def test_the_reset_of_a_start_is_none() -> None:
    read = came(("x", ADDRESS), error="ValueError")
    told = ("sender", CLEARED), ("receiver", CLEARED), sent("x", ADDRESS), read
    assert kinds(*told, store="shm") == [("PM-8", "though nothing was reset")]
