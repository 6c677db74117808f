"""Red twins: for each rule that is proved of a class, a change of its text that breaks the rule;
and for each operation, a change of what it runs that shows at that very operation."""

import ast
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from cacheproof.proofs.symbolic.checking.mutants import EVERY, FOR_TWINS, ClassMutant, mutants
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.deciding.subject import Operation, Subject
from cacheproof.proofs.symbolic.reading.source import reached_from
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.values import Universe

FAILS = "'assert False' first"
SIZE = 2
"""Elements of the universe in which twins are refuted."""
CHANGES_AT_ONCE = 2
"""Changes that are tried together: the rule that is likeliest to break is asked of each before the
other rules of any. Most changes that break an operation break that rule, and one that breaks
nothing costs a look for every rule."""


def red_twins(
    subject: Subject,
    rules: Collection[str],
    without: Collection[str] = (),
    library: ProverLibrary | None = None,
) -> dict[str, ClassMutant]:
    """Rule -> the first mutant of which it is refuted, `without` the rules that do not stand.

    A rule that no mutant breaks is missing.
    """
    found: dict[str, ClassMutant] = {}
    library = library or ProverLibrary()
    for mutant, owner, asked in _changes(subject, rules):
        missing = [rule for rule in asked if rule not in found]
        for rule in refuted_of(subject, mutant, missing, without, owner, library):
            found[rule] = mutant
        if len(found) == len(rules):
            break
    return found


def twins_of_operations(
    subject: Subject, without: Collection[str], library: ProverLibrary
) -> dict[str, ClassMutant | None]:
    """Operation -> the first change of a method that it runs by which it breaks a rule, `without`
    the rules that do not stand; None where there is none. Its own method is changed before others,
    and the ghost's where it runs no method of the class."""
    found: dict[str, ClassMutant | None] = {}
    for operation in subject.operations:
        asked = subject.reading_of(operation), frozenset(without)
        if asked not in library.twins:
            library.twins[asked] = _twin_of(subject, operation, without, library)
        found[operation.name] = library.twins[asked]
    return found


def _twin_of(
    subject: Subject, operation: Operation, without: Collection[str], library: ProverLibrary
) -> ClassMutant | None:
    changes = _changes_within(subject, operation)
    while several := list(islice(changes, CHANGES_AT_ONCE)):
        asked = [
            (mutant, *_asked_of(subject, operation, mutant, owner, without, library))
            for mutant, owner in several
        ]
        for among in (slice(1), slice(1, None)):
            for mutant, refuter, rules in asked:
                # an exception: the change led out of what can be read
                with suppress(Exception):
                    if any(refuter.is_soon_refuted(operation, r, without) for r in rules[among]):
                        return mutant
    return None


def _asked_of(
    subject: Subject,
    operation: Operation,
    mutant: ClassMutant,
    owner: str,
    without: Collection[str],
    library: ProverLibrary,
) -> tuple[Refuter, list[str]]:
    """Who looks for a rule that an operation breaks with a change, and the rules, the soonest
    broken one first."""
    broken = replace(subject, sources={**subject.sources, owner: mutant.source}, replay=None)
    # What is found of ghosts is not to be taken for what is found of the ghost.
    of_class = owner in subject.under_proof
    refuter = library.refuter_of_change(broken) if of_class else Refuter(broken, library.few[:1])
    rules = [one for one in broken.judged_at(operation) if one not in without]
    if mutant.name.endswith(FAILS):  # which nothing but the failing of it could break
        rules = [broken.safety]
    # most changes that break an operation break this one (CHANGES_AT_ONCE)
    rules.sort(key=lambda rule: rule != broken.safety)
    return refuter, rules


def _changes_within(subject: Subject, operation: Operation) -> Iterator[tuple[ClassMutant, str]]:
    """Every change of what an operation runs; last, that it fails at once."""
    of_class = bool(operation.method)
    owners = [one for one in subject.sources if (one in subject.under_proof) == of_class]
    method = operation.method or operation.name
    reached = reached_from(method, [subject.sources[one] for one in owners])
    for changes in (EVERY, FOR_TWINS, (_fails,)):
        made = [
            (mutant, owner)
            for owner in owners
            for mutant in mutants(subject.sources[owner], changes, reached)
        ]
        yield from sorted(made, key=lambda one: one[0].method != method)


def _fails(method: ast.FunctionDef, node: ast.AST) -> str | None:
    if node is not method:
        return None
    method.body.insert(0, ast.parse("assert False").body[0])
    return FAILS


def _changes(
    subject: Subject, rules: Collection[str]
) -> Iterator[tuple[ClassMutant, str, Collection[str]]]:
    """Every mutant with its owner and the rules that are asked of it; first, for each rule, those
    of a method that it is known to hang on."""
    for rule in rules:
        if rule in subject.hangs_on:
            owner, method = subject.hangs_on[rule]
            for mutant in mutants(subject.sources[owner]):
                if mutant.method == method:
                    yield mutant, owner, (rule,)
    for owner in subject.under_proof:
        for mutant in mutants(subject.sources[owner]):
            yield mutant, owner, rules


def refuted_of(
    subject: Subject,
    mutant: ClassMutant,
    rules: Collection[str],
    without: Collection[str] = (),
    owner: str = "m",
    library: ProverLibrary | None = None,
) -> list[str]:
    """The rules, among these, that a counterexample refutes of a mutant."""
    if not rules:
        return []
    broken = replace(subject, sources={**subject.sources, owner: mutant.source}, replay=None)
    refuter = (library or ProverLibrary()).refuter_of_change(broken)
    found: list[str] = []
    for operation in _running(broken, mutant):
        for rule in broken.judged_at(operation):
            if rule in rules and rule not in found and rule not in without:
                try:
                    broken_there = refuter.counterexample(operation, rule, without)
                except NotTranslated:
                    break  # the change led out of what can be read
                if broken_there:
                    found.append(rule)
    return found


def first_broken(
    subject: Subject, mutant: ClassMutant, contracts: Collection[str], owner: str = "m"
) -> str | None:
    """A contract that a mutant breaks, if need be by way of invariants that fall before it.

    Raises:
        NotTranslated: the change led out of what can be read.
    """
    broken = replace(subject, sources={**subject.sources, owner: mutant.source}, replay=None)
    refuter = Refuter(broken, [RuleLanguage(Universe(SIZE))])
    fallen: set[str] = set()
    asked = [(one, rule) for one in broken.operations for rule in refuter.rules(one)]
    # contracts first: invariants need fall only where no contract is broken with them
    asked.sort(key=lambda one: one[1] not in contracts)
    settled = False
    while not settled:
        settled = True
        for operation, rule in asked:
            if rule in fallen or not refuter.counterexample(operation, rule, fallen):
                continue
            if rule in contracts:
                return rule
            # from the start again: with less that is known a contract may be broken now
            fallen.add(rule)
            settled = False
            break
    return None


def _running(subject: Subject, mutant: ClassMutant) -> Iterator[Operation]:
    """The operations that run what was changed, but for those that only repeat others."""
    texts = [subject.sources[owner] for owner in subject.under_proof]
    for operation in subject.operations:
        if mutant.method in reached_from(operation.method, texts):
            yield operation
