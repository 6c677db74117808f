"""What a release's scheduler builds is what is judged and proved: its manager, and its budgets."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.judges.examination import LOCKSTEP, examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.targets.changed import ChangedText, ChangingHost, decoded
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.texts.edits import Edit, edited
from cacheproof.proving.targets import CLASSES, Tree, refuse_otherwise_built, sources
from cacheproof.reference.releases import MODELLED, NEWEST

PATH = "vllm/v1/core/sched/scheduler.py"
BUILT, RUNS = "Scheduler.__init__", "Scheduler.schedule"
AFTER = "speculative_config = vllm_config.speculative_config"
FIRST = "self.current_step += 1"
PROVED = "vllm.v1.core.encoder_cache_manager.EncoderCacheManager"
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
            AFTER,
            before="self.encoder_cache_manager.can_allocate = lambda *given: True",
        ),
        {"EC-15"},
    ),
    "a capacity that is the compute budget": (
        Edit(PATH, BUILT, SIZE, instead="encoder_cache_size = mm_budget.encoder_compute_budget"),
        {LOCKSTEP, "SC-21"},
    ),
    "a capacity that is doubled": (
        Edit(PATH, BUILT, SIZE, instead="encoder_cache_size = 2 * mm_budget.encoder_cache_size"),
        {LOCKSTEP, "SC-21"},
    ),
    "a compute budget that is the capacity": (
        Edit(
            PATH,
            BUILT,
            "mm_budget.encoder_compute_budget if mm_budget else 0",
            instead="mm_budget.encoder_cache_size",
        ),
        {LOCKSTEP, "SC-12"},
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
    host.change(ChangedText(PATH, BUILT, edited(source, edit)))
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


OTHERWISE = {
    "another manager": (
        FAULTS["another manager"][0],
        {"it builds vllm.v1.core.sched.scheduler._"},
    ),
    "an answer set on the manager": (
        FAULTS["an answer set on the manager"][0],
        {f"it sets can_allocate on its {PROVED}"},
    ),
    "an attribute set on the manager": (
        Edit(PATH, BUILT, AFTER, before="self.encoder_cache_manager.limit = 3"),
        {f"it sets limit on its {PROVED}"},
    ),
    "another one in its place while it runs": (
        Edit(
            PATH,
            RUNS,
            FIRST,
            before="self.encoder_cache_manager = EncoderCacheManager(9)",
        ),
        {f"it puts {PROVED} in the place of its manager while it runs"},
    ),
    "another class while it runs": (
        Edit(
            PATH,
            RUNS,
            FIRST,
            before="self.encoder_cache_manager.__class__ = type('_', (EncoderCacheManager,), {})",
        ),
        {"it puts vllm.v1.core.sched.scheduler._ in the place of its manager while it runs"},
    ),
    "an answer set while it runs": (
        Edit(
            PATH,
            RUNS,
            FIRST,
            before="self.encoder_cache_manager.can_allocate = lambda *given: True",
        ),
        {f"it sets can_allocate on its {PROVED} while it runs"},
    ),
}
"""Changes after which a proof of the class says nothing of the scheduler, and what is told."""


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_scheduler_that_asks_something_else_than_is_proved_is_refused(
    name: str, host: ChangingHost
) -> None:
    edit, said = OTHERWISE[name]
    source = (releases.install(NEWEST, report=print).tree / PATH).read_text()
    traces = [LANES["scheduler"].trace(seed, NEWEST) for seed in range(5)]
    host.change(ChangedText(PATH, edit.function, edited(source, edit)))
    told = host.built(traces)
    assert set(told.otherwise) == said
    with pytest.raises(InputError, match=r"is not what its scheduler asks: it .*_manager.py"):
        refuse_otherwise_built(host, ["EncoderCacheManager"])
    host.restore()
    told = host.built(traces)
    assert (told.built, told.otherwise) == ({"EncoderCacheManager": len(traces)}, [])


def test_a_class_that_no_scheduler_builds_is_refused(host: ChangingHost) -> None:
    refuse_otherwise_built(host, ["EncoderCacheManager", "EncoderDecoderCacheManager"])
    with pytest.raises(InputError, match="builds no AnotherManager in"):
        refuse_otherwise_built(host, ["EncoderCacheManager", "AnotherManager"])


@pytest.mark.full
@pytest.mark.parametrize("version", MODELLED)
def test_schedulers_of_releases_ask_what_is_proved(version: str) -> None:
    installed = releases.install(version, report=print)
    names = [one.source.name for name in CLASSES for one in sources(name, [Tree("", installed)])]
    with closing(resolve(f"vllm@{version}", report=print)) as target:
        assert isinstance(target, HostTarget)
        refuse_otherwise_built(target, names)
