"""What a release's scheduler builds is what is judged: its manager, and its encoder budgets."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from cacheproof.differential.judges.examination import LOCKSTEP, examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets import releases
from cacheproof.differential.targets.changed import ChangingHost, Reading, decoded
from cacheproof.differential.targets.edits import Edit, edited
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.reference.releases import NEWEST

PATH = "vllm/v1/core/sched/scheduler.py"
BUILT = "Scheduler.__init__"
SIZE = "encoder_cache_size = mm_budget.encoder_cache_size if mm_budget else 0"
ROOMY = "{'can_allocate': lambda self, *given: True}"
FAULTS = {
    "another manager": (
        Edit(
            PATH,
            BUILT,
            "EncoderCacheManager",
            instead=f"type('_', (EncoderCacheManager,), {ROOMY})",
        ),
        {"EC-15"},
    ),
    "an answer set on the manager": (
        Edit(
            PATH,
            BUILT,
            "speculative_config = vllm_config.speculative_config",
            before="self.encoder_cache_manager.can_allocate = lambda *given: True",
        ),
        {"EC-15"},
    ),
    "a capacity that is the compute budget": (
        Edit(PATH, BUILT, SIZE, instead="encoder_cache_size = mm_budget.encoder_compute_budget"),
        {LOCKSTEP},
    ),
    "a capacity that is doubled": (
        Edit(PATH, BUILT, SIZE, instead="encoder_cache_size = 2 * mm_budget.encoder_cache_size"),
        {LOCKSTEP},
    ),
    "a compute budget that is the capacity": (
        Edit(
            PATH,
            BUILT,
            "mm_budget.encoder_compute_budget if mm_budget else 0",
            instead="mm_budget.encoder_cache_size",
        ),
        {LOCKSTEP},
    ),
}
"""Changes of what a scheduler builds, and what sees each."""


@pytest.fixture(scope="module")
def host() -> Iterator[ChangingHost]:
    with closing(ChangingHost(releases.install(NEWEST, report=print))) as target:
        yield target


@pytest.fixture(scope="module")
def reference(host: ChangingHost) -> Iterator[ReferenceTarget]:
    found = reference_for(host)
    assert found is not None
    with closing(found):
        yield found


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_scheduler_builds_otherwise_is_seen(
    name: str, host: ChangingHost, reference: ReferenceTarget
) -> None:
    edit, seen_by = FAULTS[name]
    source = (releases.install(NEWEST, report=print).tree / PATH).read_text()
    traces = [LANES["scheduler"].trace(seed, NEWEST) for seed in range(30)]
    host.change(Reading(PATH, BUILT, edited(source, edit)))
    changed = list(map(decoded, host.written(traces)))
    host.restore()
    broken = {
        one
        for trace, result in zip(traces, changed, strict=True)
        for one in examine(trace, result, host, reference).broken
    }
    assert broken >= seen_by
    for trace, result in zip(traces[:5], map(decoded, host.written(traces[:5])), strict=True):
        assert LOCKSTEP not in examine(trace, result, host, reference).broken
