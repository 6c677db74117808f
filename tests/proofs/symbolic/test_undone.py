"""The translator with a reading undone: the claims notice, in a process of its own."""

import subprocess
import sys

import pytest

from cacheproof.proofs.conformance.undone import MODULES, Undone, undone


def _all() -> list[Undone]:
    return [one for module in MODULES for one in undone(module)]


def test_every_change_has_a_name_of_its_own() -> None:
    keys = [one.key for one in _all()]
    assert len(keys) == len(set(keys)) >= 400


def _said(change: Undone, claim: str) -> str:
    command = [sys.executable, "-m", "cacheproof.proofs.conformance.undone"]
    done = subprocess.run(
        [*command, change.module, str(change.number), change.key],
        input=claim,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("words", "claim"),
    [
        (
            "without self._detached(of, key, state)",
            "variables that lead into what goes: one whose container is deleted",
        ),
        ("case without if len(default) < 2", "dicts: pop with a default that is a method's third"),
    ],
)
def test_it_is_noticed(words: str, claim: str) -> None:
    changes = [one for one in _all() if words in one.words]
    assert any(_said(one, claim) for one in changes)


def test_a_change_elsewhere_is_not_taken_for_one() -> None:
    change = next(one for one in _all() if "without self._detached(of, key, state)" in one.words)
    assert _said(change, "numbers: True is one") == ""
