"""Each fault of layers with several block tables is seen in what is answered, and where slots that
say what they are can tell, it is named."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.groups import GROUP_FAULTS
from tests.gpu_runner.judged import Ran, judged

SEEDS = range(12)
OF_EVERY_MODEL = ("keeps_blocks_of_before", "writes_a_slot_too_far", "forgets_new_blocks")
NAMED_BY_TAGS = {
    "reads_what_is_behind_windows",
    "reads_by_the_first_table",
    "forgets_null_blocks",
    "writes_by_the_first_table",
    "exchanges_tables",
    "keeps_one_table_of_before",
    *OF_EVERY_MODEL,
}
"""The others read slots of their own, or of tokens that nobody has taken the place of yet."""

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The runner on a seed's trace, with a fault or none, and with tags or not."""
    with judged(tmp_path_factory.mktemp("models"), device) as on:
        yield cache(
            lambda seed, fault, tagged: on(
                engine_trace(seed, "cohere2_vision"), fault, tagged=tagged
            )
        )


def test_a_runner_that_is_whole_reads_what_is_its_own(run: Run) -> None:
    met = set()
    for seed in SEEDS:
        ran = run(seed, None, True)
        assert ran.broken <= {"EC-8b"}, seed
        met |= ran.met
    assert {
        "slots of known origin read",
        "blocks behind a window given back",
        "null blocks in a hit",
        "hit in several groups",
    } <= met


@pytest.mark.parametrize("fault", sorted(NAMED_BY_TAGS))
def test_a_fault_is_named_where_slots_say_what_they_are(run: Run, fault: str) -> None:
    assert any("WM-6" in run(seed, fault, True).broken for seed in SEEDS)


@pytest.mark.parametrize("fault", [*GROUP_FAULTS, *OF_EVERY_MODEL])
def test_a_fault_is_seen_in_what_is_answered(run: Run, fault: str) -> None:
    for seed in SEEDS:
        difference = compare(run(seed, None, False).result, run(seed, fault, False).result)
        if difference is not None and difference.field.startswith(("token", "log prob")):
            return
    pytest.fail(f"{fault} was not seen")
