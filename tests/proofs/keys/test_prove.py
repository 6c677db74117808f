"""The keys of the reference are proved and their red twins refuted; releases collide as known."""

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import chain

import pytest

from cacheproof.differential.targets.resolve import resolve
from cacheproof.proofs.keys.ambiguity import LayoutReader
from cacheproof.proofs.keys.block_extra import Hashing
from cacheproof.proofs.keys.checks import (
    beside_confusion,
    chain_failure,
    growth_failure,
    identifier_confusion,
    media_confusion,
)
from cacheproof.proofs.keys.media import Texts, merged_tags
from cacheproof.proofs.keys.mutants import (
    HARMLESS,
    mutants,
    shifted_comparison,
    without_a_part,
    without_a_yield,
    without_an_element,
    without_an_operand,
)
from cacheproof.proofs.keys.prove import (
    BESIDE,
    BLOCK_RELEASES,
    ENCODES,
    IDENTIFIER_RELEASES,
    KEYED_RELEASES,
    MEDIA_RELEASES,
    NAMES,
    Own,
    prove_keys,
    prove_keys_of,
)
from cacheproof.proofs.keys.texts import text_of
from cacheproof.proving.own_run import OwnRun
from cacheproof.reference import block_hash, media_identifier
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.spec.evidence import Evidence, Outcome

pytestmark = pytest.mark.full

SEEDS = range(5)


@pytest.fixture(scope="module")
def rows() -> list[Evidence]:
    """Those of the newest release beside its own run, those of older ones without."""
    with closing(resolve(f"vllm@{NEWEST}", report=print)) as target:
        own = OwnRun(target, Semantics.of_vllm(NEWEST))
        return proved(0, {NEWEST: own})


def proved(seed: int, own: Mapping[str, Own]) -> list[Evidence]:
    of_releases = [prove_keys_of(one, seed, own.get(one)) for one in sorted(KEYED_RELEASES)]
    return [*prove_keys(seed), *chain(*of_releases)]


def test_the_reference_is_proved(rows: list[Evidence]) -> None:
    proved = {row.contract: row.outcome for row in rows if row.target == "reference"}
    assert proved == dict.fromkeys(
        ("lists", "MH-1", "MH-3", "ID-1", "BK-1", "BK-2", "BK-3"), Outcome.HOLDS
    )


def test_every_row_has_twins_and_refuted_them_all(rows: list[Evidence]) -> None:
    assert [row for row in rows if not row.counts] == []
    assert sum(len(row.twins) for row in rows) > 80


def test_what_holds_does_so_beside_witnesses_that_can_notice(rows: list[Evidence]) -> None:
    held = [row for row in rows if row.outcome is Outcome.HOLDS]
    assert len(held) == 9
    for row in held:
        readings = ["exploration"] if row.contract == "lists" else ["exploration", "validation"]
        readings += ["the release itself"] * (row.target != "reference")
        assert [one.name for one in row.witnesses] == readings
        assert all(one.twin.refuted for one in row.witnesses)
        assert {(one.against, one.vacuous, one.unreached) for one in row.witnesses} == {
            ("", "", "")
        }


def test_nothing_is_unknown_and_what_is_refuted_says_why(rows: list[Evidence]) -> None:
    assert [row for row in rows if row.outcome is Outcome.UNKNOWN] == []
    assert all(bool(row.note) == (row.outcome is not Outcome.HOLDS) for row in rows)


def test_releases_are_refuted_as_far_as_they_collide(rows: list[Evidence]) -> None:
    held = {(row.contract, row.target, row.subject): row.outcome for row in rows}
    refuted = {key[:2] for key, outcome in held.items() if outcome is Outcome.REFUTED}
    assert refuted == {
        *(("MH-3", f"vllm@{release}") for release in MEDIA_RELEASES),
        *(("ID-1", f"vllm@{release}") for release in IDENTIFIER_RELEASES),
        *(("BK-1", f"vllm@{release}") for release in BLOCK_RELEASES),
        *(("BK-3", f"vllm@{release}") for release in ("0.12.0", "0.18.1", "0.30.0")),
    }
    frames = "MultiModalHasher: None, texts, lists, and mappings from texts"
    assert held["MH-3", "vllm@0.33.0", frames] is Outcome.HOLDS
    assert held["MH-3", "vllm@0.31.0", frames] is Outcome.ALONE
    assert held["BK-3", "vllm@0.33.0", "items of a block"] is Outcome.HOLDS


def test_an_item_that_a_key_forgets_is_shown(rows: list[Evidence]) -> None:
    (note,) = (row.note for row in rows if (row.contract, row.target) == ("BK-3", "vllm@0.30.0"))
    assert re.search(r"such as item 0 of 2 at \[\d+, \d+\) and tokens .*, keys before it: 1$", note)


def verdicts(rows: list[Evidence]) -> list[tuple[object, ...]]:
    return [(row.contract, row.target, row.subject, row.outcome, row.twins) for row in rows]


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS[1:])
def test_the_seed_of_the_solver_does_not_matter(seed: int, rows: list[Evidence]) -> None:
    with closing(resolve(f"vllm@{NEWEST}", report=print)) as target:
        own = OwnRun(target, Semantics.of_vllm(NEWEST))
        assert verdicts(proved(seed, {NEWEST: own})) == verdicts(rows)


@pytest.mark.full
def test_changes_that_are_called_harmless_are_and_all_of_them_occur() -> None:
    texts, block, ideal = Texts(), text_of(block_hash), BlockKeySemantics()
    reader = LayoutReader()
    checks: list[tuple[str, Callable[[], str | None]]] = []
    for one in mutants(texts.content, ENCODES, merged_tags, without_an_element):
        changed = Texts(content=one.text)
        checks.append((one.name, lambda changed=changed: media_confusion(reader, changed)))
    edits = without_an_element, without_a_yield, without_an_operand
    for one in mutants(block, BESIDE, *edits):
        text = one.text
        checks.append((one.name, lambda text=text: beside_confusion(0, Hashing(ideal), text)))
    for one in mutants(block, ("hasher",), without_an_element, without_an_operand):
        text = one.text
        checks.append((one.name, lambda text=text: chain_failure(0, text)))
    for one in mutants(text_of(media_identifier), NAMES, without_a_part):
        text = one.text
        checks.append((one.name, lambda text=text: identifier_confusion(0, text)))
    for one in mutants(block, ("_of_items",), shifted_comparison):
        text = one.text
        checks.append((one.name, lambda text=text: growth_failure(ideal, 0, text)))
    harmless = [check for name, check in checks if name in HARMLESS]
    assert {name for name, _ in checks} >= HARMLESS.keys()
    assert [found for check in harmless if (found := check()) is not None] == []
