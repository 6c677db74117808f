"""How well identities tell faults apart: what is counted, and that the page is what was found."""

import msgspec
import pytest


@pytest.fixture
def rows(script):
    """Two findings of one fault and one of another, of one contract and with one trace."""
    (first, *_) = script.read()
    other = msgspec.structs.replace(first, fault="another-fault")
    return [first, msgspec.structs.replace(first, seed=first.seed + 1), other]


def test_the_page_is_what_the_script_makes_of_the_findings(script) -> None:
    assert script.PAGE.read_text() == script.page(script.read())


def test_two_faults_with_one_identity_are_counted_and_named(script, rows) -> None:
    got = script.score(rows, lambda row: ())
    assert (got.split, got.of_one, got.merged, got.of_two) == (0, 1, 2, 2)
    (line,) = script.mistakes(rows)
    assert "another-fault (1)" in line
    assert line.endswith("have one identity |")


def test_one_fault_with_two_identities_is_counted_and_named(script, rows) -> None:
    shorter = msgspec.structs.replace(rows[1], events=rows[1].events[:1])
    got = script.score([rows[0], shorter], lambda row: len(row.events))
    assert (got.split, got.of_one, got.identities, got.faces) == (1, 1, 2, 1)
    (line,) = script.mistakes([rows[0], shorter])
    assert "has 2 identities" in line


def test_findings_of_two_contracts_are_no_pair(script, rows) -> None:
    other = msgspec.structs.replace(rows[0], contract="XX-1")
    assert script.score([rows[0], other], lambda row: ())[:4] == (0, 0, 0, 0)


def test_the_chosen_shape_does_better_than_events_in_order_and_functions(script) -> None:
    found = script.read()
    chosen, *others = (
        script.score(found, script.SHAPES[name])
        for name in (
            "ingredients (chosen)",
            "events in order, requests and items renamed",
            "functions that the last event calls",
            "kinds of events",
        )
    )
    assert all(chosen.split < other.split for other in others)
