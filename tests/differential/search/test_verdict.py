"""What a search amounts to: exit code, reasons for being void, evidence."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from cacheproof.differential.findings.finding import LOCKSTEP, MODEL_DIFFERENCE, Finding, found_in
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault, Symptom
from cacheproof.differential.search.seeded import LaneReport, SearchOutcome, search
from cacheproof.differential.search.verdict import (
    FROM_MODEL,
    HOLDS,
    UNLISTED,
    VOID,
    Verdict,
    listed_but_missing,
)
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics

LANE = LANES["encoder cache"]


class Faulty(ReferenceTarget):
    """The reference with a planted fault in every trace."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return super().run(traces, "leaks_a_slot")


@pytest.fixture(scope="module")
def outcome() -> SearchOutcome:
    return search(Faulty(), [LANE], against=None, seeds=range(20))


@pytest.fixture(scope="module")
def finding(outcome: SearchOutcome) -> Finding:
    broken = next(one for one in outcome.breaks if one.contract == "EC-1")
    found = found_in(Faulty(), broken.trace, "EC-1", ReferenceTarget(), times=2)
    assert found is not None
    assert found.first_wrong is not None
    return found


def quiet() -> SearchOutcome:
    return search(ReferenceTarget(), [LANE], against=ReferenceTarget(), seeds=range(5))


def test_what_holds_exits_with_0() -> None:
    assert Verdict(quiet(), [], {"EC-1": True}).exit_code == HOLDS


def test_an_unlisted_finding_exits_with_1(finding: Finding) -> None:
    verdict = Verdict(quiet(), [finding])
    assert verdict.unlisted == [finding]
    assert verdict.exit_code == UNLISTED


def test_a_listed_finding_exits_with_0_even_without_a_thread(finding: Finding) -> None:
    assert Verdict(quiet(), [finding.annotated(None, "a note")]).exit_code == HOLDS


def test_an_efficiency_finding_exits_with_0(finding: Finding) -> None:
    wasteful = msgspec.structs.replace(finding, harm="efficiency")
    assert Verdict(quiet(), [wasteful]).exit_code == HOLDS


def test_a_difference_from_the_model_exits_with_4_and_is_not_unlisted(finding: Finding) -> None:
    parted = msgspec.structs.replace(finding, contract=LOCKSTEP, harm=MODEL_DIFFERENCE)
    verdict = Verdict(quiet(), [parted])
    assert (verdict.unlisted, verdict.from_model) == ([], [parted])
    assert verdict.exit_code == FROM_MODEL


def test_an_unlisted_finding_outranks_a_difference_from_the_model(finding: Finding) -> None:
    parted = msgspec.structs.replace(finding, contract=LOCKSTEP, harm=MODEL_DIFFERENCE)
    assert Verdict(quiet(), [parted, finding]).exit_code == UNLISTED


def test_a_face_of_another_finding_counts_for_the_exit_code_as_if_it_stood_alone(
    finding: Finding,
) -> None:
    """And a listed fault is no face, and has none."""
    harmless = msgspec.structs.replace(finding, harm="efficiency")
    other = msgspec.structs.replace(finding, contract="EC-2")
    verdict = Verdict(quiet(), [harmless, other])
    (cause,) = verdict.causes
    assert (cause.head, cause.faces) == (other, (harmless,))
    assert verdict.exit_code == UNLISTED
    listed = Verdict(quiet(), [finding.annotated(None, "listed", "a-fault"), other])
    assert [cause.findings for cause in listed.causes] == [(other,)]
    assert listed.exit_code == UNLISTED


def test_a_difference_from_the_model_outranks_what_is_void(finding: Finding) -> None:
    parted = msgspec.structs.replace(finding, contract=LOCKSTEP, harm=MODEL_DIFFERENCE)
    verdict = Verdict(quiet(), [parted], {"EC-2": False})
    assert verdict.void_because
    assert verdict.exit_code == FROM_MODEL


def test_a_missed_canary_makes_it_void() -> None:
    verdict = Verdict(quiet(), [], {"EC-1": True, "EC-2": False})
    assert verdict.void_because == ["the fault planted against EC-2 was not found"]
    assert verdict.exit_code == VOID


def test_a_harness_error_makes_it_void() -> None:
    outcome = quiet()
    outcome.harness_errors.append("the host crashed")
    assert Verdict(outcome, []).void_because == ["harness error: the host crashed"]
    assert Verdict(outcome, []).exit_code == VOID


def test_a_search_without_a_trace_is_void() -> None:
    nothing = SearchOutcome("it", None, [LaneReport(lane=LANE)], [], Counter(), Counter(), [], 0.0)
    assert Verdict(nothing, []).void_because == ["no trace was judged"]


def test_an_unlisted_finding_counts_even_where_a_canary_was_missed(finding: Finding) -> None:
    assert Verdict(quiet(), [finding], {"EC-2": False}).exit_code == UNLISTED


def fault(
    contract: str, releases: str = "all", again: tuple[str, ...] = ("encoder cache",)
) -> KnownFault:
    symptom = (Symptom(contract, releases),)
    return KnownFault("it", "a title", "safety", symptom=symptom, again=again)


def of_release(outcome: SearchOutcome, release: str | None) -> SearchOutcome:
    outcome.release = release
    return outcome


def test_a_listed_fault_that_was_not_found_again_makes_it_void() -> None:
    outcome = of_release(quiet(), "0.28.0")
    verdict = Verdict(outcome, [])
    verdict.not_found_again = listed_but_missing(outcome, [fault("EC-6")])
    assert verdict.void_because == ["listed fault not found again: it (a title)"]
    assert verdict.exit_code == VOID


@pytest.mark.parametrize(
    ("listed", "missing"),
    [
        (fault("EC-6"), True),
        (fault("EC-6", again=("scheduler", "encoder cache")), True),
        (fault("EC-6", releases=">=0.28.0"), True),
        (fault("EC-6", releases="<0.28.0"), False),
        (fault("EC-6", again=("scheduler",)), False),
        (fault("EC-6", again=()), False),
    ],
)
def test_a_listed_fault_is_missed_only_where_it_could_have_been_found(
    listed: KnownFault, missing: bool
) -> None:
    outcome = of_release(quiet(), "0.28.0")
    assert listed_but_missing(outcome, [listed]) == ([listed] if missing else [])


def test_a_listed_fault_that_was_found_is_not_missed() -> None:
    listed = [fault("EC-1")]
    told_apart = Attribution(listed, "0.28.0", None)
    found = search(Faulty(), [LANE], against=None, seeds=range(20), attribution=told_apart)
    assert listed_but_missing(of_release(found, "0.28.0"), listed) == []


def test_a_listed_fault_is_missed_where_its_contract_broke_for_another_cause(
    outcome: SearchOutcome,
) -> None:
    assert listed_but_missing(of_release(outcome, "0.28.0"), [fault("EC-1")]) == [fault("EC-1")]


def test_the_evidence_says_of_each_contract_what_speaks_for_it(
    outcome: SearchOutcome, finding: Finding
) -> None:
    lines = {line.contract: line for line in Verdict(outcome, [finding]).evidence()}
    assert lines["EC-1"].verdict == "refuted"
    assert lines["EC-1"].known == "not listed"
    assert lines["EC-4"].verdict == "tested"
    assert lines["EC-4"].scope.endswith("calls in encoder cache")
    assert set(lines["EC-4"].to_json()) == {
        "contract",
        "target",
        "verdict",
        "scope",
        "seconds",
        "known",
    }


def test_the_lockstep_stands_last_in_the_evidence() -> None:
    assert [line.contract for line in Verdict(quiet(), []).evidence()][-1] == "lockstep"


RARE = KnownFault(
    "rare", "A rare fault", "safety",
    symptom=(Symptom("KV-4", ">=0.14.0,<0.27.1"),), again=("KV cache",),
    seeds={"KV cache": (775,)},
)  # fmt: skip


@pytest.mark.parametrize(("further", "missing"), [((775,), []), ((776,), [RARE]), ((), [RARE])])
def test_a_rare_listed_fault_is_looked_for_by_its_seeds_and_missed_without_them(
    further: tuple[int, ...], missing: list[KnownFault]
) -> None:
    lane = LANES["KV cache"]
    target = ReferenceTarget(Semantics.of_vllm("0.18.1"), name="old", release="0.18.1")
    outcome = search(
        target,
        [lane],
        against=None,
        seeds=(0, 1, *further),
        attribution=Attribution([RARE], "0.18.1", target),
    )
    assert outcome.lanes[0].traces == 2 + len(further)
    assert listed_but_missing(outcome, [RARE]) == missing


SEEDED = [
    (fault, seed, release)
    for fault in load()
    for seed in fault.seeds.get("KV cache", ())
    for release in ("0.12.0", "0.18.1", "0.22.1")
    if fault.is_seen_in(release)
]


NOT_MODELLED = {"dropped-block": "a drafter over several groups"}
"""Listed faults whose seeds the reference refuses to run, by words of the refusal: only the release
itself shows them."""


@pytest.mark.parametrize(("listed", "seed", "release"), SEEDED)
def test_the_seeds_of_the_shipped_list_show_their_faults(
    listed: KnownFault, seed: int, release: str
) -> None:
    lane = LANES["KV cache"]
    target = ReferenceTarget(Semantics.of_vllm(release), name="old", release=release)
    told_apart = Attribution(load(), release, target)
    outcome = search(
        target, [lane], against=None, seeds=range(seed, seed + 1), attribution=told_apart
    )
    refused = " ".join(outcome.lanes[0].illegal)
    if listed.name in NOT_MODELLED:
        assert NOT_MODELLED[listed.name] in refused
    else:
        assert refused == ""
        assert listed_but_missing(outcome, [listed]) == []
