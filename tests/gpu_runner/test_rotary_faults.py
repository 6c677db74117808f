"""Each fault of rotary positions is seen in what is answered."""

import json
from collections.abc import Callable, Iterator
from functools import cache

import msgspec
import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.engine_limits import MODELS_SETTING
from cacheproof.differential.targets.host.media_hash_alone import REFERENCE_SETTING
from cacheproof.differential.targets.host.runner import Release
from cacheproof.differential.targets.host.runner_faults import ROTARY_FAULTS
from cacheproof.differential.traces.records import TraceResult
from cacheproof.reference.semantics import Semantics

SEEDS = range(12)
OF_PRUNED = {"places_the_next_rows"}

Run = Callable[[int, str | None, bool], TraceResult]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[Run]:
    """The records of a seed's trace, with a fault or none, of a model that prunes or does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODELS_SETTING, str(tmp_path_factory.mktemp("models")))
        patch.setenv(REFERENCE_SETTING, json.dumps(Semantics.ideal().flags))
        release = Release(tagged=False, device=str(device))

        @cache
        def on(seed: int, fault: str | None, prunes: bool) -> TraceResult:
            trace = engine_trace(seed, "qwen2_5_vl", prunes=prunes)
            asked = {"traces": [msgspec.to_builtins(trace)], "fault": fault}
            (answer,) = release.run(asked)
            result = msgspec.json.decode(msgspec.json.encode(answer), type=TraceResult)
            assert result.illegal is None
            return result

        yield on


@pytest.mark.parametrize("fault", ROTARY_FAULTS)
def test_a_fault_is_seen_in_what_is_answered(run: Run, fault: str) -> None:
    for seed in SEEDS:
        prunes = fault in OF_PRUNED
        difference = compare(run(seed, None, prunes), run(seed, fault, prunes))
        if difference is not None and difference.field.startswith(("token", "log prob")):
            return
    pytest.fail(f"{fault} was not seen in {len(SEEDS)} workloads")


def test_positions_beside_rows_matter_only_where_videos_are_pruned(run: Run) -> None:
    whole, faulty = (run(0, fault, False) for fault in (None, "places_the_next_rows"))
    assert compare(whole, faulty) is None
