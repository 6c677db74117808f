"""What the shipped list says of its faults beside their faces."""

import re
from typing import Any

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.search.known import Face, Fault, listed, parse
from cacheproof.reference.releases import MODELLED, within
from cacheproof.spec.registry import contracts
from cacheproof.spec.versions import Versions, release_key

FAULTS = listed()
KIND = re.compile("(safety|liveness|efficiency)(, narrow)?(: .|; |$)|none through an API$")


def untold(fault: Fault) -> list[str]:
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
    assert untold(Fault("it", title="t", harm="h", needs="n", avoid="a", runner="r")) == [
        "upstream", "seen",
    ]  # fmt: skip


def contradictions(fault: Fault) -> list[str]:
    """Releases of which a fault says two things: of seen, read, not run; or mended and there."""
    said = [*within(fault.seen), *within(fault.as_read), *within(fault.not_run)]
    twice = [one for one in dict.fromkeys(said) if said.count(one) > 1]
    if fault.mended_in is None:
        return twice
    mended = [one for one in MODELLED if release_key(one) >= release_key(fault.mended_in)]
    there = {*within(fault.seen), *within(fault.as_read)}
    faces = [Versions(face.releases) for face in fault.face]
    return twice + [one for one in mended if one in there or any(one in face for face in faces)]


def test_of_a_release_a_fault_says_one_thing() -> None:
    assert {fault.name: contradictions(fault) for fault in FAULTS if contradictions(fault)} == {}


@pytest.mark.parametrize(
    "facts",
    [
        {"seen": "0.33.0", "not_run": "0.32.0 to 0.33.0"},
        {"seen": "0.33.0", "mended_in": "0.33.0"},
        {"mended_in": "0.33.0", "face": (Face("EC-6", "all", "safety", "n"),)},
    ],
)
def test_two_things_that_are_said_of_a_release_are_found(facts: dict[str, Any]) -> None:
    assert contradictions(Fault("it", **facts)) == ["0.33.0"]


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        ('seen = "0.33"', "'0.33' is not a modelled release"),
        ('seen = "0.33.0 to 0.32.0"', "expected spans of releases from old to new"),
        ('as_read = "newest"', "'newest' is not a modelled release"),
        ('only = { stop = "0.9" }', "'0.9' is not a modelled release"),
        ('questions = "stop"', "Expected `array | null`"),
        ('switch = "--x"', "unknown field"),
    ],
)
def test_a_spoiled_fact_is_refused_in_one_line(spoiled: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f'[[fault]]\nname = "a-fault"\n{spoiled}\n', "list.toml")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
