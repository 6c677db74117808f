"""Each fault of the runner is seen, and named: by rows that say what they are, and without them."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache

import msgspec
import pytest

from cacheproof.differential.engine_generator import engine_trace
from cacheproof.differential.examine import judge_of
from cacheproof.differential.lockstep import compare
from cacheproof.differential.reachability import Reachability
from cacheproof.differential.record import TraceResult
from cacheproof.differential.targets.host.engine_limits import MODELS_SETTING
from cacheproof.differential.targets.host.media_hash_alone import REFERENCE_SETTING
from cacheproof.differential.targets.host.runner import Release
from cacheproof.differential.targets.host.runner_faults import RUNNER_FAULTS
from cacheproof.differential.targets.reference import protocol_of
from cacheproof.reference.semantics import Semantics

SEEDS = 40
WHOLE = 6
SEEN_IN_ANSWERS_ALONE = {"takes_items_in_reverse"}
"""Tags are given to what the encoder returns: they cannot tell whose pixels it was made of."""
NAMED_BY_TAGS = {
    "frees_after_encodes": "WM-1",
    "never_frees": "WM-1",
    "drops_one_more": "WM-1",
    "reads_the_next_rows": "WM-5",
    "puts_rows_a_token_late": "WM-5",
    "keeps_the_first_output": "WM-5",
    "keeps_blocks_of_before": "WM-6",
    "writes_a_slot_too_far": "WM-6",
    "forgets_new_blocks": "WM-6",
}
Run = Callable[..., tuple[set[str], TraceResult]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The contracts that the runner breaks on a seed's trace, with a fault and with tags or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODELS_SETTING, str(tmp_path_factory.mktemp("models")))
        patch.setenv(REFERENCE_SETTING, json.dumps(asdict(Semantics.ideal())))
        releases = {tagged: Release(tagged=tagged) for tagged in (True, False)}

        @cache
        def on(seed: int, fault: str | None, tagged: bool) -> tuple[set[str], TraceResult]:
            trace = engine_trace(seed)
            request = {"traces": [msgspec.to_builtins(trace)], "fault": fault}
            (answer,) = releases[tagged].run(request)
            result = msgspec.json.decode(msgspec.json.encode(answer), type=TraceResult)
            assert result.illegal is None
            judge = judge_of(
                trace, None, protocol_of(Semantics.ideal()), result.capacity, Reachability()
            )
            for number, record in enumerate(result.records):
                judge.judge(number, trace.events[number], record)
            return set(judge.violations), result

        yield on


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    for seed in range(WHOLE):
        for tagged in (True, False):
            broken, _ = run(seed, None, tagged)
            assert broken <= {"EC-8b"}, seed


def test_rows_and_slots_are_looked_at(run: Run) -> None:
    _, result = run(0, None, True)
    outcomes = [outcome for outcome, *_ in result.records if isinstance(outcome, dict)]
    read = [outcome["origins"] for outcome in outcomes if "origins" in outcome]
    assert sum(origins["rows"]["read"] for origins in read) > 100
    assert sum(origins["slots"]["read"] for origins in read) > 1000


def test_every_fault_has_its_verdict() -> None:
    assert NAMED_BY_TAGS.keys() == RUNNER_FAULTS.keys() - SEEN_IN_ANSWERS_ALONE


@pytest.mark.parametrize("fault", NAMED_BY_TAGS)
def test_a_fault_is_named_where_rows_say_what_they_are(run: Run, fault: str) -> None:
    assert any(NAMED_BY_TAGS[fault] in run(seed, fault, True)[0] for seed in range(SEEDS))


@pytest.mark.parametrize("fault", RUNNER_FAULTS)
def test_a_fault_is_seen_without_tags_in_the_store_or_in_what_is_answered(
    run: Run, fault: str
) -> None:
    for seed in range(SEEDS):
        broken, result = run(seed, fault, False)
        assert not broken & {"WM-5", "WM-6"}
        difference = compare(run(seed, None, False)[1], result)
        parted = difference is not None and difference.field.startswith(("token", "log prob"))
        if parted or broken & {"WM-1", "EQ-1"}:
            return
    pytest.fail(f"{fault} was not seen in {SEEDS} workloads")
