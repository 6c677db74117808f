"""What CrossHair is asked, and what it answers: what goes through the pipe to its process."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from cacheproof.proofs.crosshair import encoder_cache, encoder_decoder_cache, mutants
from cacheproof.proofs.crosshair.episode import (
    BrokenRule,
    ConditionSubject,
    SymbolicCondition,
    about,
    rule_of,
)
from cacheproof.proofs.crosshair.mutants import ConditionMutant
from cacheproof.proofs.crosshair.text import ENCODER_CACHE, ENCODER_DECODER_CACHE, ManagerText
from cacheproof.spec import encoder_cache as rules_of_encoder_cache
from cacheproof.spec import encoder_decoder_cache as rules_of_encoder_decoder_cache

Arguments = dict[str, Any]
"""What a condition is given, by the names of its parameters."""


class Word(StrEnum):
    """CrossHair's verdict. UNKNOWN: paths were left, the solver gave up, or it broke."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


class ConditionAnswer(msgspec.Struct, frozen=True):
    """The verdict on one job, after a number of `paths`; if it is refuted, the arguments as
    builtins."""

    word: Word
    paths: int
    why: str = ""
    arguments: Arguments | None = None


@dataclass(frozen=True)
class ConditionSet:
    """The conditions on one class of managers, and their red twins."""

    name: str
    subject: str
    conditions: Sequence[SymbolicCondition]
    mutants: Sequence[ConditionMutant]


COMPONENTS = {
    one.subject: one
    for one in (
        ConditionSet(
            rules_of_encoder_cache.COMPONENT,
            ENCODER_CACHE,
            encoder_cache.CONDITIONS,
            mutants.OF_ENCODER_CACHE,
        ),
        ConditionSet(
            rules_of_encoder_decoder_cache.COMPONENT,
            ENCODER_DECODER_CACHE,
            encoder_decoder_cache.CONDITIONS,
            mutants.OF_ENCODER_DECODER_CACHE,
        ),
    )
}


class ConditionJob(msgspec.Struct, frozen=True):
    """One condition on one text, or on a mutant of it (its number in the component's list).

    `rules` are the ids of the contracts that are asserted.
    """

    text: ManagerText
    condition: str
    rules: tuple[str, ...]
    mutant: int | None
    paths_max: int

    def prepare(self) -> SymbolicCondition:
        """Load the text, let conditions be about it, and return the condition."""
        component = COMPONENTS[self.text.subject]
        change = None if self.mutant is None else component.mutants[self.mutant].change
        about(ConditionSubject(self.text.load(change), [rule_of(rule) for rule in self.rules]))
        return next(one for one in component.conditions if one.name == self.condition)

    def run_again(self, arguments: Arguments) -> BrokenRule | None:
        """Run a counterexample in this interpreter: what is broken, or None if nothing is."""
        function = self.prepare().function
        try:
            function(**self.parse(arguments))
        except BrokenRule as broken:
            return broken
        # a precondition, or an error of ours: no contract is seen to be broken
        except Exception:
            return None
        return None

    def shown(self, answer: ConditionAnswer) -> str:
        """A counterexample as a call of the condition."""
        arguments = self.parse(answer.arguments or {}).items()
        return f"{self.condition}({', '.join(f'{name}={value}' for name, value in arguments)})"

    def parse(self, arguments: Arguments) -> dict[str, object]:
        """The arguments of the condition, of their builtins."""
        component = COMPONENTS[self.text.subject]
        (function,) = [one.function for one in component.conditions if one.name == self.condition]
        types = inspect.get_annotations(function, eval_str=True)
        return {name: msgspec.convert(value, types[name]) for name, value in arguments.items()}
