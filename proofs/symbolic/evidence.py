"""What is proved of managers by their text, as rows of evidence.

What does not hold of any caller may hold of one that keeps a promise. So a manager is proved with
as few promises as it takes: none, then that an identifier fixes its size, then that also no request
shows one item twice. What a block pool's manager promises is said at each operation, and is enough.
"""

import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing

from cacheproof.proofs.symbolic.aside import Aside, AskedAside
from cacheproof.proofs.symbolic.checking.mutants import ClassMutant
from cacheproof.proofs.symbolic.checking.twins import red_twins, twins_of_operations
from cacheproof.proofs.symbolic.checking.validated import Validation
from cacheproof.proofs.symbolic.checking.validator import ShownCalls
from cacheproof.proofs.symbolic.deciding.answers import AnswerStore, OperationAnswers
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary, prove
from cacheproof.proofs.symbolic.deciding.prove import RuleOutcome as OfRule
from cacheproof.proofs.symbolic.deciding.prover import Unkept
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate import refuse_subject
from cacheproof.proofs.symbolic.texts import RESTS_ON, ClassText, Promise, promises_of
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.witness.exploration import Unexplorable
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, Witness, digest_of, witnessed
from cacheproof.spec.registry import contracts as all_contracts

_CONTRACTS = frozenset(rule.id for rule in all_contracts())
NO_TWIN = "a change that breaks it"
_FAILURES = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class _UnderPromise:
    """What proves texts of a family where callers keep a promise."""

    def __init__(self, number: int, promise: Promise, library: ProverLibrary, aside: Aside) -> None:
        self.words, self.assumptions = promise
        self.library = library
        self._number = number
        self._aside = aside
        self._validation = Validation(library)
        self._expected: frozenset[str] | None = None  # what `_begun` takes to have fallen
        self._stood = True
        self._begun: AskedAside[dict[str, ShownCalls]] | None = None

    def begin(self, subject: Subject) -> None:
        """Have calls made beside the proof, as they are wanted if the same rules fall as of the
        text before."""
        if self._expected is None:
            without = {RESTS_ON[one] for one in RESTS_ON.keys() - set(self.assumptions)}
            self._expected = frozenset(without & {one.id for one in subject.invariants})
        self._begun = None
        if self._stood:
            self._begun = self._aside.shown(self._number, self._expected)

    def end(self, new: Sequence[str], fallen: Sequence[str]) -> None:
        """Note the rules that have fallen, and whether `new` ones have stood."""
        self._stood, self._expected = bool(new), frozenset(fallen)

    def explored(self, contract: str, change: ClassMutant | None) -> AskedAside[Witness]:
        """What an exploration says of a contract; `change` is one by which it is refuted."""
        return self._aside.witness(self._number, contract, change)

    def validated(self, subject: Subject, fallen: Collection[str]) -> Witness:
        """What CPython's calls say of all that is proved, but for the rules that have fallen."""
        if self._begun is None or self._expected != frozenset(fallen):
            self._expected = frozenset(fallen)
            self._begun = self._aside.shown(self._number, self._expected)
        try:
            shown = self._begun.answer()
        except Unexplorable as reason:
            nothing = RedTwin("anything", refuted=False)
            return Witness("validation", f"none: {reason}", "", nothing, unreached="any call")
        return self._validation.witness(subject, shown, fallen)


def prove_texts(
    texts: Sequence[ClassText], seed: int = 0, store: AnswerStore | None = None
) -> list[Evidence]:
    """Every contract of managers, under the fewest promises that it is proved under; one row for
    each target that has a text. Refuted is what the class itself was seen to break; all is unknown
    of a text that has a construct without a reading.

    Args:
        texts: of one family.
        seed: of the solver.
        store: keeps what is found of each operation, and tells it again; None: nothing is kept.

    """
    kind = texts[0].kind
    promises = promises_of(kind)
    answers = [OperationAnswers(store, kind, words, str(seed)) for words, _ in promises]
    rows: list[Evidence] = []
    with closing(Aside(kind, answers)) as aside:
        under = [
            _UnderPromise(number, promise, ProverLibrary(seed, answers[number]), aside)
            for number, promise in enumerate(promises)
        ]
        for text in texts:
            subject = text.subject()
            try:
                refuse_subject(subject)
                aside.begin(text)
                rows += _proved(text, under)
            except NotTranslated as refusal:
                rows += _unread(text, subject, str(refusal))
            except _FAILURES as failure:
                why = f"the translator fails: {type(failure).__name__}: {failure}"
                rows += _unread(text, subject, f"{text.source.path}: {why}")
    return rows


def _unread(text: ClassText, subject: Subject, why: str) -> Iterator[Evidence]:
    """The rows of a text that cannot be read: nothing is known of it."""
    judged = {rule for one in subject.operations for rule in subject.judged_at(one)}
    for rule in all_contracts():
        if rule.id in judged:
            row = _row(text, subject, rule.id, Outcome.UNKNOWN, "unread", why, 0.0, ())
            yield from _for_each_target(text, row)


def _proved(text: ClassText, under: Sequence[_UnderPromise]) -> list[Evidence]:
    rows: dict[str, Evidence] = {}
    refuted: dict[str, OfRule] = {}
    settled: set[str] = set()
    known: dict[str, OfRule] = {}
    for one in under:
        started = time.monotonic()
        subject = text.subject(one.assumptions)
        one.begin(subject)
        while True:
            try:
                outcomes = prove(subject, one.library, settled)
                new = [
                    rule
                    for rule, outcome in outcomes.items()
                    if rule in _CONTRACTS and outcome.word == "proved"
                ]
                fallen = [rule for rule in outcomes if outcomes[rule].word != "proved"]
                twins = red_twins(subject, new, fallen, one.library)
                explored = {rule: one.explored(rule, twins.get(rule)) for rule in new}
                validation, of_operations = [], []
                if new:
                    of_operations = _operation_twins(subject, fallen, one.library)
                    validation = [one.validated(subject, fallen)]
                break
            except Unkept as unkept:
                one.library.prove_anew(unkept)
        one.end(new, fallen)
        known |= outcomes
        settled |= outcomes.keys() - set(fallen)
        seconds = time.monotonic() - started
        for rule in new:
            change = twins.get(rule)
            twin = RedTwin(NO_TWIN if change is None else change.name, change is not None)
            note = f"refuted without: {_words(refuted[rule])}" if rule in refuted else ""
            scope = f"unbounded; {one.words}"
            all_twins = (twin, *of_operations)
            row = _row(text, subject, rule, Outcome.HOLDS, scope, note, seconds, all_twins)
            row = dataclasses.replace(row, work_max=_work(known, rule))
            rows[rule] = witnessed(row, [explored[rule].answer(), *validation])
        refuted |= {rule: outcomes[rule] for rule in fallen if rule in _CONTRACTS}
        if rows.keys() >= refuted.keys():
            break
    for rule in refuted.keys() - rows.keys():
        word = Outcome.REFUTED if refuted[rule].replayed else Outcome.UNKNOWN
        note = _words(refuted[rule]) or refuted[rule].failing
        rows[rule] = _row(text, subject, rule, word, f"unbounded; {one.words}", note, seconds, ())
    in_order = [rule.id for rule in all_contracts() if rule.id in rows]
    return [row for rule in in_order for row in _for_each_target(text, rows[rule])]


def _operation_twins(
    subject: Subject, fallen: Sequence[str], library: ProverLibrary
) -> list[RedTwin]:
    """For each operation, a change of what it runs that shows there: so what is proved of it is not
    proved of calls that cannot happen."""
    found = twins_of_operations(subject, fallen, library)
    return [
        RedTwin(f"{name}: {NO_TWIN if change is None else change.name}", change is not None)
        for name, change in found.items()
    ]


def _work(outcomes: Mapping[str, OfRule], rule: str) -> float:
    """What the hardest condition took of a rule, and of all that it rests on."""
    reached, work = [rule], 0.0
    for one in reached:
        if one in outcomes:  # and not a caller's promise
            work = max(work, outcomes[one].work_max)
            reached += sorted(outcomes[one].rests_on - {*reached})
    return work


def _words(refuted: OfRule) -> str:
    """A counterexample in words."""
    again = " (run again: the class itself breaks it)" if refuted.replayed else ""
    return refuted.counterexample + again


def _row(
    text: ClassText,
    subject: Subject,
    contract: str,
    outcome: Outcome,
    scope: str,
    note: str,
    seconds: float,
    twins: tuple[RedTwin, ...],
) -> Evidence:
    return Evidence(
        contract, text.targets[0], text.source.name, "proof", scope, outcome, note,
        digest_of_texts(subject), seconds, twins,
    )  # fmt: skip


def digest_of_texts(subject: Subject) -> str:
    """The digest of all texts that are run, the ghost's among them."""
    return digest_of([source.text for source in subject.sources.values()])


def _for_each_target(text: ClassText, row: Evidence) -> Iterator[Evidence]:
    for target in text.targets:
        yield dataclasses.replace(row, target=target)
