"""What the shipped list says of its faults."""

import re
from typing import Any

import pytest

from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault, Symptom
from cacheproof.reference.releases import MODELLED, within
from cacheproof.spec.registry import contracts
from cacheproof.spec.versions import Versions, release_key

FAULTS = load()
KIND = re.compile("(safety|liveness|efficiency)(, narrow)?(: .|; |$)")


def untold(fault: KnownFault) -> list[str]:
    """What a reader is not told of a fault."""
    said = {
        "title": fault.title, "harm": fault.harm, "needs": fault.needs, "avoid": fault.avoid,
        "runner": fault.runner, "upstream": fault.upstream, "seen": fault.seen or fault.mended_in,
    }  # fmt: skip
    return [name for name, text in said.items() if not text]


def test_a_listed_fault_says_what_it_does_where_and_how_to_avoid_it() -> None:
    assert {fault.name: untold(fault) for fault in FAULTS if untold(fault)} == {}
    assert [fault.name for fault in FAULTS if not KIND.match(fault.harm)] == []
    assert {rule for fault in FAULTS for rule in fault.breaks} <= {rule.id for rule in contracts()}


def test_what_is_not_told_is_found() -> None:
    assert untold(KnownFault("it", "t", "safety", needs="n", avoid="a", runner="r")) == [
        "upstream", "seen",
    ]  # fmt: skip


def contradictions(fault: KnownFault) -> list[str]:
    """Releases of which a fault says two things: of seen, read, not run; or mended and there."""
    said = [*within(fault.seen), *within(fault.as_read), *within(fault.not_run)]
    twice = [one for one in dict.fromkeys(said) if said.count(one) > 1]
    if fault.mended_in is None:
        return twice
    mended = [one for one in MODELLED if release_key(one) >= release_key(fault.mended_in)]
    there = {*within(fault.seen), *within(fault.as_read)}
    symptoms = [Versions(one.releases) for one in fault.symptom]
    return twice + [one for one in mended if one in there or any(one in of for of in symptoms)]


def test_of_a_release_a_fault_says_one_thing() -> None:
    assert {fault.name: contradictions(fault) for fault in FAULTS if contradictions(fault)} == {}


@pytest.mark.parametrize(
    "facts",
    [
        {"seen": "0.33.0", "not_run": "0.32.0 to 0.33.0"},
        {"seen": "0.33.0", "mended_in": "0.33.0"},
        {"mended_in": "0.33.0", "symptom": (Symptom("EC-6", "all"),)},
    ],
)
def test_two_things_that_are_said_of_a_release_are_found(facts: dict[str, Any]) -> None:
    assert contradictions(KnownFault("it", "a title", "safety", **facts)) == ["0.33.0"]


def unshown(fault: KnownFault) -> bool:
    """Whether a search must meet a fault again, and nothing says on which releases."""
    return bool(fault.again) and not (fault.seen or fault.symptom)


def test_what_must_be_met_again_is_of_releases_that_have_it() -> None:
    assert [fault.name for fault in FAULTS if unshown(fault)] == []
    assert unshown(KnownFault("it", "a title", "safety", again=("encoder cache",)))


def test_a_fault_has_causes_or_symptoms_or_says_what_it_breaks() -> None:
    for fault in FAULTS:
        assert not (fault.breaks and (fault.cause or fault.symptom)), fault.name
        assert fault.contracts or fault.traces or fault.engines or fault.command or fault.page
