"""Each fault of the runner is seen, and named: by rows that say what they are, and without them."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.runner import RUNNER_FAULTS
from tests.gpu_runner.judged import Ran, judged

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


Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The runner on a seed's trace, with a fault or none, and with tags or not."""
    with judged(tmp_path_factory.mktemp("models"), device) as on:
        yield cache(lambda seed, fault, tagged: on(engine_trace(seed), fault, tagged=tagged))


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    for seed in range(WHOLE):
        for tagged in (True, False):
            assert run(seed, None, tagged).broken <= {"EC-8b"}, seed


def test_rows_and_slots_are_looked_at(run: Run) -> None:
    ran = run(0, None, True)
    assert {"rows of known origin read", "slots of known origin read"} <= ran.met
    outcomes = [
        outcome
        for outcome in (record.outcome for record in ran.result.records)
        if isinstance(outcome, dict)
    ]
    read = [outcome["origins"] for outcome in outcomes if "origins" in outcome]
    assert sum(origins["rows"]["read"] for origins in read) > 100
    assert sum(origins["slots"]["read"] for origins in read) > 1000


def test_a_token_that_rounding_may_decide_is_met(run: Run) -> None:
    assert any("best two logits nearly tie" in run(seed, None, False).met for seed in range(SEEDS))


def test_every_fault_has_its_verdict() -> None:
    assert NAMED_BY_TAGS.keys() == RUNNER_FAULTS.keys() - SEEN_IN_ANSWERS_ALONE


@pytest.mark.parametrize("fault", NAMED_BY_TAGS)
def test_a_fault_is_named_where_rows_say_what_they_are(run: Run, fault: str) -> None:
    assert any(NAMED_BY_TAGS[fault] in run(seed, fault, True).broken for seed in range(SEEDS))


@pytest.mark.parametrize("fault", RUNNER_FAULTS)
def test_a_fault_is_seen_without_tags_in_the_store_or_in_what_is_answered(
    run: Run, fault: str
) -> None:
    for seed in range(SEEDS):
        broken, result, _ = run(seed, fault, False)
        assert not broken & {"WM-5", "WM-6"}
        difference = compare(run(seed, None, False).result, result)
        parted = difference is not None and difference.field.startswith(("token", "log prob"))
        if parted or broken & {"WM-1", "EQ-1"}:
            return
    pytest.fail(f"{fault} was not seen in {SEEDS} workloads")
