"""Each fault where a decoder attends to an encoder's rows is seen, and named."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from cacheproof.differential.generators.whisper import whisper_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.cross_attention import CROSS_FAULTS
from cacheproof.differential.traces.records import TraceResult
from tests.gpu_runner.judged import judged

SEEDS = range(30, 60)
WHOLE = 6

Ran = tuple[set[str], TraceResult]
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The contracts that a seed's trace breaks, and its records: with a fault, tags, a pairing."""
    with judged(tmp_path_factory.mktemp("models"), device) as on:

        @cache
        def ran(seed: int, fault: str | None, tagged: bool = True, pairs: bool = True) -> Ran:
            flags = {"encoder_cache.pairs_decoder_rows": pairs}
            return on(whisper_trace(seed), fault, tagged=tagged, flags=flags)[:2]

        yield ran


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    for tagged in (True, False):
        for seed in range(WHOLE):
            assert run(seed, None, tagged)[0] == set(), seed


@pytest.mark.parametrize("fault", CROSS_FAULTS)
def test_a_fault_is_named_where_rows_say_what_they_are(run: Run, fault: str) -> None:
    assert any("WM-6" in run(seed, fault)[0] for seed in SEEDS)


@pytest.mark.parametrize("fault", CROSS_FAULTS)
def test_a_fault_is_seen_without_tags_in_what_is_answered(run: Run, fault: str) -> None:
    for seed in SEEDS:
        broken, result = run(seed, fault, False)
        assert not broken & {"WM-5", "WM-6"}
        difference = compare(run(seed, None, False)[1], result)
        if difference is not None and difference.field.startswith(("token", "log prob")):
            return
    pytest.fail(f"{fault} was not seen")


def test_a_release_that_pairs_rows_by_place_is_executed_so(run: Run) -> None:
    assert any("WM-6" in run(seed, None, True, False)[0] for seed in SEEDS)
