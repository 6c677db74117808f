"""What the translator alone says of a text of a claim, and what is wrong with that."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import z3

from cacheproof.proofs.conformance.claims import METHOD, OPERATION, ConformanceClaim, Stated
from cacheproof.proofs.conformance.cpython import OfCPython, unlike_cpython
from cacheproof.proofs.logic import conjunction, disjunction
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate import refuse_unread
from cacheproof.proofs.symbolic.reading.plain import in_plain_words
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.subjects.encoder_cache import SAFETY, of_reference
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.solver import SOON
from cacheproof.proofs.symbolic.values.state import Around, Loop, Operand, Ref, State, truth_of

STATED = "stated"
"""The rule that what a claim states of a loop is so."""
EFFORTS = 6
"""How many kinds of efforts a proof is tried with, where few elements have no counterexample."""


@dataclass(frozen=True)
class Said:
    """What the translator says: "refused" by its gate, "unread" on a path, "proved", "refuted",
    "unknown"; or "crashed", which it must not. `why` in one line."""

    word: str
    why: str = ""


class OfTranslator:
    """Proves of texts that the method does not raise, and looks for counterexamples; nothing else
    that is known of a text, CPython's word on it among it, takes part."""

    def __init__(self) -> None:
        self._subject = of_reference()
        self._of_any_state = replace(self._subject, invariants=(), transitions={}, aggregates=())
        self._library = ProverLibrary()

    def says(
        self,
        source: Source,
        loops: Mapping[str, Sequence[Stated]] | None = None,
        *,
        of_any_state: bool = False,
    ) -> Said:
        """What it says of a text's method, begun where the manager's invariants hold, or in any
        state, which leaves less to read."""
        begun = self._of_any_state if of_any_state else self._subject
        read = in_plain_words(source)
        subject = replace(begun, sources={**begun.sources, "m": read}, replay=None)
        if loops:
            subject = replace(subject, loops=partial(_with_loops, loops), unrolls=True)
        try:
            refuse_unread(read, [METHOD])
        except NotTranslated as refusal:
            return Said("refused", str(refusal))
        try:
            return self._proved(subject)
        except NotTranslated as refusal:
            return Said("unread", str(refusal))
        except Exception as failure:
            return Said("crashed", f"{type(failure).__name__}: {failure}")

    def _proved(self, subject: Subject) -> Said:
        """Whether the claim is proved: what is stated of loops serves the proof, a counterexample
        runs them turn by turn, and so each of the two readings is held against the other."""
        (operation,) = (one for one in subject.operations if one.name == OPERATION)
        library = ProverLibrary() if subject.unrolls else self._library
        prover = library.prover(subject, operation)
        numbers = [n for n, one in enumerate(prover.conditions) if one.rule in (SAFETY, STATED)]
        first, others = slice(SOON), slice(SOON, EFFORTS)
        open_ = [n for n in numbers if prover.verdict(n, (), first).word != "proved"]
        refuter = library.refuter_of_change(subject)
        found = None
        if open_ or subject.unrolls:
            try:
                found = refuter.counterexample(operation, SAFETY)
            except NotTranslated:
                if not subject.unrolls:
                    raise  # else a loop that has too many turns to be run one by one
        if found:
            return Said("refuted" if open_ else "proved and refuted", found.sentence)
        open_ = [n for n in open_ if prover.verdict(n, (), others).word != "proved"]
        return Said("unknown", prover.conditions[open_[0]].name) if open_ else Said("proved")


def _with_loops(
    loops: Mapping[str, Sequence[Stated]], play: Play
) -> Mapping[tuple[str, str], Sequence[Loop]]:
    """What a claim states of the loops of its methods, for the machine."""

    def loop(stated: Stated) -> Loop:
        return Loop(
            lambda around: [
                (STATED, formula)
                for one in stated.invariants
                for formula in [_read(play, one, _seen_from(around))]
            ],
            None if stated.variant is None else lambda state: _read(play, stated.variant, state),
        )

    return {("m", name): [loop(one) for one in of_method] for name, of_method in loops.items()}


def _seen_from(around: Around) -> State:
    """The state now, with what is done and what there is by names."""
    names, cells = dict(around.now.names), dict(around.now.cells)
    for cell, (name, found) in enumerate((("seen", around.seen), ("members", around.members))):
        if found is not None:
            names[name], cells[-1 - cell] = Ref(-1 - cell), found
    if around.turns is not None:
        names["turns"] = around.turns
    return replace(around.now, names=names, cells=cells)


def _read(play: Play, expression: ast.expr | None, state: State) -> Operand:
    """What an expression is there, as the machine reads it: a truth value, or a number. Nothing is
    to be shown of it but that it is so."""
    assert expression is not None
    obligations = len(play.machine.obligations)
    ways = list(play.machine.evaluated(expression, state))
    del play.machine.obligations[obligations:]
    if len(ways) == 1 and isinstance(ways[0][1], z3.ArithRef):
        return ways[0][1]
    return disjunction(
        conjunction((*(one.formula for one in end.path[len(state.path) :]), truth_of(end, value)))
        for end, value in ways
    )


KEEPING = {
    "read": "proved",
    "refused": "refused",
    "unread": "unread",
    "unproved": "unknown",
    "alarmed": "refuted",
}
BREAKING = {**KEEPING, "read": "refuted", "unproved": "refuted"}
"""What a translator must say of a claim's two texts, by the claim's word."""


def misreadings(claim: ConformanceClaim, translator: OfTranslator) -> list[str]:
    """What is wrong with what the translator says of a claim's texts."""
    found = []
    if claim.keeping is not None:
        said = _said(claim, claim.keeping, translator, KEEPING[claim.word])
        if said.word != KEEPING[claim.word]:
            found.append(f"where it is claimed: {said.word} {said.why}")
    endless = claim.word == "unproved" and claim.claimed is None
    expected = "unknown" if endless else BREAKING[claim.word]
    said = _said(claim, claim.breaking, translator, expected)
    if said.word != expected:
        misread = "misread: " if said.word == "proved" else ""
        found.append(f"where it is denied: {misread}{said.word} {said.why}")
    return found


def _said(claim: ConformanceClaim, source: Source, translator: OfTranslator, expected: str) -> Said:
    """What a translator says from any state; where that is not `expected`, from states in which
    invariants hold: they leave more to prove with, and less to refute."""
    said = translator.says(source, claim.loops, of_any_state=True)
    return said if said.word == expected else translator.says(source, claim.loops)


def complaints(claim: ConformanceClaim, cpython: OfCPython, translator: OfTranslator) -> list[str]:
    """What is wrong with what CPython does and the translator says of a claim's texts."""
    return [*unlike_cpython(claim, cpython), *misreadings(claim, translator)]
