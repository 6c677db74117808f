"""Listed faults: which of them a break may be, by what it breaks, and where each must be met."""

import pytest

from cacheproof.differential.search.known import (
    Cause,
    KnownFault,
    Symptom,
    called,
    may_be,
    showing_seeds,
)
from cacheproof.differential.traces.trace import ModelRunner

FLAGS = ("encoder_cache.claims_duplicates",)


def by_symptom(
    contract: str = "EC-6",
    releases: str = ">=0.10.2,<0.29.0",
    lanes: tuple[str, ...] = (),
    kind: str | None = None,
    runner: ModelRunner | None = None,
) -> KnownFault:
    symptom = Symptom(contract, releases, lanes, kind, runner)
    return KnownFault("it", "a title", "safety", symptom=(symptom,))


def by_cause(seen: str = "0.29.0 to 0.31.0", **facts: str) -> KnownFault:
    cause = Cause(FLAGS, ("EC-6", "SC-8"), {"SC-8": ("RuntimeError in update",)})
    return KnownFault("it", "a title", "safety: it is lost", cause=(cause,), seen=seen, **facts)


@pytest.mark.parametrize(
    ("contract", "release", "lane", "covered"),
    [
        ("EC-6", "0.28.0", "scheduler", True),
        ("EC-6", "0.10.2", "scheduler", True),
        ("EC-6", "0.10.1.1", "scheduler", False),
        ("EC-6", "0.29.0", "scheduler", False),
        ("EC-6", "0.28.1.dev3+gabc", "scheduler", True),
        ("EC-6", None, "scheduler", False),
        ("EC-6a", "0.28.0", "scheduler", False),
        ("EC-6", "0.28.0", "encoder cache", False),
    ],
)
def test_a_symptom_covers_its_contract_in_its_releases_and_its_lanes(
    contract: str, release: str | None, lane: str, covered: bool
) -> None:
    fault = by_symptom(lanes=("scheduler",))
    assert may_be([fault], contract, "", release, (lane,)) == ([fault] if covered else [])


@pytest.mark.parametrize(
    ("listed", "of_trace", "covered"),
    [
        (None, "first", True),
        (None, "second", True),
        ("first", "first", True),
        ("first", "second", False),
        ("second", "first", False),
        ("second", None, True),
    ],
)
def test_a_symptom_of_one_model_runner_covers_no_trace_of_the_other(
    listed: ModelRunner | None, of_trace: ModelRunner | None, covered: bool
) -> None:
    fault = by_symptom("SC-9", "all", runner=listed)
    assert fault.may_break("SC-9", "", "0.33.0", ("scheduler",), of_trace) is covered


@pytest.mark.parametrize(
    ("release", "there"),
    [
        ("0.28.0", False),
        ("0.29.0", True),
        ("0.31.1.dev2", True),
        ("0.32.0", False),
        ("0.9.0", False),
        (None, False),
    ],
)
def test_a_fault_that_is_its_cause_may_break_its_contracts_where_it_was_seen(
    release: str | None, there: bool
) -> None:
    fault = by_cause()
    assert fault.may_break("EC-6", "", release, ("whatever lane",)) is there
    assert not fault.may_break("EC-7", "", release)


def test_a_later_release_has_what_the_newest_has() -> None:
    assert by_cause("0.33.0").may_break("EC-6", "", "1.0.0")
    assert not by_cause("0.32.0", mended_in="0.33.0").may_break("EC-6", "", "1.0.0")


def test_a_contract_whose_kinds_are_told_apart_is_broken_in_those_alone() -> None:
    fault = by_cause()
    assert fault.may_break("SC-8", "RuntimeError in update", "0.29.0")
    assert not fault.may_break("SC-8", "KeyError in update", "0.29.0")
    assert fault.may_break("SC-8", None, "0.29.0")
    assert [fault.place(*one) for one in (("EC-6", "so"), ("SC-8", "so"))] == [
        ("it", "EC-6", ""), ("it", "SC-8", "so"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lane", "release", "must"),
    [
        ("encoder cache", "0.30.0", True),
        ("encoder cache", "0.29.0", False),
        ("encoder cache", "0.32.0", False),
        ("scheduler", "0.30.0", False),
        ("encoder cache", None, False),
    ],
)
def test_a_fault_must_be_met_again_in_its_lanes_on_releases_that_were_seen_with_it(
    lane: str, release: str | None, must: bool
) -> None:
    fault = KnownFault(
        "it", "a title", "safety", cause=by_cause().cause, seen="0.29.0 to 0.31.0",
        as_read="0.32.0", again=("encoder cache",), again_since="0.30.0",
    )  # fmt: skip
    assert fault.must_be_met(release, lane) is must


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        ("safety: the engine dies", "safety"),
        ("liveness, narrow: it waits", "liveness"),
        ("efficiency; liveness: an item is never saved again", "efficiency"),
        ("efficiency", "efficiency"),
    ],
)
def test_the_harm_of_a_fault_is_the_first_that_it_names(harm: str, kind: str) -> None:
    assert KnownFault("it", "a title", harm).kind_of_harm == kind


@pytest.mark.parametrize(
    ("upstream", "thread"),
    [
        ("PR #1 (open)", "vLLM PR #1 (open)"),
        ("LMCache #1 (open)", "LMCache #1 (open)"),
        ("none found", None),
        ("none found; near: #2", None),
        ("", None),
    ],
)
def test_a_thread_is_told_where_one_was_found(upstream: str, thread: str | None) -> None:
    assert KnownFault("it", "a title", "safety", upstream=upstream).thread == thread


def test_a_fault_is_called_by_its_name() -> None:
    fault = by_cause()
    assert called([fault], "it") is fault
    assert called([fault], None) is called([fault], "other") is None


def test_seeds_are_those_of_the_faults_of_a_release() -> None:
    old, new = by_symptom(releases="<0.28.0"), by_symptom("EC-7", "all")
    faults = [
        KnownFault("a", "t", "safety", symptom=old.symptom, seeds={"scheduler": (7,)}),
        KnownFault("b", "t", "safety", symptom=new.symptom, seeds={"scheduler": (9, 3)}),
        by_symptom("EC-1", "all"),
    ]
    assert showing_seeds(faults, "0.28.0") == {"scheduler": [3, 9]}
    assert showing_seeds(faults, "0.27.1") == {"scheduler": [3, 7, 9]}
    assert showing_seeds(faults, None) == {}
