"""What CPython says of texts, found out in a process of its own while others prove them.

A proof waits for a solver, and what the class does when it is run waits for neither.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import Queue
from typing import Any, Generic, TypeVar

from cacheproof.proofs.symbolic.checking.mutants import ClassMutant
from cacheproof.proofs.symbolic.checking.validator import ShownCalls, Validator
from cacheproof.proofs.symbolic.checking.witnesses import (
    Exploring,
    ManagerExploring,
    PoolExploring,
    TableExploring,
)
from cacheproof.proofs.symbolic.deciding.answers import OperationAnswers
from cacheproof.proofs.symbolic.subjects import block_pool, entry_table
from cacheproof.proofs.symbolic.texts import ClassText, promises_of
from cacheproof.spec.evidence import Witness

Answered = TypeVar("Answered")
_Result = tuple[bool, Any]
"""Whether something was answered, and the answer; else what was raised."""
_EXPLORING: Mapping[str, type[Exploring]] = {
    block_pool.CLASS: PoolExploring,
    entry_table.CLASS: TableExploring,
}


class AskedAside(Generic[Answered]):
    """A question whose answer may not be there yet."""

    def __init__(self, receive: Callable[[], _Result]) -> None:
        self._receive = receive

    def answer(self) -> Answered:
        """Wait for it.

        Raises:
            Exception: what was raised there.
            EOFError: the process has ended.
        """
        is_answer, found = self._receive()
        if not is_answer:
            raise found
        answer: Answered = found
        return answer


class Aside:
    """Runs the texts of a family, and holds their readings against that, in the order in which it
    is asked to. To be closed.

    Args:
        kind: of class.
        answers: what other processes found, under each of the promises that callers make.
    """

    def __init__(self, kind: str, answers: Sequence[OperationAnswers]) -> None:
        context = get_context("fork")
        self._here, there = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self._here, there, _There(kind, answers)), daemon=True
        )
        self._process.start()
        there.close()
        self._asked = 0
        self._results: dict[int, _Result] = {}

    def begin(self, text: ClassText) -> None:
        """Begin a text, which the gates let pass: what is asked from here on is about it."""
        self._ask("take_up", text)

    def shown(self, promise: int, fallen: Collection[str]) -> AskedAside[dict[str, ShownCalls]]:
        """Operation -> what calls show of it, of callers who keep the promise of that number, where
        some rules have fallen; raises Unexplorable where the class's states cannot be saved."""
        return self._ask("shown", promise, fallen)

    def witness(self, promise: int, contract: str, twin: ClassMutant | None) -> AskedAside[Witness]:
        """What the exploration says of a contract that is proved of callers who keep the promise of
        that number; `twin` is a change of which the proof refutes it."""
        return self._ask("witness", promise, contract, twin)

    def close(self) -> None:
        """End the process, whatever it does."""
        self._here.close()
        self._process.join()

    def _ask(self, what: str, *given: object) -> AskedAside[Any]:
        number = self._asked
        self._asked += 1
        self._here.send((what, given))
        return AskedAside(lambda: self._result(number))

    def _result(self, number: int) -> _Result:
        while number not in self._results:
            self._results[len(self._results)] = self._here.recv()
        return self._results[number]


# in that process


@dataclass
class _There:
    """What answers there. Of the family it has what holds readings against calls, one for each
    promise, and the changes that were noticed; and how the text in hand is run."""

    kind: str
    answers: Sequence[OperationAnswers]
    _validators: Sequence[Validator] = ()
    _noticed: dict[str, tuple[str, str]] = field(default_factory=dict)
    _in_hand: tuple[ClassText, Exploring] | None = None

    def take_up(self, text: ClassText) -> None:
        self._in_hand = None
        exploring = _EXPLORING.get(self.kind, ManagerExploring)(text.subject(), self._noticed)
        if not self._validators:
            self._validators = [exploring.validator() for _ in self.answers]
        self._in_hand = text, exploring

    def shown(self, promise: int, fallen: Collection[str]) -> dict[str, ShownCalls]:
        assert self._in_hand is not None
        text, exploring = self._in_hand
        _, assumptions = promises_of(self.kind)[promise]
        return self._validators[promise].all_shown(
            text.subject(assumptions),
            exploring.calls(assumptions),
            fallen,
            self.answers[promise],
        )

    def witness(self, promise: int, contract: str, twin: ClassMutant | None) -> Witness:
        assert self._in_hand is not None
        _, exploring = self._in_hand
        _, assumptions = promises_of(self.kind)[promise]
        return exploring.witness(contract, assumptions, twin)

    def result(self, what: str, given: Sequence[object]) -> _Result:
        """What is answered, or raised."""
        try:
            return True, getattr(self, what)(*given)
        except Exception as failure:
            return False, failure


def _serve(parents: Connection, own: Connection, there: _There) -> None:
    """Answer until the parent lets go of its end, or has ended; then end at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent sees to interruptions
    parents.close()
    # A collection in the thread that receives would free z3's terms while this one is within z3.
    gc.freeze()
    gc.disable()
    questions: Queue[tuple[str, Sequence[object]]] = Queue()

    def receive() -> None:
        with suppress(EOFError, OSError):
            while True:
                questions.put(own.recv())
        os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    while True:
        own.send(there.result(*questions.get()))
        gc.collect()
