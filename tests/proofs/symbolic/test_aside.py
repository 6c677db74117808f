"""What CPython says is found out in a process of its own, and is what it is here."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.proofs.symbolic import evidence
from cacheproof.proofs.symbolic.aside import Aside, AskedAside
from cacheproof.proofs.symbolic.checking.validator import ShownCalls
from cacheproof.proofs.symbolic.checking.witnesses import TableExploring
from cacheproof.proofs.symbolic.deciding.answers import OperationAnswers
from cacheproof.proofs.symbolic.subjects.calls import identifier_fixes_size
from cacheproof.proofs.symbolic.subjects.entry_table import CLASS
from cacheproof.proofs.symbolic.texts import ClassText, texts_of
from cacheproof.proofs.witness.exploration import Unexplorable
from cacheproof.proving import jobs as proof_jobs

(TABLE,) = texts_of(CLASS, [])
ORPHAN = """
import os, sys
from cacheproof.proofs.symbolic.aside import Aside, AskedAside
from cacheproof.proofs.symbolic.checking.validator import ShownCalls
from cacheproof.proofs.symbolic.deciding.answers import OperationAnswers
aside = Aside({kind!r}, [OperationAnswers()])
print(aside._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def aside_with(text: ClassText) -> Aside:
    found = Aside(CLASS, [OperationAnswers()])
    found.begin(text)
    return found


def test_what_is_found_aside_is_what_is_found_here() -> None:
    exploring = TableExploring(TABLE.subject())
    with closing(aside_with(TABLE)) as aside:
        shown, witness = aside.shown(0, ()), aside.witness(0, "ET-1", None)
        assert witness.answer() == exploring.witness("ET-1", (), None)
        calls = exploring.calls(())
        assert shown.answer() == exploring.validator().all_shown(TABLE.subject(), calls, ())


def test_what_is_raised_aside_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise Unexplorable("its states cannot be saved")

    monkeypatch.setattr(TableExploring, "calls", none)
    with (
        closing(aside_with(TABLE)) as aside,
        pytest.raises(Unexplorable, match="its states cannot be saved"),
    ):
        aside.shown(0, ()).answer()


def test_one_that_is_killed_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(TableExploring, "witness", killed)
    with pytest.raises(HarnessError, match="EntryTable beside its proof ended before its work"):
        proof_jobs._prove_texts(0, True, [TABLE])


def test_one_ends_with_its_parent() -> None:
    code = ORPHAN.format(kind=CLASS)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL
    process = int(ran.stdout)
    for _ in range(100):
        if not Path(f"/proc/{process}/stat").exists() or _is_dead(process):
            return
        time.sleep(0.1)
    pytest.fail("it goes on without its parent")


def _is_dead(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_wrong_guess_of_what_falls_changes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Collection[str]] = []
    ask = Aside.shown

    def shown(
        self: Aside, promise: int, fallen: Collection[str]
    ) -> AskedAside[dict[str, ShownCalls]]:
        asked.append(fallen)
        return ask(self, promise, fallen)

    def rows() -> list[Any]:
        return [(one.contract, one.outcome, one.witnesses) for one in evidence.prove_texts([TABLE])]

    found = rows()
    monkeypatch.setattr(Aside, "shown", shown)
    stands = TABLE.subject().invariants[0].id
    monkeypatch.setattr(evidence, "RESTS_ON", {identifier_fixes_size: stands})
    assert rows() == found
    assert asked == [{stands}, frozenset()]
