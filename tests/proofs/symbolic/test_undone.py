"""The translator with a reading undone is noticed, in a process of its own.

The changes that the kill matrix lists as noticed are asked again of the claim that noticed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cacheproof.proofs.conformance.claims import claims
from cacheproof.proofs.conformance.noticing import parts
from cacheproof.proofs.conformance.undone import MODULES, Undone, undone

RESULTS = Path(__file__).parents[3] / "proofs" / "conformance" / "undone.jsonl"
ALL: dict[str, Undone] = {one.key: one for module in MODULES for one in undone(module)}
NOTICED: dict[str, str] = {
    one["key"]: one["claim"]
    for one in map(json.loads, RESULTS.read_text().splitlines())
    if one["claim"] and one["key"] in ALL
}
LOTS = 60
"""So many lots have all of them, each asked in one process."""
DETACHED = "without detach(run, of, key, state)"
DELETED = "variables that lead into what goes: one whose container is deleted"


def said(asked: list[tuple[str, str]]) -> list[str]:
    """What is complained of first, of each change by its key and a claim by its name."""
    done = subprocess.run(
        [sys.executable, "-m", "cacheproof.proofs.conformance.noticing"],
        input="\n".join("\t".join(one) for one in asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.full
def test_every_change_has_a_name_of_its_own() -> None:
    keys = [one.key for module in MODULES for one in undone(module)]
    assert len(keys) == len(set(keys)) >= 500


@pytest.mark.sample(LOTS)
@pytest.mark.parametrize("first", range(LOTS))
def test_what_was_noticed_is_noticed_again(first: int) -> None:
    asked = sorted(NOTICED.items())[first::LOTS]
    silent = [one for one, words in zip(asked, said(asked), strict=True) if not words]
    assert asked
    assert silent == []


@pytest.mark.full
def test_nothing_is_noticed_where_nothing_is_undone() -> None:
    asked = [("", claim) for claim in sorted({*NOTICED.values()})[::LOTS]]
    assert said(asked) == [""] * len(asked)


def test_what_noticed_is_a_claim_or_a_check_of_parts() -> None:
    assert {*NOTICED.values()} <= {*map(str, claims()), *parts()}


@pytest.mark.full
def test_a_change_is_noticed_by_a_claim_of_its_reading_and_by_no_other() -> None:
    keys = [key for key in ALL if DETACHED in key]
    assert any(said([(key, DELETED) for key in keys]))
    assert not any(said([(key, "numbers: True is one") for key in keys]))
