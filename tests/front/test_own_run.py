"""A row about a release's keys holds if the release itself writes what the proved text writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.targets.base import Target
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.proofs.keys.exploration import ExploredKeys
from cacheproof.proofs.keys.prove import prove_keys_of
from cacheproof.proofs.keys.texts import text_of
from cacheproof.proving.own_run import OwnRun
from cacheproof.reference import block_hash, media_hash_of_vllm
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.evidence import Evidence, Outcome

RELEASE = "0.33.0"
SEMANTICS = Semantics.of_vllm(RELEASE)


@pytest.fixture(scope="session")
def release(newest: Target) -> Target:
    return newest


@pytest.fixture(scope="module")
def own(release: Target) -> OwnRun:
    return OwnRun(release, SEMANTICS)


@dataclass(frozen=True)
class Faulty:
    """A release with a fault planted in it."""

    release: Target
    fault: str

    def run(self, traces: Sequence[Trace]) -> list[TraceResult]:
        return self.release.run(traces, self.fault)


def with_fault(release: Target, fault: str) -> OwnRun:
    return OwnRun(Faulty(release, fault), SEMANTICS)  # type: ignore[arg-type]


def held(rows: Sequence[Evidence]) -> dict[tuple[str, str], Outcome]:
    """The rows of which the proof does not refute the contract."""
    return {
        (row.contract, row.subject): row.outcome
        for row in rows
        if row.outcome is not Outcome.REFUTED
    }


def test_the_release_writes_what_the_text_writes(own: OwnRun) -> None:
    assert own.of_frames(text_of(media_hash_of_vllm)) == ExploredKeys("2,113 digests", "")
    assert own.of_growth(text_of(block_hash)) == ExploredKeys("8,904 requests", "")


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        (media_hash_of_vllm, 'size.to_bytes(8, "little")', 'size.to_bytes(8, "big")'),
        (media_hash_of_vllm, 'yield _SEQUENCE + len(value)', 'yield _SEQUENCE + len(value[1:])'),
        (block_hash, "tuple(tokens[start:end]), extra", "tuple(tokens[start:end]), None"),
        (block_hash, "start == 0 and self._request.cache_salt", "self._request.cache_salt"),
    ],
)  # fmt: skip
def test_a_text_that_writes_otherwise_is_noticed(
    own: OwnRun, module: object, before: str, after: str
) -> None:
    text = text_of(module)
    assert text.count(before) == 1
    explore = own.of_frames if module is media_hash_of_vllm else own.of_growth
    assert explore(text.replace(before, after)).against


@pytest.mark.full
@pytest.mark.parametrize("fault", ["hashes_growth_otherwise", "forgets_items"])
def test_a_release_whose_keys_are_others_disagrees(release: Target, fault: str) -> None:
    faulty = with_fault(release, fault)
    own = SimpleNamespace(of_frames=None, of_growth=faulty.of_growth)
    assert held(prove_keys_of(RELEASE, 0, own))["BK-3", "items of a block"] is Outcome.DISAGREE


@pytest.mark.parametrize("fault", ["never_repeats", "forgets_kinds_of_containers"])
def test_a_release_whose_digests_are_others_disagrees(release: Target, fault: str) -> None:
    assert with_fault(release, fault).of_frames(text_of(media_hash_of_vllm)).against


@pytest.mark.full
def test_a_run_that_agrees_with_everything_makes_no_row_green(
    own: OwnRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnRun, "_other_keys", lambda *_: iter([None]))
    monkeypatch.setattr(OwnRun, "_other_digests", lambda *_: iter([None]))
    assert set(held(prove_keys_of(RELEASE, 0, own)).values()) == {Outcome.ALONE}


@pytest.mark.full
def test_a_release_that_is_not_run_leaves_its_rows_alone() -> None:
    rows = held(prove_keys_of(RELEASE))
    assert len(rows) == 2
    assert set(rows.values()) == {Outcome.ALONE}


@pytest.mark.full
def test_a_host_that_breaks_is_no_disagreement(release: Target) -> None:
    with pytest.raises(HarnessError):
        prove_keys_of(RELEASE, 0, with_fault(release, "no such fault"))


@pytest.mark.full
def test_the_semantics_of_another_release_disagree(release: Target) -> None:
    unlike = OwnRun(release, Semantics.of_vllm("0.30.0"))
    assert unlike.of_growth(text_of(block_hash)).against
