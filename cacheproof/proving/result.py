"""From rows of evidence to the record that formats are written from."""

from collections.abc import Mapping, Sequence

from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.texts import places
from cacheproof.differential.texts.places import SourceFunction, SourcePlace
from cacheproof.formats.result import Case, Excuse, Problem, Result, Suite, rule_of
from cacheproof.proving.targets import CHECKOUT, REFERENCE, Tree
from cacheproof.spec.evidence import Evidence, Outcome
from cacheproof.spec.registry import contracts


def result_of(
    tree: Tree | None,
    rows: Sequence[Evidence],
    listed: Mapping[Evidence, KnownFault],
    *,
    is_interrupted: bool,
) -> Result:
    """What is proved of a tree, or of the reference, where it is None: a suite for each method and
    class, a case for each contract. Of `rows` those of other targets are left out."""
    name = REFERENCE if tree is None else tree.name
    suites: dict[str, list[Case]] = {}
    for row in rows:
        if row.target == name:
            case = _case(row, tree, listed.get(row))
            suites.setdefault(f"{row.method} {row.subject}", []).append(case)
    return Result(
        name,
        tuple(Suite(part, tuple(cases)) for part, cases in suites.items()),
        is_own=name.startswith(CHECKOUT) or (tree is not None and tree.plug_in is not None),
        void=() if suites or is_interrupted else ("nothing was proved",),
        is_interrupted=is_interrupted,
    )


def _case(row: Evidence, tree: Tree | None, listed: KnownFault | None) -> Case:
    rule = rule_of(row.contract)
    if row.outcome is Outcome.REFUTED:
        return Case(rule, row.scope, (_problem(row, rule.harm, tree, listed),))
    if row.outcome is not Outcome.HOLDS:
        return Case(rule, row.scope, void=f"{row.outcome}: {row.note}")
    hollow = "it holds, and no change that breaks it was refuted"
    return Case(rule, row.scope, void="" if row.counts else hollow)


def _problem(row: Evidence, harm: str, tree: Tree | None, listed: KnownFault | None) -> Problem:
    calls = next((one.calls for one in contracts() if one.id == row.contract), frozenset())
    function = places.of_class(row.subject, calls)
    excuse = None
    if listed is not None:
        reason = f"listed as {listed.name}: {listed.title}"
        excuse = Excuse(reason, listed.name, listed.page or "")
    return Problem(
        harm,
        f"{row.contract} of {row.subject} is refuted by {row.method}",
        row.note,
        kind=row.method,
        shape=row.subject,
        way=() if function is None else (function,),
        place=_place(tree, row.subject, function),
        excuse=excuse,
    )


def _place(tree: Tree | None, subject: str, function: SourceFunction | None) -> SourcePlace | None:
    """Where a function stands; that of a plug-in's class in the plug-in's own file."""
    if tree is None or function is None:
        return None
    if tree.plug_in is None:
        return places.find(tree.release.tree, function)
    plugged = tree.place_of(subject)
    return None if plugged is None else places.find_plugged(*plugged, function)
