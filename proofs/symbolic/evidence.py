"""What is proved of managers by their text, as rows of evidence.

What does not hold of any caller may hold of one that keeps a promise. So a manager is proved with
as few promises as it takes: none, then that an identifier fixes its size, then that also no request
shows one item twice. What a block pool's manager promises is said at each operation, and is enough.
"""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cacheproof.proofs.symbolic.checking.twins import red_twins, twins_of_operations
from cacheproof.proofs.symbolic.checking.validator import Validator
from cacheproof.proofs.symbolic.checking.witnesses import (
    Exploring,
    ManagerExploring,
    PoolExploring,
    TableExploring,
)
from cacheproof.proofs.symbolic.deciding.answers import Answers, Store
from cacheproof.proofs.symbolic.deciding.prove import Library, prove
from cacheproof.proofs.symbolic.deciding.prove import Outcome as OfRule
from cacheproof.proofs.symbolic.deciding.prover import Unkept
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate import refuse_subject
from cacheproof.proofs.symbolic.reading.bindings import named_beside
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.subjects import (
    block_pool,
    encoder_cache,
    encoder_decoder_cache,
    entry_table,
)
from cacheproof.proofs.symbolic.subjects.calls import (
    Assumption,
    identifier_fixes_size,
    items_differ,
)
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.witness.exploration import Unexplorable
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, Witness, digest_of, witnessed
from cacheproof.spec.registry import contracts as all_contracts

REFERENCE = "reference"
_CONTRACTS = frozenset(rule.id for rule in all_contracts())
NO_TWIN = "a change that breaks it"
Promise = tuple[str, tuple[Assumption, ...]]
PROMISES: tuple[Promise, ...] = (
    ("any caller", ()),
    ("an identifier fixes its size", (identifier_fixes_size,)),
    (
        "an identifier fixes its size, no request shows an item twice",
        (identifier_fixes_size, items_differ),
    ),
)
"""What a caller promises beside what each operation asks of it, from nothing on."""
_PROMISES_OF = {one.CLASS: one.PROMISES for one in (block_pool, entry_table)}
_FAILURES = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Text:
    """A manager's class as it stands in some targets; `release` is the first of theirs, None for
    the reference. The class of a plug-in has a name of its own: `kind` is that of the class whose
    place it takes."""

    kind: str
    targets: tuple[str, ...]
    source: Source
    release: str | None


SUBJECTS = {
    one.CLASS: one for one in (encoder_cache, encoder_decoder_cache, block_pool, entry_table)
}
"""What is said of each class beside its text. Of releases' block pools, which link their blocks in
a list, no text is read; nor of their tables of entries, whose blocks have numbers."""
_EXPLORING = {block_pool.CLASS: PoolExploring, entry_table.CLASS: TableExploring}


@dataclass(frozen=True)
class Read:
    """A class as it was read of a target that is no reference: the target's name, the release whose
    contracts it promises to keep, and the class."""

    target: str
    release: str
    source: Source


def texts_of(name: str, of_targets: Iterable[Read]) -> list[Text]:
    """The reference's text of a class, and those of targets, each once: of classes that read alike,
    in modules that say nothing else of them, and promise the same contracts."""
    found = [Text(name, (REFERENCE,), SUBJECTS[name].of_reference().sources["m"], None)]
    for one in of_targets:
        for number, text in enumerate(found):
            if text.release is not None and _reads_as(text, one):
                found[number] = dataclasses.replace(text, targets=(*text.targets, one.target))
                break
        else:
            found.append(Text(name, (one.target,), one.source, one.release))
    return found


def _reads_as(text: Text, one: Read) -> bool:
    """Whether a class is one that was read before, and is asked the same: what it names in its
    module reads alike too, and no gate refuses that module."""
    if text.source.text != one.source.text:
        return False
    if _promised(text.kind, text.release) != _promised(text.kind, one.release):
        return False
    if text.source.module == one.source.module:
        return True
    if named_beside(text.source) != named_beside(one.source):
        return False
    try:
        for source in (text.source, one.source):
            refuse_subject(SUBJECTS[text.kind].of_release(one.release, source))
    except NotTranslated:
        return False
    return True


def _promised(kind: str, release: str | None) -> list[str]:
    """The contracts that a release promises to keep."""
    return [rule.id for rule in all_contracts(SUBJECTS[kind].COMPONENT, release)]


def families(texts: Iterable[Text]) -> list[list[Text]]:
    """Texts of a class, those with the same attributes together: they have most methods in common,
    and what is proved of such a method is proved once."""
    found: dict[frozenset[str], list[Text]] = {}
    for one in texts:
        found.setdefault(one.source.attributes, []).append(one)
    return list(found.values())


def prove_texts(texts: Sequence[Text], seed: int = 0, store: Store | None = None) -> list[Evidence]:
    """Every contract of managers, under the fewest promises that it is proved under; one row for
    each target that has a text. Refuted is what the class itself was seen to break; of a text that
    has a construct without a reading all is unknown.

    Args:
        texts: of one family.
        seed: of the solver.
        store: keeps what is found of each operation, and tells it again; None: nothing is kept.

    """
    promises = _PROMISES_OF.get(texts[0].kind, PROMISES)
    validator = _exploring(texts[0].kind)(_subject(texts[0], ())).validator
    tools = [
        (Library(seed, Answers(store, texts[0].kind, promise, str(seed))), validator())
        for promise, _ in promises
    ]
    noticed: dict[str, tuple[str, str]] = {}
    rows: list[Evidence] = []
    for text in texts:
        subject = _subject(text, ())
        try:
            refuse_subject(subject)
            rows += _proved(text, list(zip(promises, tools, strict=True)), noticed)
        except NotTranslated as refusal:
            rows += _unread(text, subject, str(refusal))
        except _FAILURES as failure:
            why = f"{text.source.path}: the translator fails: {type(failure).__name__}: {failure}"
            rows += _unread(text, subject, why)
    return rows


def _exploring(kind: str) -> type[Exploring]:
    """How CPython runs a class."""
    return _EXPLORING.get(kind, ManagerExploring)


def _unread(text: Text, subject: Subject, why: str) -> Iterator[Evidence]:
    """Of a text that cannot be read nothing is known."""
    judged = {rule for one in subject.operations for rule in subject.judged_at(one)}
    for rule in all_contracts():
        if rule.id in judged:
            row = _row(text, subject, rule.id, Outcome.UNKNOWN, "unread", why, 0.0, ())
            yield from _for_each_target(text, row)


def _proved(
    text: Text,
    promises: Sequence[tuple[Promise, tuple[Library, Validator]]],
    noticed: dict[str, tuple[str, str]],
) -> list[Evidence]:
    rows: dict[str, Evidence] = {}
    refuted: dict[str, OfRule] = {}
    settled: set[str] = set()
    known: dict[str, OfRule] = {}
    plain = _subject(text, ())
    exploring = _exploring(text.kind)(plain, noticed)
    for (promise, assumptions), (library, validator) in promises:
        started = time.monotonic()
        subject = _subject(text, assumptions)
        while True:
            try:
                outcomes = prove(subject, library, settled)
                new = [
                    one
                    for one, outcome in outcomes.items()
                    if one in _CONTRACTS and outcome.word == "proved"
                ]
                fallen = [one for one in outcomes if outcomes[one].word != "proved"]
                twins = red_twins(subject, new, fallen, library)
                validation, of_operations = [], []
                if new:
                    of_operations = _operation_twins(subject, fallen, library)
                    validation = [
                        _validation(validator, subject, library, exploring, assumptions, fallen)
                    ]
                break
            except Unkept as unkept:
                library.prove_anew(unkept)
        known |= outcomes
        settled |= outcomes.keys() - set(fallen)
        seconds = time.monotonic() - started
        for one in new:
            change = twins.get(one)
            twin = RedTwin(NO_TWIN if change is None else change.name, change is not None)
            note = f"refuted without: {_words(refuted[one])}" if one in refuted else ""
            scope = f"unbounded; {promise}"
            all_twins = (twin, *of_operations)
            row = _row(text, subject, one, Outcome.HOLDS, scope, note, seconds, all_twins)
            row = dataclasses.replace(row, work_max=_work(known, one))
            explored = exploring.witness(one, assumptions, change)
            rows[one] = witnessed(row, [explored, *validation])
        refuted |= {one: outcomes[one] for one in fallen if one in _CONTRACTS}
        if rows.keys() >= refuted.keys():
            break
    for one in refuted.keys() - rows.keys():
        word = Outcome.REFUTED if refuted[one].replayed else Outcome.UNKNOWN
        note = _words(refuted[one]) or refuted[one].failing
        rows[one] = _row(text, subject, one, word, f"unbounded; {promise}", note, seconds, ())
    in_order = [one.id for one in all_contracts() if one.id in rows]
    return [row for one in in_order for row in _for_each_target(text, rows[one])]


def _operation_twins(subject: Subject, fallen: Sequence[str], library: Library) -> list[RedTwin]:
    """Of each operation a change of what it runs that shows there: what is proved of it is not
    proved of calls that cannot happen."""
    found = twins_of_operations(subject, fallen, library)
    return [
        RedTwin(f"{name}: {NO_TWIN if change is None else change.name}", change is not None)
        for name, change in found.items()
    ]


def _validation(
    validator: Validator,
    subject: Subject,
    library: Library,
    exploring: Exploring,
    assumptions: Sequence[Assumption],
    fallen: Sequence[str],
) -> Witness:
    try:
        calls = exploring.calls(assumptions)
    except Unexplorable as reason:
        nothing = RedTwin("anything", refuted=False)
        return Witness("validation", f"none: {reason}", "", nothing, unreached="any call")
    return validator.witness(subject, library, calls, fallen)


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


def _subject(text: Text, assumptions: tuple[Assumption, ...]) -> Subject:
    about = SUBJECTS[text.kind]
    if text.release is None:
        return about.of_reference(assumptions)
    return about.of_release(text.release, text.source, assumptions)


def _row(
    text: Text,
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
    """Of all texts that are run, the ghost's among them."""
    return digest_of([source.text for source in subject.sources.values()])


def _for_each_target(text: Text, row: Evidence) -> Iterator[Evidence]:
    for target in text.targets:
        yield dataclasses.replace(row, target=target)
