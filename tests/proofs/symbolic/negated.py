"""Contracts that claim the contrary, which proofs must not say to hold."""

import ast
from dataclasses import replace

from cacheproof.proofs.symbolic.checking.twins import SIZE
from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.rules.rules import Predicate
from cacheproof.proofs.symbolic.values.values import Universe


def is_refuted_negated(subject: Subject, contract: str) -> bool:
    """Whether what a contract denies is refuted of some operation, as it must be of one that can
    be seen to hold."""
    negated = replace(
        subject,
        invariants=[_negation(one, contract) for one in subject.invariants],
        transitions={
            operation: [_negation(one, contract) for one in rules]
            for operation, rules in subject.transitions.items()
        },
        replay=None,
    )
    refuter = Refuter(negated, [RuleLanguage(Universe(SIZE))])
    judged = [one for one in subject.operations if contract in subject.judged_at(one)]
    return any(refuter.counterexample(one, contract, {contract}) for one in judged)


def _negation(rule: Predicate, id: str) -> Predicate:
    """The rule, or what it denies where it has this id: what holds of it must fail."""
    if rule.id != id:
        return rule
    return replace(rule, tree=ast.UnaryOp(ast.Not(), rule.tree))
