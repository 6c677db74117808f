"""Rows of evidence from CrossHair: each contract of one class, with the red twins beside it.

A counterexample counts when CPython reproduces it, a confirmation when every path was explored and
the same condition refuted a mutant. Whatever else happens is unknown.
"""

import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import IO

import msgspec

from cacheproof.proofs.crosshair.episode import (
    REMEMBERED,
    BrokenRule,
    SymbolicCondition,
    rule_of,
    rules_of,
)
from cacheproof.proofs.crosshair.job import COMPONENTS, ConditionAnswer, ConditionJob, Word
from cacheproof.proofs.crosshair.mutants import ConditionMutant
from cacheproof.proofs.crosshair.states import CLAIM_TABLES
from cacheproof.proofs.crosshair.text import ManagerText
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin

METHOD = "crosshair"


@dataclass(frozen=True)
class Budget:
    """How far a search goes. Paths and work decide; seconds only end what hangs.

    Attributes:
        paths_max: paths through one condition.
        rlimit: z3's measure of work for one question.
        seconds_max: without an answer on one condition.
    """

    paths_max: int = 2_000
    rlimit: int = 100_000
    seconds_max: float = 120.0


class CrossHair:
    """CrossHair in a process of its own. One that crashes or hangs answers UNKNOWN, and the next
    job gets a new one."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes] = queue.Queue()

    def ask(self, job: ConditionJob) -> tuple[ConditionAnswer, BrokenRule | None]:
        """The answer to one job, and what CPython shows to be broken; a counterexample that CPython
        does not show counts for none."""
        answer = self._ask(job)
        if answer.word is not Word.REFUTED:
            return answer, None
        broken = job.run_again(answer.arguments or {})
        if broken is None:
            why = f"CPython breaks no contract there: {answer.why}"
            return ConditionAnswer(Word.UNKNOWN, answer.paths, why), None
        return answer, broken

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def _ask(self, job: ConditionJob) -> ConditionAnswer:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
            line = self._lines.get(timeout=self._budget.seconds_max)
            return msgspec.json.decode(line, type=ConditionAnswer)
        # `_forward` queues an empty line, which is no JSON, once the process has ended
        except (OSError, msgspec.DecodeError):
            why = "CrossHair's process broke"
        except queue.Empty:
            why = f"no answer for {self._budget.seconds_max:g} s"
        self.close()
        return ConditionAnswer(Word.UNKNOWN, 0, why)

    def _start(self) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            # sets in one order, so that the same paths are explored in every run
            "PYTHONHASHSEED": "0",
            "CROSSHAIR_SMT_RLIMIT": str(self._budget.rlimit),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", __package__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self._process.stdout is not None
        self._lines = queue.Queue()
        reader = threading.Thread(
            target=_forward, args=(self._process.stdout, self._lines), daemon=True
        )
        reader.start()
        return self._process


def _forward(stream: IO[bytes], lines: "queue.Queue[bytes]") -> None:
    """Queue the lines of a stream; an empty one when it ends."""
    for line in stream:
        lines.put(line)
    lines.put(b"")


@dataclass
class _Row:
    """What is known of one contract in one scope so far, and by which conditions."""

    contract: str
    scope: str
    precondition: str
    outcome: Outcome = Outcome.HOLDS
    note: str = ""
    seconds: float = 0.0
    conditions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Twin:
    mutant: ConditionMutant
    refuted: bool
    seconds: float

    @property
    def shown(self) -> RedTwin:
        return RedTwin(f"{self.mutant.condition}: {self.mutant.name}", self.refuted)


def run(text: ManagerText, budget: Budget | None = None) -> list[Evidence]:
    """A row for every contract that a call of this class can break, in the order met.

    Raises:
        Unloadable: the text is not as expected.
    """
    witness = _Witness(text, budget or Budget())
    try:
        return witness.evidence()
    finally:
        witness.close()


class _Witness:
    """One text under all conditions that are about it."""

    def __init__(self, text: ManagerText, budget: Budget) -> None:
        self._text = text
        self._budget = budget
        self._component = COMPONENTS[text.subject]
        self._crosshair = CrossHair(budget)
        self._rows: dict[tuple[str, str], _Row] = {}
        manager = text.load()
        self._conditions = [one for one in self._component.conditions if one.is_about(manager)]
        remembers = any(hasattr(manager(0), table) for table in CLAIM_TABLES)
        self._auxiliary = [REMEMBERED] if remembers else []

    def close(self) -> None:
        self._crosshair.close()

    def evidence(self) -> list[Evidence]:
        for condition in self._conditions:
            self._decide(condition)
        conditions = [one.name for one in self._conditions]
        contracts = [row.contract for row in self._rows.values()]
        twins = [
            self._twin(number, mutant)
            for number, mutant in enumerate(self._component.mutants)
            if mutant.condition in conditions and mutant.contract in contracts
        ]
        return [self._evidence(row, twins) for row in self._rows.values()]

    def _decide(self, condition: SymbolicCondition) -> None:
        """Ask for all contracts at once, then again without each that is refuted."""
        started = time.monotonic()
        judged = [
            self._rows.setdefault(
                (rule.id, condition.scope), _Row(rule.id, condition.scope, condition.precondition)
            )
            for rule in (
                *rules_of(self._component.name, condition.operations, self._text.release),
                *self._auxiliary,
            )
        ]
        open_rows = [row for row in judged if row.outcome is not Outcome.REFUTED]
        while open_rows:
            job = self._job(condition.name, [row.contract for row in open_rows])
            answer, broken = self._crosshair.ask(job)
            if broken is None:
                break
            row = self._rows[broken.rule.id, condition.scope]
            row.outcome = Outcome.REFUTED
            row.note = f"{job.shown(answer)}: {broken.why}"
            open_rows.remove(row)
        for row in open_rows:
            row.conditions.append(condition.name)
            if answer.word is not Word.CONFIRMED:
                row.outcome = Outcome.UNKNOWN
                row.note = f"{condition.name}: {answer.why}"
        for row in judged:
            row.seconds += (time.monotonic() - started) / len(judged)

    def _twin(self, number: int, mutant: ConditionMutant) -> _Twin:
        started = time.monotonic()
        _, broken = self._crosshair.ask(self._job(mutant.condition, [mutant.contract], number))
        return _Twin(mutant, broken is not None, time.monotonic() - started)

    def _job(self, condition: str, rules: list[str], mutant: int | None = None) -> ConditionJob:
        return ConditionJob(self._text, condition, tuple(rules), mutant, self._budget.paths_max)

    def _evidence(self, row: _Row, twins: list[_Twin]) -> Evidence:
        own = [twin for twin in twins if twin.mutant.contract == row.contract]
        canaries = [
            next(twin for twin in twins if twin.mutant.condition == condition)
            for condition in row.conditions
        ]
        return Evidence(
            contract=row.contract,
            target=self._text.target,
            subject=self._text.subject,
            method=METHOD,
            scope=row.scope,
            outcome=row.outcome,
            note=row.note or self._premise(row),
            digest=self._text.digest(),
            seconds=row.seconds + sum(twin.seconds for twin in own),
            twins=tuple(dict.fromkeys(twin.shown for twin in (*own, *canaries))),
        )

    def _premise(self, row: _Row) -> str:
        """What a confirmation leans on: also the state contracts that do not hold here."""
        broken = [
            one.contract
            for one in self._rows.values()
            if one.outcome is Outcome.REFUTED
            and one.scope == row.scope
            and rule_of(one.contract).kind == "state"
        ]
        if not broken:
            return row.precondition
        return f"{row.precondition}; from states that keep {', '.join(broken)}"
