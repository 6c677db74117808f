"""Every state of small tables of entries: nothing breaks, and what would is found by few calls."""

import threading
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cacheproof.differential.provision.releases import install
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.explore import table_job, tables
from cacheproof.differential.search.explore.table_job import (
    FAULTS,
    VARIANTS,
    TableReport,
    TableTask,
    with_table,
)
from cacheproof.differential.search.explore.tables import SMALL, TableScope, _Search, explore
from cacheproof.differential.targets.host.managers.entry_table import (
    Bytes,
    TableSession,
    TableStates,
)
from cacheproof.differential.targets.host.protocol import HostError
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.variants.entry_table import TABLES, RemovedIsForgotten
from cacheproof.reference.encoder_connector.entry_table import EntryTable
from cacheproof.spec.entry_table import COMPONENT
from cacheproof.spec.evidence import Outcome
from cacheproof.spec.registry import contracts
from tests.differential.search.explore.steps import step

TWO_IN_TWO = SMALL[1]
ONE = SMALL[0]
RELEASES = ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")


@pytest.fixture(scope="module")
def reference() -> TableReport:
    return table_job.run(TableTask("reference", SMALL))


@pytest.mark.full
def test_every_contract_of_the_reference_holds_and_has_refuted_a_red_twin(
    reference: TableReport,
) -> None:
    rows = list(reference.evidence())
    assert {row.outcome for row in rows} == {Outcome.HOLDS}
    assert all(row.counts for row in rows)
    assert {row.contract for row in rows} == VARIANTS.keys()
    assert (reference.unshown, reference.unrefuted) == ([], [])
    assert all(one.closed for one in reference.explorations)


def test_a_row_says_what_was_explored(reference: TableReport) -> None:
    row = next(iter(reference.evidence()))
    assert (row.contract, row.subject, row.method) == ("TB-1", "EntryTable", "exploration")
    assert row.scope.startswith(
        "2 entries, capacity 1: closed: 2 entries of 1 to 2 x capacity 1 x 2 pins, 7 states; 2 ent"
    )


@pytest.mark.parametrize(
    ("contract", "calls"),
    [
        ("TB-1", "begin(x, 1); publish(x); begin(y, 1)"),
        ("TB-2", "begin(x, 1); publish(x); pin(x)"),
        ("TB-3", "begin(x, 1); publish(x); pin(x); pin(x)"),
        ("TB-4", "begin(x, 1); begin(y, 1); publish(x); begin(z, 2)"),
        (
            "TB-5",
            "begin(x, 1); begin(y, 1); publish(x); publish(y); pin(x); unpin(x); begin(z, 1)",
        ),
        ("TB-8", "begin(x, 1); begin(y, 1)"),
    ],
)
def test_a_faulty_table_is_refuted_by_the_fewest_calls(
    reference: TableReport, contract: str, calls: str
) -> None:
    twin, found = reference.twins[contract]
    assert twin.name == VARIANTS[contract]
    assert str(found).startswith(f"{calls}: ")


def test_a_removed_entry_that_is_pinned_keeps_its_room() -> None:
    found = explore(with_table(RemovedIsForgotten), TWO_IN_TWO)
    calls = "begin(x, 1); publish(x); pin(x); remove(x)"
    assert str(found.broken["TB-3", ""]).startswith(f"{calls}: ")


def test_a_scope_without_what_a_fault_needs_closes_and_misses_it() -> None:
    """Red twin of the scopes: where one entry fills the table, their order is never seen."""
    found = explore(with_table(TABLES[VARIANTS["TB-5"]]), ONE)
    assert found.closed
    assert found.broken == {}


def test_a_report_of_too_little_names_what_was_not_seen_to_fail() -> None:
    report = table_job.run(TableTask("reference", (ONE,)))
    assert set(report.unshown) == {"TB-4", "TB-5"}
    assert set(report.unrefuted) == {VARIANTS["TB-4"], VARIANTS["TB-5"]}


def test_renaming_makes_fewer_states_of_the_same_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    with_names = explore(ReferenceTarget(), TWO_IN_TWO)
    monkeypatch.setattr(TableScope, "renamings", [{name: name for name in "xy"}])
    without = explore(ReferenceTarget(), TWO_IN_TWO)
    assert with_names.states * 3 < without.states * 2 <= with_names.states * 4
    assert without.closed


def test_states_that_a_random_walk_comes_by_have_all_been_met() -> None:
    """The walk knows no symmetry, and goes on from the state that it is in."""
    whole = _Search(ReferenceTarget(), TWO_IN_TWO, None)
    whole.run(10**6, None)
    random = Random(1)
    for _ in range(20):
        search = _Search(ReferenceTarget(), TWO_IN_TWO, None)
        state = search._level[0]
        for _ in range(40):
            step(search, state)
            assert search._keys <= whole._keys
            state = random.choice(search._level)


def test_a_search_that_is_cut_off_says_how_many_calls_it_covered() -> None:
    found = explore(ReferenceTarget(), TWO_IN_TWO, transitions_max=100)
    assert not found.closed
    assert found.reach.startswith(f"up to {found.events} calls: 2 entries")


class _Opaque(EntryTable):
    """Holds what no tree can say."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.held = Exception()


def test_a_table_that_cannot_be_put_back_is_refused_by_name() -> None:
    with pytest.raises(HostError, match="holds a Exception"):
        explore(with_table(_Opaque), ONE)


@pytest.mark.full
@pytest.mark.parametrize("version", RELEASES)
def test_the_table_of_a_release_refuses_nothing_but_what_is_too_large_by_an_exception(
    version: str,
) -> None:
    install(version, report=print)
    report = table_job.run(TableTask(f"vllm@{version}", SMALL))
    assert report.broken.keys() == {("TB-8", tables.TOO_LARGE)}
    assert str(report.broken["TB-8", tables.TOO_LARGE]) == "begin(x, 2): AssertionError is raised"
    promised = [rule.id for rule in contracts(COMPONENT, version)]
    assert [row.contract for row in report.evidence()] == promised
    assert (report.unshown, report.unrefuted) == ([], [])
    assert report.unlisted.keys() == {("TB-8", tables.TOO_LARGE)}
    report.annotate(fault_folders.load())
    assert report.is_listed("TB-8")
    assert all(one.closed for one in report.explorations)


@pytest.mark.full
def test_a_release_without_a_table_has_no_rows() -> None:
    install("0.25.1", report=print)
    report = table_job.run(TableTask("vllm@0.25.1", (ONE,)))
    assert report.missing == "vLLM 0.25.1 has no EmbeddingCache"
    assert (list(report.evidence()), report.unshown) == ([], [])


@pytest.mark.full
def test_two_entries_more_and_the_reference_still_holds() -> None:
    found = explore(ReferenceTarget(), replace(TWO_IN_TWO, entries="wxyz", capacity=3))
    assert found.closed
    assert found.broken == {}


def test_a_lock_that_a_call_has_left_taken_is_no_state() -> None:
    table: Any = EntryTable(1)
    session = TableSession({"pins_max": 1}, Bytes(table))
    table._lock = threading.Lock()
    assert TableStates(session).now().key == TableStates(session).now().key
    with table._lock, pytest.raises(HostError, match="lock taken"):
        TableStates(session).now()


def test_the_table_of_a_reference_with_old_decisions_is_the_same() -> None:
    report = table_job.run(TableTask("reference@0.28.0", (ONE,)))
    assert report.name == "EntryTable"
    assert {row.contract for row in report.evidence()} == VARIANTS.keys()


def test_contracts_are_planted_against_one_by_one() -> None:
    assert [rule.id for rule in contracts(COMPONENT)] == list(FAULTS)
    assert VARIANTS.keys() == FAULTS.keys() - tables.OF_REGIONS
