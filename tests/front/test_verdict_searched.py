"""What a search concludes is said in a sentence that differs in the words that matter."""

from dataclasses import replace

import pytest

from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import LOCKSTEP
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.seeded import LaneReport, SearchOutcome, Work
from cacheproof.differential.search.verdict import Verdict
from cacheproof.differential.traces.manager import ManagerConfig, ManagerHeader
from cacheproof.differential.traces.trace import Trace
from cacheproof.output.verdict_line import rule_told
from cacheproof.search.verdict import Searched

HOLDS = Searched(("vllm@0.33.0",), 0, traces=5700, calls=4_123_000, kinds=19)
KNOWN = replace(HOLDS, known=("repeated-item", "decoder-budget"))
NEW = replace(KNOWN, code=1, new=("EC-6a",))
DIFFERS = replace(HOLDS, code=4, from_model=3)
VOID = replace(HOLDS, code=3, void=("the fault planted against EC-6 was not found", "another"))
STOPPED = replace(HOLDS, code=130)
WORK = "5,700 traces of 19 kinds of workload, 4.1 million calls judged"
WHO_NEEDS = "EC-6a (Who needs a resident entry holds it)"


@pytest.mark.parametrize(
    ("searched", "sentence"),
    [
        (HOLDS, f"vllm@0.33.0 shows nothing new: {WORK}; no rule broke."),
        (
            KNOWN,
            f"vllm@0.33.0 shows nothing new: {WORK}; 2 known faults met again, and nothing else "
            "broke.",
        ),
        (
            NEW,
            f"vllm@0.33.0 shows 1 new fault, which breaks {WHO_NEEDS}: {WORK}; 2 known faults met "
            "again.",
        ),
        (
            replace(NEW, faces=12),
            f"vllm@0.33.0 shows 1 new fault (12 other faces), which breaks {WHO_NEEDS}: {WORK}; 2 "
            "known faults met again.",
        ),
        (
            DIFFERS,
            "vllm@0.33.0 decides otherwise than the reference in 3 ways, without a new fault: "
            f"{WORK}; no known fault was met.",
        ),
        (
            VOID,
            "This search of vllm@0.33.0 proves nothing, since the fault planted against EC-6 was "
            f"not found, and for 1 more reason: {WORK}; no rule broke.",
        ),
        (
            STOPPED,
            "The search of vllm@0.33.0 was interrupted and shows nothing new so far: "
            f"{WORK}; no rule broke.",
        ),
        (
            replace(STOPPED, unsmall=("EC-6a", "EC-6a"), known=("repeated-item",)),
            "The search of vllm@0.33.0 was interrupted and shows nothing new so far, but what "
            f"breaks {WHO_NEEDS} may be new, and was not minimised yet: {WORK}; 1 known fault met "
            "again.",
        ),
        (
            replace(STOPPED, new=("EC-6a",), unsmall=("EC-6a", "LV-1")),
            "The search of vllm@0.33.0 was interrupted and shows 1 new fault, which breaks "
            f"{WHO_NEEDS}, and what breaks {rule_told('LV-1')} may be new, and was not minimised "
            f"yet: {WORK}; no known fault was met.",
        ),
    ],
)
def test_a_search_concludes_in_a_sentence(searched: Searched, sentence: str) -> None:
    assert searched.sentence == sentence


def test_several_targets_are_told_together() -> None:
    both = replace(HOLDS, targets=("vllm@0.28.0", "vllm@0.33.0"))
    assert both.sentence.startswith("vllm@0.28.0 and vllm@0.33.0 show nothing new: ")
    decide = replace(DIFFERS, targets=both.targets).sentence
    assert decide.startswith("vllm@0.28.0 and vllm@0.33.0 decide otherwise ")


def test_a_sentence_says_no_more_than_was_run() -> None:
    partly = replace(HOLDS, kinds=2, unreached=3, left_out=(("redis-server", 1),))
    assert partly.sentence.endswith(
        "of 2 kinds of workload, 4.1 million calls judged; no rule broke; 3 kinds of workload were "
        "not reached; 1 kind of workload was left out, for want of redis-server."
    )
    assert "by the contracts alone" in replace(HOLDS, is_compared=False).sentence


def test_where_nothing_was_judged_nothing_is_said_to_hold() -> None:
    nothing = replace(VOID, calls=0, traces=0, kinds=0, void=("no trace was judged",))
    assert nothing.sentence == (
        "This search of vllm@0.33.0 proves nothing, since no trace was judged: nothing was judged."
    )


def test_what_is_new_in_a_void_search_is_told_with_why_the_rest_proves_nothing() -> None:
    void = replace(NEW, void=VOID.void)
    assert void.sentence.endswith(
        "; what held proves nothing, since the fault planted against EC-6 was not found."
    )


def test_a_finding_that_only_wastes_work_is_not_passed_over() -> None:
    wasteful = replace(KNOWN, harmless=2).sentence
    assert wasteful.endswith(
        "2 known faults met again and 2 findings cost only wasted work, and nothing else broke."
    )


def test_the_first_broken_rules_are_told_by_their_titles() -> None:
    many = replace(NEW, new=(LOCKSTEP, "EC-6a", "EC-6a", "EC-6", "EC-1"))
    assert many.sentence.startswith(
        "vllm@0.33.0 shows 5 new faults, which break lockstep (The target answers every call, and "
        f"changes by it, as the reference does), {WHO_NEEDS} and 2 more rules: "
    )


def test_no_two_exit_codes_share_the_beginning_of_a_sentence() -> None:
    heads = {one.sentence.partition(":")[0] for one in (KNOWN, NEW, DIFFERS, VOID, STOPPED)}
    assert len(heads) == 5


def verdict_of(traces: int) -> Verdict:
    """Of a search of one lane, beside another that was not reached."""
    first, second = (LaneReport(lane=LANES[name]) for name in ("encoder cache", "scheduler"))
    first.traces, first.calls, first.compared = traces, 7 * traces, Work(calls=7)
    return Verdict(SearchOutcome("reference", None, [first, second]), [], {"EC-1": True})


def test_what_a_verdict_has_is_what_is_told() -> None:
    ran = verdict_of(3)
    ran.left_out = {"a lane": "redis-server", "another": "redis-server"}
    told = Searched.of([ran, verdict_of(2)], [])
    assert (told.code, told.traces, told.calls, told.kinds, told.unreached) == (0, 5, 35, 1, 1)
    assert told.left_out == (("redis-server", 2),)
    assert told.is_compared


def test_a_search_that_judged_nothing_does_not_show_that_nothing_is_new() -> None:
    told = Searched.of([verdict_of(0)], [])
    assert (told.code, told.void) == (3, ("no trace was judged",))
    assert "proves nothing" in told.sentence


def broken(contract: str) -> Break:
    """A break whose trace was not minimised."""
    trace = Trace(ManagerHeader(1, "encoder_cache", ManagerConfig(1, 1)), ())
    return Break(contract, "a kind", "encoder cache", trace, 0, "it broke", 0.5)


def test_an_interrupted_search_calls_no_break_new_that_was_not_made_small() -> None:
    stopped = verdict_of(3)
    stopped.interrupted = True
    stopped.unfinished = "only 3 of 4 shards are done"
    assert "nothing new so far: " in Searched.of([stopped], []).sentence
    assert "proves nothing" not in Searched.of([stopped], []).sentence
    stopped.not_written = [(None, broken("MH-4"))]  # whose harm is efficiency
    assert "nothing new so far: " in Searched.of([stopped], []).sentence
    stopped.not_written += [(None, broken("MH-3"))]
    assert "nothing new so far, but what breaks MH-3 (" in Searched.of([stopped], []).sentence


def test_an_interruption_takes_no_doubt_away_but_that_something_is_left() -> None:
    stopped = verdict_of(3)
    stopped.interrupted, stopped.canaries = True, {"EC-1": False}
    assert "the fault planted against EC-1 was not found" in Searched.of([stopped], []).sentence
    nothing = verdict_of(0)
    nothing.interrupted = True
    assert Searched.of([nothing], []).void == ()
