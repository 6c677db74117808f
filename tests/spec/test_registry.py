"""The register is complete, and refuses what would make its table lie."""

import re
from typing import Any, get_args

import pytest

import cacheproof.spec.block_hash
import cacheproof.spec.encoder_cache
import cacheproof.spec.encoder_decoder_cache
import cacheproof.spec.engine
import cacheproof.spec.entry_table
import cacheproof.spec.manager_calls
import cacheproof.spec.worker_mirror  # noqa: F401  (importing a component registers its contracts)
from cacheproof.spec import registry
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.registry import (
    ANY_CALL,
    BEGIN,
    WHOLE_EVENT,
    WITHDRAWAL,
    Component,
    Kind,
    by_id,
    contracts,
)


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A register that forgets what the test registers."""
    monkeypatch.setattr(registry, "_CONTRACTS", dict(registry._CONTRACTS))


def free_is_positive(s: EncoderCacheState) -> bool:
    return s.free_slots >= 0


def register(id: str = "XX-1", **settings: EncoderCacheState) -> Any:
    rule = getattr(Component("x"), settings.pop("kind", "state"))
    return rule(id, "safety", "A title", source="x", **settings)(free_is_positive)


def missing(ids: list[str]) -> list[str]:
    """Ids that are left out: those of two letters are numbered from 1 on."""
    numbers: dict[str, set[int]] = {}
    for id in ids:
        letters, number = re.fullmatch(r"([A-Z]{2})-(\d+)[a-z]?", id).groups()  # type: ignore[union-attr]
        numbers.setdefault(letters, set()).add(int(number))
    return [
        f"{letters}-{number}"
        for letters, there in numbers.items()
        for number in sorted({*range(1, max(there))} - there)
    ]


def test_no_number_is_left_out() -> None:
    assert missing([rule.id for rule in contracts()]) == []


def test_a_number_that_is_left_out_is_found() -> None:
    assert missing(["EC-1", "EC-3a", "ED-1"]) == ["EC-2"]


def test_every_contract_says_what_an_auditor_asks() -> None:
    for rule in contracts():
        assert rule.title[0].isupper(), rule.id
        assert not rule.title.endswith("."), rule.id
        assert rule.source, rule.id
        assert rule.kind in get_args(Kind), rule.id
        assert rule.harm in ("safety", "liveness", "efficiency"), rule.id
        assert rule.calls <= ANY_CALL | WHOLE_EVENT | WITHDRAWAL | BEGIN, rule.id


def test_titles_are_told_apart_within_a_component() -> None:
    titles = [(rule.component, rule.title) for rule in contracts()]
    assert len(set(titles)) == len(titles)


def test_contracts_are_chosen_by_manager_and_release() -> None:
    chosen = {rule.id[:2] for rule in contracts("encoder_cache")}
    assert chosen == {"EC", "WM", "CP"}
    before_sharing = {rule.id for rule in contracts("encoder_cache", "0.10.1.1")}
    assert "EC-3" in before_sharing
    assert "EC-2" not in before_sharing
    assert list(contracts("encoder_decoder_cache", "0.11.0")) == [
        by_id("WM-2"),
        by_id("WM-3"),
        by_id("WM-4"),
    ]


def test_an_id_is_given_once(scratch: None) -> None:
    register()
    with pytest.raises(ValueError, match="XX-1 is registered twice"):
        register()


def test_the_decorated_function_is_returned_unchanged(scratch: None) -> None:
    assert register() is free_is_positive
    assert by_id("XX-1").predicate is free_is_positive
    assert by_id("XX-1").parameters == ("s",)


@pytest.mark.parametrize("settings", [{"kind": "transition"}, {"calls": {"can"}}])
def test_transition_contracts_and_only_they_name_calls(
    scratch: None, settings: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="transitions and promises, and only they, name calls"):
        register(**settings)


def test_an_unknown_id_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        by_id("EC-99")
