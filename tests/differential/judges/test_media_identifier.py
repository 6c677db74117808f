"""The judge of names: which items meet, what breaks which contract, and of which kind."""

import pytest

from cacheproof.differential.judges.media_identifier import judge_of
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.media_identifier import (
    MediaIdentifierConfig,
    MediaIdentifierEvent,
    MediaIdentifierHeader,
    NamedItem,
    NameItems,
    RestartEngine,
)
from cacheproof.differential.traces.records import Raised, StepRecord
from cacheproof.differential.traces.trace import Trace

ON = MediaIdentifierConfig()
BESIDE_A_STORE = MediaIdentifierConfig(external_store=True)
OF_TWO_SETTINGS = MediaIdentifierConfig(external_store=True, settings=(0, 1))
UNCACHED = MediaIdentifierConfig(processor_cache=False, prefix_caching=False)
UNCACHED_BESIDE_A_STORE = MediaIdentifierConfig(False, False, external_store=True)
WITH_ADAPTERS = MediaIdentifierConfig(adapters_reach=True)
CAT, DOG = NamedItem(0), NamedItem(1)
AGAIN = RestartEngine()


def one(item: NamedItem, request: str = "r", **where: int | str) -> NameItems:
    return NameItems(request, (item,), **where)  # type: ignore[arg-type]


def broken(
    config: MediaIdentifierConfig, *told: tuple[MediaIdentifierEvent, str]
) -> set[tuple[str, str]]:
    """What is broken where each request's only item is called so."""
    events = tuple(event for event, _ in told)
    trace = Trace(MediaIdentifierHeader(SCHEMA, config), events)
    judge = judge_of(trace, None, Protocol(), Reachability())
    for number, (event, called) in enumerate(told):
        outcome = {"identifiers": [called]} if isinstance(event, NameItems) else {}
        judge.judge(number, event, StepRecord(outcome, [], None, None))
    return set(judge.by_kind)


@pytest.mark.parametrize(
    ("config", "first", "between", "second", "kind"),
    [
        (ON, one(CAT), (), one(DOG, "s"), "of another request"),
        (ON, one(CAT), (), one(DOG), "of one request's id"),
        (ON, one(CAT), (), one(DOG, server=1), "of another server"),
        (ON, one(CAT), (), one(DOG, engine=1), ""),
        (BESIDE_A_STORE, one(CAT), (), one(DOG, engine=1), "of another engine"),
        (ON, one(CAT), (AGAIN,), one(DOG), ""),
        (BESIDE_A_STORE, one(CAT), (AGAIN,), one(DOG), "of before a restart"),
        (ON, one(CAT), (), one(CAT, options=1), "with other options"),
        (OF_TWO_SETTINGS, one(CAT), (), one(CAT, engine=1), "with other settings"),
        (OF_TWO_SETTINGS, one(CAT, options=1), (), one(CAT, engine=1, options=1), ""),
        (
            OF_TWO_SETTINGS,
            one(NamedItem(0, "u")),
            (),
            one(NamedItem(0, "u", "audio"), engine=1),
            "with other settings",
        ),
        (ON, one(CAT), (), one(NamedItem(1, "x")), "with a client's id"),
        (ON, one(CAT), (), one(NamedItem(0, "x")), ""),
        (
            WITH_ADAPTERS,
            one(NamedItem(0, "u"), adapter="a"),
            (),
            one(NamedItem(0, "u", "audio"), adapter="b"),
            "with a client's id",
        ),
        (ON, one(CAT), (), one(NamedItem(None, "x")), "with a client's id"),
        (ON, one(NamedItem(0, "u")), (), one(NamedItem(1, "u")), ""),
        (ON, one(NamedItem(0, "u")), (), one(NamedItem(1, "u", "audio")), ""),
        (ON, one(NamedItem(0, "u")), (), one(NamedItem(1, "v")), "with a client's id"),
        (ON, one(CAT), (), one(CAT, adapter="a"), ""),
        (WITH_ADAPTERS, one(CAT), (), one(CAT, adapter="a"), "with another adapter"),
        (ON, one(CAT), (), one(NamedItem(0, None, "audio"), "s"), "of another request"),
    ],
)
def test_items_that_are_told_apart_and_meet_may_not_be_called_alike(
    config: MediaIdentifierConfig,
    first: NameItems,
    between: tuple[RestartEngine, ...],
    second: NameItems,
    kind: str,
) -> None:
    told = [(first, "x"), *((event, "") for event in between), (second, "x")]
    assert broken(config, *told) == ({("ID-1", kind)} if kind else set())
    apart = [(first, "x"), *((event, "") for event in between), (second, "y")]
    assert {contract for contract, _ in broken(config, *apart)} <= {"ID-2"}


@pytest.mark.parametrize(
    ("config", "item", "kind"),
    [
        (ON, CAT, "by its content"),
        (UNCACHED, CAT, ""),
        (UNCACHED_BESIDE_A_STORE, CAT, "by its content"),
        (ON, NamedItem(0, "u"), "by a client's id"),
        (UNCACHED, NamedItem(0, "u"), "by a client's id"),
    ],
)
def test_one_item_is_called_one_thing_where_anybody_looks_for_it(
    config: MediaIdentifierConfig, item: NamedItem, kind: str
) -> None:
    assert broken(config, (one(item), "x"), (one(item), "y")) == (
        {("ID-2", kind)} if kind else set()
    )
    assert broken(config, (one(item), "x"), (one(item), "x")) == set()


def test_what_an_engine_tells_its_processor_and_a_request_does_is_one_thing() -> None:
    by_engine, by_request = one(CAT, engine=1), one(CAT, options=1)
    told = (by_engine, "x"), (by_request, "y")
    assert broken(OF_TWO_SETTINGS, *told) == {("ID-2", "with other settings")}


def test_an_id_that_is_an_earlier_identifier_is_that_text() -> None:
    """As a number, and as the text that the number stands for."""
    known = (one(NamedItem(0, "u")), "u")
    for uuid in (0, "u"):
        assert broken(ON, known, (one(NamedItem(1, uuid)), "u")) == set()
        assert broken(ON, known, (one(NamedItem(1, uuid)), "v")) == {("ID-2", "by a client's id")}


@pytest.mark.parametrize(
    "record",
    [
        StepRecord({"raises": "ValueError"}, [], None, None),
        StepRecord(None, [], Raised("ValueError", "no"), None),
    ],
)
def test_who_asks_for_nothing_wrong_is_named(record: StepRecord) -> None:
    trace = Trace(MediaIdentifierHeader(SCHEMA, ON), (one(CAT),))
    judge = judge_of(trace, None, Protocol(), Reachability())
    judge.judge(0, one(CAT), record)
    assert set(judge.by_kind) == {("ID-3", "ValueError")}


def test_a_picture_among_more_than_its_model_processes_alike_is_another() -> None:
    many = NameItems("s", (CAT, CAT))
    events: tuple[MediaIdentifierEvent, ...] = (one(CAT), many)
    for model, kinds in {"h2ovl": {("ID-1", "among more pictures")}, "deepseek_vl2": set()}.items():
        config = MediaIdentifierConfig(model=model)  # type: ignore[arg-type]
        trace = Trace(MediaIdentifierHeader(SCHEMA, config), events)
        judge = judge_of(trace, None, Protocol(), Reachability())
        for number, count in enumerate((1, 2)):
            outcome = {"identifiers": ["#1"] * count}
            judge.judge(number, events[number], StepRecord(outcome, [], None, None))
        assert set(judge.by_kind) == kinds
