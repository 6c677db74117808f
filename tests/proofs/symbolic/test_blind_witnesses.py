"""A witness that agrees with everything is not taken for one."""

import pytest
import z3

from cacheproof.proofs.crosshair.episode import Episode
from cacheproof.proofs.symbolic.checking import validation
from cacheproof.proofs.symbolic.checking.validated import Validation
from cacheproof.proofs.symbolic.checking.witnesses import Exploring, ManagerExploring, PoolExploring
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.subjects import block_pool, encoder_decoder_cache
from cacheproof.proofs.witness import pool
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, Witness, witnessed

ROW = Evidence(
    "ED-1", "reference", "a class", "proof", "unbounded", Outcome.HOLDS, "", "d", 0.0,
    (RedTwin("a change", refuted=True),),
)  # fmt: skip
DECODER = encoder_decoder_cache.of_reference()
POOL = block_pool.of_reference()


def word(witness: Witness) -> Outcome:
    return witnessed(ROW, [witness]).outcome


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explorations, of changes too, of a few calls each."""
    monkeypatch.setattr("cacheproof.proofs.symbolic.checking.witnesses.CALLS", 300)
    monkeypatch.setattr("cacheproof.proofs.symbolic.checking.witnesses.CALLS_OF_TWIN", (40, 60))


@pytest.mark.full
@pytest.mark.usefixtures("few")
def test_a_manager_of_which_nothing_is_judged_is_proved_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Episode, "_judge", lambda *_: None)
    assert word(ManagerExploring(DECODER).witness("ED-1", (), None)) is Outcome.ALONE


@pytest.mark.full
@pytest.mark.usefixtures("few")
def test_a_pool_of_which_nothing_is_judged_is_proved_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_judged", lambda *_: ())
    assert word(PoolExploring(POOL).witness("BP-1", (), None)) is Outcome.ALONE


def validated(exploring: Exploring) -> Witness:
    shown = exploring.validator().all_shown(DECODER, exploring.calls(()), ())
    return Validation(ProverLibrary()).witness(DECODER, shown, ())


@pytest.fixture(scope="module")
def exploring() -> ManagerExploring:
    return ManagerExploring(DECODER)


@pytest.mark.full
def test_a_reading_that_admits_everything_is_proved_alone(
    monkeypatch: pytest.MonkeyPatch, exploring: ManagerExploring
) -> None:
    monkeypatch.setattr(validation, "_is_there", lambda *_: z3.sat)
    assert word(validated(exploring)) is Outcome.ALONE


def test_a_validation_without_calls_is_proved_alone(
    monkeypatch: pytest.MonkeyPatch, exploring: ManagerExploring
) -> None:
    def none(*_: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr(ManagerExploring, "calls", none)
    assert word(validated(exploring)) is Outcome.ALONE


@pytest.mark.full
def test_a_contradiction_that_is_found_everywhere_is_vacuous(
    monkeypatch: pytest.MonkeyPatch, exploring: ManagerExploring
) -> None:
    monkeypatch.setattr(
        "cacheproof.proofs.symbolic.checking.vacuity._is_contradiction", lambda *_: True
    )
    assert word(validated(exploring)) is Outcome.VACUOUS


@pytest.mark.full
def test_solvers_that_cannot_tell_are_no_disagreement(
    monkeypatch: pytest.MonkeyPatch, exploring: ManagerExploring
) -> None:
    monkeypatch.setattr(validation, "WORK", 1)
    found = validated(exploring)
    assert word(found) is Outcome.ALONE
    assert "no solver can tell" in found.unreached
