"""What CPython makes of a text of a claim; nothing of the translator takes part."""

import pickle
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cacheproof.proofs.conformance.claims import METHOD, ConformanceClaim
from cacheproof.proofs.crosshair.states import SymbolicRequest
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.witness.classes import class_of
from cacheproof.proofs.witness.exploration import SCOPES
from cacheproof.proofs.witness.limits import Endless, limited
from cacheproof.reference.encoder_cache import EncoderCacheManager

WALKS = 6
"""Walks in each scope of the exploration."""
STEPS = 12
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
            SymbolicRequest(name, [h for h, _ in items], [size for _, size in items])
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


def _step(
    manager: EncoderCacheManager, request: SymbolicRequest, i: int, dice: random.Random
) -> None:
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


def unlike_cpython(claim: ConformanceClaim, cpython: OfCPython) -> list[str]:
    """What is wrong with a claim by what CPython does."""
    found = []
    if claim.keeping is not None and (failures := cpython.failures(claim.keeping)):
        found.append(f"CPython fails the claim: {failures[0]}")
    if not cpython.failures(claim.breaking):
        found.append("CPython does not fail")
    return found
