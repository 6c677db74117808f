"""Every fault is caught, no contract is idle, and the page that says so is current."""

from dataclasses import replace
from pathlib import Path

import pytest

from cacheproof.differential.search.gallery.kill_matrix import (
    KEPT_BECAUSE,
    VARIANTS,
    KillMatrix,
    Variant,
    kill_matrix,
    killers,
    runnable,
)
from cacheproof.differential.search.gallery.variant import AS_NEWEST, BLOCK_HASH
from cacheproof.differential.targets.reference_manager import MANAGERS
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "kill-matrix.md"
A_FEW_SEEDS = range(25)


@pytest.fixture(scope="module")
def matrix() -> KillMatrix:
    return kill_matrix()


@pytest.mark.full
def test_every_variant_is_caught(matrix: KillMatrix) -> None:
    assert [variant.name for variant in matrix.survivors] == []
    assert len(matrix.kills) >= 20


@pytest.mark.full
def test_the_unmodified_reference_is_caught_by_nothing_over_the_same_seeds(
    matrix: KillMatrix,
) -> None:
    assert matrix.false_alarms == frozenset()


@pytest.mark.full
def test_every_contract_kills_what_no_other_does_or_says_why_it_stays(matrix: KillMatrix) -> None:
    covered = {rule.id for rule in matrix.contracts if matrix.covered_by(rule.id)}
    assert covered == set(KEPT_BECAUSE)


@pytest.mark.full
def test_a_contract_that_always_held_would_lose_a_kill(matrix: KillMatrix) -> None:
    assert [rule.id for rule in matrix.contracts if not matrix.killed_by(rule.id)] == []


@pytest.mark.full
def test_the_page_in_docs_is_current(matrix: KillMatrix) -> None:
    assert PAGE.read_text() == matrix.to_markdown(), (
        "write KillMatrix.to_markdown() to docs/evidence/kill-matrix.md"
    )


def test_of_a_component_those_variants_are_run_that_its_contracts_judge() -> None:
    part = kill_matrix(range(1), component="block_hash")
    assert {one.manager for one in part.kills} == {BLOCK_HASH}
    assert {rule.component for rule in part.contracts} == {"block_hash"}
    assert "Here are only the variants of" in part.to_markdown()


@pytest.mark.sample(3)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_a_variant_says_what_it_does_on_one_line(variant: Variant) -> None:
    """A row of the page; and Pythons differ in how they indent the docstrings they keep."""
    assert variant.sentence == " ".join(variant.sentence.split())


def lacks_what_the_newest_release_lacks(variant: Variant) -> bool:
    newest = Semantics.of_vllm(NEWEST).flags
    return any(not (stands or newest[flag]) for flag, stands in variant.semantics.flags.items())


def test_a_variant_that_is_as_the_newest_release_lacks_what_that_lacks() -> None:
    told = [variant for variant in VARIANTS if AS_NEWEST in variant.sentence]
    assert len(told) >= 20
    assert [one.name for one in told if not lacks_what_the_newest_release_lacks(one)] == []
    assert not lacks_what_the_newest_release_lacks(_named("discarded-token-stays"))


@pytest.mark.full
def test_json_names_each_variant_and_its_killers(matrix: KillMatrix) -> None:
    rows = {row["name"]: row["killed_by"] for row in matrix.to_json()["variants"]}
    assert rows["stale-notice"] == ["EC-9"]
    assert rows["refuses-exact-fit"] == ["EC-12"]
    assert len(rows) == len(VARIANTS)


@pytest.mark.parametrize(
    ("name", "contracts"),
    [
        ("decoder-credits-every-release", {"ED-1", "ED-2"}),
        ("first-occurrence-releases", {"EC-6"}),
        ("stale-notice", {"EC-9"}),
        ("decoder-reports-at-once", {"ED-3", "WM-4"}),
    ],
)
def test_a_public_bug_breaks_the_contracts_that_speak_of_it(name: str, contracts: set[str]) -> None:
    assert contracts <= killers(_named(name))


@pytest.mark.sample(9)
@pytest.mark.parametrize("variant", [*runnable()][::10], ids=lambda one: one.name)
def test_one_in_ten_variants_is_caught(variant: Variant) -> None:
    assert killers(variant)


def test_the_same_seeds_give_the_same_killers() -> None:
    variant = _named("hit-keeps-entry-queued")
    assert killers(variant, A_FEW_SEEDS) == killers(variant, A_FEW_SEEDS)


def test_a_variant_without_a_fault_survives() -> None:
    harmless = replace(_named("stale-notice"), factory=MANAGERS["encoder_cache"])
    assert killers(harmless, A_FEW_SEEDS) == frozenset()


def _named(name: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.name == name)
