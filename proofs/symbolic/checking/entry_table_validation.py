"""Calls of a table of entries for the translator to be held against: one of each kind that the
exploration made."""

from collections.abc import Iterator, Sequence

import z3

from cacheproof.proofs.logic import Formula, iff
from cacheproof.proofs.symbolic.checking.validation import element
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import CallEnd
from cacheproof.proofs.symbolic.values.values import IDENTIFIER, Universe
from cacheproof.proofs.witness.entry_table import ENTRIES_MAX, Exploration, TableAsked, TableSetting
from cacheproof.proofs.witness.recorded import RecordedCall


def universe() -> Universe:
    """A universe of as many entries as tables of the exploration have."""
    return Universe(ENTRIES_MAX)


class TableCallMade(RecordedCall[TableSetting, TableAsked]):
    """A call that CPython made of a table."""

    def answered(self, end: CallEnd) -> Formula:
        """The condition that its answer is what a path says; True where it answers nothing."""
        answer = self.made.answer
        return answer is None or iff(end.names["c"].fields["granted"], answer)

    def given(self, play: Play) -> Iterator[Formula]:
        """What it is given."""
        asked = self.made.asked
        if play.operation.begins:
            yield z3.Int("capacity") == self.made.setting.capacity
        yield z3.Int("size") == asked.size
        for entry in play.arguments:
            yield entry == element(play.universe, IDENTIFIER, asked.entry)


def calls_of(explorations: Sequence[Exploration]) -> dict[str, list[TableCallMade]]:
    """Operation -> the calls of it that explorations made, one of each kind."""
    found: dict[str, list[TableCallMade]] = {}
    for one in explorations:
        for transition in one.unlike.values():
            found.setdefault(transition.asked.operation, []).append(TableCallMade(transition))
    return found
