"""What CPython makes of a text of a claim, and what the translator alone says of it."""

import pickle
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cacheproof.proofs.conformance.claims import METHOD, OPERATION, Claim
from cacheproof.proofs.crosshair.states import Request
from cacheproof.proofs.symbolic.conditions import Library, Subject
from cacheproof.proofs.symbolic.encoder_cache import SAFETY, of_reference
from cacheproof.proofs.symbolic.gate import refuse_unread
from cacheproof.proofs.symbolic.predicates import NotTranslated
from cacheproof.proofs.symbolic.solver import SOON
from cacheproof.proofs.symbolic.source import Source
from cacheproof.proofs.witness.classes import class_of
from cacheproof.proofs.witness.exploration import SCOPES
from cacheproof.proofs.witness.limits import Endless, limited
from cacheproof.reference.encoder_cache import EncoderCacheManager

WALKS = 6
"""In each scope of the exploration."""
STEPS = 12
EFFORTS = 6
"""How many kinds of efforts a proof is tried with, where few elements have no counterexample."""
SECONDS = 2
"""CPU time of this process in which a text must be done."""


@dataclass(frozen=True)
class _Start:
    """A manager's attributes and a request, saved, and an input of it."""

    saved: bytes
    input_id: int


def _starts() -> list[_Start]:
    """States that seeded walks of the reference lead to, each with every input of every request."""
    found: dict[bytes, _Start] = {}
    for number, scope in enumerate(SCOPES):
        requests = [
            Request(name, [h for h, _ in items], [size for _, size in items])
            for name, items in scope.requests.items()
        ]
        inputs = [(one, i) for one in requests for i in range(len(one.mm_features))]
        for walk in range(WALKS):
            dice = random.Random(f"{number} {walk}")
            manager = EncoderCacheManager(scope.capacity)
            for _ in range(STEPS):
                for request, i in inputs:
                    saved = pickle.dumps((vars(manager), request))
                    found.setdefault(saved + bytes(i), _Start(saved, i))
                _step(manager, *dice.choice(inputs), dice)
    return list(found.values())


def _step(manager: EncoderCacheManager, request: Request, i: int, dice: random.Random) -> None:
    given: Any = request
    match dice.choice(("take", "take", "release", "free", "notices")):
        case "take":
            if not manager.check_and_update_cache(given, i) and manager.can_allocate(
                given, i, 9, 0
            ):
                manager.allocate(given, i)
        case "release":
            manager.free_encoder_input(given, i)
        case "free":
            manager.free(given)
        case "notices":
            manager.get_freed_mm_hashes()


class OfCPython:
    """Runs the method of texts from states of the reference manager."""

    @cached_property
    def _all(self) -> list[_Start]:
        return _starts()

    def failures(self, source: Source) -> Sequence[str]:
        """How calls end that raise, one for each state; a module that does not run fails once."""
        try:
            with limited(SECONDS):
                return self._failures(source)
        except Endless:
            return ["it does not end"]

    def _failures(self, source: Source) -> Sequence[str]:
        try:
            of = class_of(source.tree, source.path, source.name)
        except LookupError as error:
            return [str(error)]
        found = []
        for one in self._all:
            manager = object.__new__(of)
            try:
                attributes, request = pickle.loads(one.saved)
                vars(manager).update(attributes)
                if "OrderedDict()" in source.module:
                    manager.freeable = OrderedDict(manager.freeable)
                getattr(manager, METHOD)(request, one.input_id)
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")
        return found


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
        self._library = Library()

    def says(self, source: Source) -> Said:
        subject = replace(
            self._subject, sources={**self._subject.sources, "m": source}, replay=None
        )
        try:
            refuse_unread(source, [METHOD])
        except NotTranslated as refusal:
            return Said("refused", str(refusal))
        try:
            return self._proved(subject)
        except NotTranslated as refusal:
            return Said("unread", str(refusal))
        except Exception as failure:
            return Said("crashed", f"{type(failure).__name__}: {failure}")

    def _proved(self, subject: Subject) -> Said:
        (operation,) = (one for one in subject.operations if one.name == OPERATION)
        prover = self._library.prover(subject, operation)
        numbers = [n for n, one in enumerate(prover.conditions) if one.rule == SAFETY]
        first, others = slice(SOON), slice(SOON, EFFORTS)
        open_ = [n for n in numbers if prover.verdict(n, (), first).word != "proved"]
        found = open_ and self._library.refuter_of_change(subject).counterexample(operation, SAFETY)
        if found:
            return Said("refuted", found.sentence)
        open_ = [n for n in open_ if prover.verdict(n, (), others).word != "proved"]
        return Said("unknown", prover.conditions[open_[0]].name) if open_ else Said("proved")


KEEPING = {"read": "proved", "refused": "refused", "unread": "unread"}
BREAKING = {"read": "refuted", "refused": "refused", "unread": "unread"}
"""What a translator must say of a claim's two texts, by the claim's word."""


def complaints(claim: Claim, cpython: OfCPython, translator: OfTranslator) -> list[str]:
    """What is wrong with what CPython does and the translator says of a claim's texts."""
    found = []
    if claim.keeping is not None:
        if failures := cpython.failures(claim.keeping):
            found.append(f"CPython fails the claim: {failures[0]}")
        said = translator.says(claim.keeping)
        if said.word != KEEPING[claim.word]:
            found.append(f"where it is claimed: {said.word} {said.why}")
    if not cpython.failures(claim.breaking):
        found.append("CPython does not fail")
    said = translator.says(claim.breaking)
    if said.word != BREAKING[claim.word]:
        misread = "misread: " if said.word == "proved" else ""
        found.append(f"where it is denied: {misread}{said.word} {said.why}")
    return found
