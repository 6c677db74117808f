"""The table of entries is proved by its text, and changes of it are not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
import z3

from cacheproof.differential.search.explore.table_job import VARIANTS
from cacheproof.differential.variants.entry_table import TABLES, RemovedIsForgotten
from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.checking.entry_table_validation import (
    TableCallMade,
    calls_of,
    universe,
)
from cacheproof.proofs.symbolic.checking.twins import refuted_of
from cacheproof.proofs.symbolic.checking.validator import ShownCalls, Validator
from cacheproof.proofs.symbolic.deciding.prove import RuleOutcome
from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.deciding.subject import Names, Operation
from cacheproof.proofs.symbolic.evidence import prove_texts
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects import entry_table
from cacheproof.proofs.symbolic.subjects.entry_table import OF_BEGIN, SAFETY, STATE, of_reference
from cacheproof.proofs.symbolic.texts import texts_of
from cacheproof.proofs.symbolic.values.values import Universe
from cacheproof.proofs.witness.entry_table import SETTINGS, explore
from cacheproof.reference.encoder_connector.entry_table import EntryTable
from cacheproof.spec import evidence
from tests.proofs.symbolic.negated import is_refuted_negated
from tests.proofs.symbolic.test_block_pool import changed

SUBJECT = of_reference()
PROVED = (*STATE, *OF_BEGIN, SAFETY)
FOUND_TOGETHER = 6_000


@pytest.fixture(scope="module")
def outcomes(prove_alone: Callable[[str], Mapping[str, RuleOutcome]]) -> Mapping[str, RuleOutcome]:
    return prove_alone("entry_table")


def test_every_contract_and_all_that_is_only_for_the_proof_is_proved(
    outcomes: Mapping[str, RuleOutcome],
) -> None:
    assert {one.word for one in outcomes.values()} == {"proved"}
    assert {*PROVED} <= outcomes.keys()
    assert max(one.work_max for one in outcomes.values()) < 0.1


@pytest.mark.full
def test_both_witnesses_agree_and_each_notices_a_change() -> None:
    rows = prove_texts(texts_of("EntryTable", []))
    assert {row.contract for row in rows} == {*PROVED}
    assert {row.outcome for row in rows} == {evidence.Outcome.HOLDS}
    assert all(row.counts for row in rows)


@pytest.mark.parametrize("contract", [*STATE, *OF_BEGIN])
def test_a_negated_contract_is_refuted(contract: str) -> None:
    assert is_refuted_negated(SUBJECT, contract)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("method", "old", "new", "contract"),
    [
        ("begin", "self.free -= size", "pass", "TB-1"),
        ("begin", "size > self.free + self.evictable", "False", "TB-8"),
        ("begin", "size > self.free + self.evictable", "size > self.free", "TB-4"),
        ("begin", "while size > self.free:", "while size >= self.free:", "TB-5"),
        ("begin", "while size > self.free:", "while False:", "TB-1"),
        ("publish", "self.pins[entry] = 0", "self.pins[entry] = 1", "TB-2"),
        ("publish", "self._rest(entry)", "pass", "TB-2"),
        ("abandon", "self.free += self.sizes.pop(entry)", "pass", "TB-3"),
        ("pin", "self.evictable -= self.idle.pop(entry)", "pass", "TB-2"),
        ("pin", "self.pins[entry] += 1", "self.pins[entry] = 1", "TB-3"),
        ("pin", "entry not in self.order", "False", "TB-8"),
        ("unpin", "if self.pins[entry] > 0:", "if False:", "TB-2"),
        ("unpin", "self.free += self.sizes.pop(entry)", "self.sizes.pop(entry)", "TB-1"),
        ("remove", "if entry in self.idle:", "if entry in self.order:", "TB-8"),
        ("_drop", "self.evictable -= self.idle.pop(entry)", "self.idle.pop(entry)", "TB-2"),
        ("_drop", "self.free += self.sizes.pop(entry)", "self.sizes.pop(entry)", "TB-1"),
        ("_rest", "self.evictable += self.sizes[entry]", "pass", "TB-2"),
        ("__init__", "self.free = capacity", "self.free = 0", "TB-1"),
    ],
)
def test_a_change_of_the_text_breaks_a_contract(
    method: str, old: str, new: str, contract: str
) -> None:
    mutant = changed(SUBJECT, "m", method, old, new)
    assert refuted_of(SUBJECT, mutant, [contract]) == [contract]


def operation(name: str) -> Operation:
    (found,) = [one for one in SUBJECT.operations if one.name == name]
    return found


def refuter_of(method: str, old: str, new: str) -> Refuter:
    """Of a changed text, among three entries: one is pinned, one is idle, one is to be written."""
    mutant = changed(SUBJECT, "m", method, old, new)
    broken = replace(SUBJECT, sources={**SUBJECT.sources, "m": mutant.source})
    return Refuter(broken, [RuleLanguage(Universe(3))])


def test_another_order_of_use_breaks_a_contract_by_way_of_what_is_known_of_it() -> None:
    refuter = refuter_of("pin", "last=True", "last=False")
    assert refuter.counterexample(operation("pin"), "found_in_order")
    assert refuter.counterexample(operation("begin"), "TB-5", {"found_in_order"})


def test_evicting_whatever_was_used_first_breaks_a_contract() -> None:
    refuter = refuter_of("_first_idle", "if entry in self.idle:", "if True:")
    assert refuter.counterexample(operation("begin"), SAFETY)


@pytest.mark.parametrize(
    ("owed", "name"),
    [
        (entry_table.NOBODY, "begin"),
        ("writing", "publish"),
        ("writing", "abandon"),
        ("pins", "unpin"),
    ],
)
def test_no_proof_does_without_what_a_caller_owes(
    monkeypatch: pytest.MonkeyPatch, owed: str, name: str
) -> None:
    keeps = entry_table._owed

    def keeps_others(names: Names, entry: z3.ExprRef, having: str) -> Formula:
        return having == owed or keeps(names, entry, having)

    monkeypatch.setattr(entry_table, "_owed", keeps_others)
    refuter = Refuter(of_reference(), [RuleLanguage(Universe(2))])
    assert any(refuter.counterexample(operation(name), rule) for rule in PROVED)


# CPython


@cache
def calls(table: type[EntryTable]) -> Mapping[str, Sequence[TableCallMade]]:
    return calls_of([explore(table, one, (), 2_000) for one in SETTINGS])


@pytest.fixture(scope="module")
def shows() -> Callable[[type[EntryTable], str], ShownCalls]:
    validator = Validator(universe())

    def show(table: type[EntryTable], name: str) -> ShownCalls:
        return validator.shown(SUBJECT, operation(name), calls(table)[name])

    return show


def test_the_table_breaks_nothing() -> None:
    found = [explore(EntryTable, one, PROVED, FOUND_TOGETHER) for one in SETTINGS]
    assert [one.broken for one in found] == [{}] * len(SETTINGS)


@pytest.mark.full
@pytest.mark.parametrize(("contract", "name"), VARIANTS.items())
def test_a_table_that_breaks_a_contract_is_seen_to(contract: str, name: str) -> None:
    found = [explore(TABLES[name], one, PROVED, FOUND_TOGETHER) for one in SETTINGS]
    assert any(contract in one.broken for one in found)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [one.name for one in SUBJECT.operations])
def test_what_the_table_does_is_admitted_and_nothing_else(
    shows: Callable[[type[EntryTable], str], ShownCalls], name: str
) -> None:
    shown = shows(EntryTable, name)
    assert (shown.against, shown.unread) == ("", "")
    assert shown.calls == shown.refused > 0


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("table", "name"),
    [
        (TABLES[VARIANTS["TB-1"]], "begin"),
        (TABLES[VARIANTS["TB-4"]], "begin"),
        (TABLES[VARIANTS["TB-5"]], "pin"),
        (RemovedIsForgotten, "remove"),
    ],
)
def test_a_table_that_is_not_its_text_is_named(
    shows: Callable[[type[EntryTable], str], ShownCalls], table: type[EntryTable], name: str
) -> None:
    shown = shows(table, name)
    assert shown.against.startswith(f"{name}(")
    assert shown.against.endswith("which no path admits")
