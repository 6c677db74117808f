"""What is asked of a text of keys and of changed ones, and the row of evidence that comes of it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cacheproof.proofs.keys.key_modules import Language
from cacheproof.proofs.keys.paths import Undecided, Unread
from cacheproof.proofs.keys.second_reading import SecondReading
from cacheproof.proofs.keys.texts import place_of
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, witnessed

TextT = TypeVar("TextT")


@dataclass(frozen=True)
class Claim(Generic[TextT]):
    """What is asked of a text and of changed ones. `check` returns what refutes it, or None."""

    contract: str
    target: str
    subject: str
    scope: str
    text: TextT
    check: Callable[[TextT], str | None]
    twins: Sequence[tuple[str, TextT]]
    digest: str
    second: SecondReading[TextT]
    languages: tuple[Language, ...] = ()

    def evidence(self) -> Evidence:
        """The row of evidence, twins included."""
        started = time.perf_counter()
        outcome, note = self.asked(self.text)
        twins = tuple(
            RedTwin(name, self.asked(changed)[0] is Outcome.REFUTED) for name, changed in self.twins
        )
        row = Evidence(
            self.contract,
            self.target,
            self.subject,
            "proof",
            self.scope,
            outcome,
            note,
            self.digest,
            time.perf_counter() - started,
            twins,
        )
        if outcome is not Outcome.HOLDS:
            return row
        row = witnessed(row, self.second.witnesses(self.text, self.twins))
        return replace(row, seconds=time.perf_counter() - started)

    def asked(self, text: TextT) -> tuple[Outcome, str]:
        """What the check says of a text. Of one that is not read nothing is known."""
        try:
            why = self.check(text)
        except Undecided as undecided:
            return Outcome.UNKNOWN, str(undecided)
        except Unread as unread:
            return Outcome.UNKNOWN, self._unread(unread)
        except Exception as failure:  # whatever the text does where it is run on symbols
            why = f"the reader fails: {type(failure).__name__}: {failure}"
            return Outcome.UNKNOWN, f"{place_of(failure, self.languages)}: {why}"
        return (Outcome.HOLDS, "") if why is None else (Outcome.REFUTED, why)

    def _unread(self, unread: Unread) -> str:
        """What is unread, in words, with its place, where the gate has not said it."""
        why, place = str(unread), place_of(unread, self.languages)
        is_placed = any(why.startswith(f"{one.path}:") for one in self.languages)
        return why if is_placed else f"{place}: no reading of {why}"
