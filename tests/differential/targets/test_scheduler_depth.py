"""The real Scheduler of real releases, through the host process; provisions what is missing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rules import rules_for
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.search.canary import NO_CANARY, canaries_in, plant
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.host.scheduler.settings import LATER
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.scheduler import (
    Abort,
    ResetPrefix,
    Schedule,
    SchedulerConfig,
    Transfer,
)
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.releases import NEWEST
from cacheproof.spec.versions import release_key
from tests.differential.scheduler_traces import trace
from tests.differential.targets.parameters import newest_and
from tests.stories import Story, stories_of
from tests.telling import difference

OTHER_VERSIONS = (
    "0.10.1.1",
    "0.10.2",
    "0.11.0",
    "0.13.0",
    "0.14.0",
    "0.14.1",
    "0.15.1",
    "0.18.1",
    "0.22.1",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.32.0",
)
STEP = (Schedule(), Update())
PLUG_IN = """
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

class Refusing(EncoderCacheManager):
    def can_allocate(self, request, input_id, *budgets):
        raise LookupError(f"asked for {request.request_id}")
"""


@contextmanager
def host(
    version: str, settings: dict[str, str] | None = None, plug_in: str | None = None
) -> Iterator[HostTarget]:
    release = releases.install(version, report=print)
    command, environment = releases.host_command(release)
    if settings and "PYTHONPATH" in settings:
        settings = {"PYTHONPATH": f"{settings['PYTHONPATH']}:{environment['PYTHONPATH']}"}
    target = HostTarget(
        f"vllm@{version}", version, command, {**environment, **(settings or {})}, plug_in=plug_in
    )
    try:
        yield target
    finally:
        target.close()


@pytest.fixture(scope="module", params=newest_and(*OTHER_VERSIONS))
def any_release(
    request: pytest.FixtureRequest, hosted: Callable[[str], AbstractContextManager[HostTarget]]
) -> Iterator[HostTarget]:
    with hosted(request.param) as target:
        yield target


def add(request: str, prompt: int, *items: Item, max_tokens: int = 2, priority: int = 0) -> Add:
    return Add(request, prompt, items, max_tokens, priority)


def ran(target: HostTarget, *events: AnyEvent, **changes: object) -> TraceResult:
    (result,) = target.run([trace(*events, **changes)])
    return result


FOLDER = Path(__file__).parent / "stories"
EVERY = [pytest.param(one, id=one.title) for one in stories_of(FOLDER / "every_release.txt")]
OF_NEWEST = [pytest.param(one, id=one.title) for one in stories_of(FOLDER / "newest.txt")]


@pytest.mark.parametrize("story", EVERY)
def test_a_release_decides_as_the_ideal_does(any_release: HostTarget, story: Story) -> None:
    assert difference(story, any_release) == []


@pytest.mark.parametrize("story", OF_NEWEST)
def test_the_newest_release_decides_as_its_model_does(newest: HostTarget, story: Story) -> None:
    assert difference(story, newest) == []


BUSY = (
    add("a", 30, Item("x", 2, 6), Item("y", 12, 5), max_tokens=4),
    add("b", 30, Item("x", 2, 6), Item("z", 12, 6, None, (True, False) * 3), priority=-1),
    *STEP,
    Schedule(),
    add("c", 40, Item("y", 0, 5), Item("y", 20, 5), max_tokens=20),
    Abort("b"),
    Update(),
    *STEP * 4,
    ResetPrefix(),
    Reset(),
    Schedule(),
    Schedule(),
    Update(2),
    *STEP * 4,
)


def busy_traces() -> Sequence[Trace]:
    return [
        trace(*BUSY, policy=policy, async_scheduling=is_async, num_blocks=5, prefix_caching=caches)
        for policy in ("fcfs", "priority")
        for is_async in (False, True)
        for caches in (False, True)
    ]


@pytest.mark.full
def test_the_same_traces_give_the_same_bytes_in_one_process_and_in_two(
    any_release: HostTarget,
) -> None:
    first, again = any_release.run(busy_traces()), any_release.run(busy_traces())
    assert any_release.release is not None
    with host(any_release.release) as other:
        elsewhere = other.run(busy_traces())
    assert all(result.illegal is None for result in first)
    assert msgspec.json.encode(first) == msgspec.json.encode(again)
    assert msgspec.json.encode(first) == msgspec.json.encode(elsewhere)


def test_what_makes_no_sense_is_a_no_op(any_release: HostTarget) -> None:
    events = (Abort("nobody"), add("a", 8), add("a", 9), Abort("a"), add("a", 8))
    answers = [record.outcome for record in ran(any_release, *events).records]
    assert [answer is None for answer in answers] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_blocks": 3}, "max seq len"),
        ({"max_num_batched_tokens": 2}, "max_num_seqs"),
        ({"chunked_prefill": False}, "max_model_len"),
        ({"disable_chunked_mm_input": True, "max_num_batched_tokens": 5}, "max_tokens_per_mm_item"),
    ],
)
def test_a_configuration_is_refused_in_the_words_of_the_release(
    any_release: HostTarget, changes: dict[str, object], reason: str
) -> None:
    words = ran(any_release, add("a", 20, Item("x", 4, 6)), **changes).illegal
    assert words is not None
    assert reason in words
    assert "\n" not in words


def test_refusing_one_configuration_leaves_the_next_as_it_was(any_release: HostTarget) -> None:
    assert ran(any_release, add("a", 60), num_blocks=3).illegal is not None
    assert ran(any_release, add("a", 60)).illegal is None


def test_a_prompt_longer_than_the_model_is_refused(any_release: HostTarget) -> None:
    words = ran(any_release, add("a", 65)).illegal
    assert words is not None
    assert "longer than the maximum model length" in words


@pytest.mark.parametrize(
    "items",
    [
        (Item("x", 18, 3),),
        (Item("x", 2, 4), Item("y", 4, 4)),
        (Item("x", 2, 4, None, (True,)),),
    ],
)
def test_items_that_no_processor_makes_are_refused(
    newest: HostTarget, items: tuple[Item, ...]
) -> None:
    words = ran(newest, add("a", 20, *items)).illegal
    assert words is not None
    assert words.startswith("item ")


def test_the_cache_holds_the_largest_item_whatever_was_configured(newest: HostTarget) -> None:
    assert ran(newest, add("a", 20, Item("x", 2, 12)), *STEP, capacity=4).capacity == 12


@pytest.mark.full
def test_both_model_runners_of_the_newest_release_schedule_alike() -> None:
    answers = []
    for runner in ("0", "1"):
        with host(NEWEST, {"VLLM_USE_V2_MODEL_RUNNER": runner}) as target:
            answers.append(target.run(busy_traces()))
    assert answers[0] == answers[1]


@pytest.mark.full
def test_what_a_plug_in_raises_comes_out_as_raised(tmp_path: Path) -> None:
    (tmp_path / "plug_in.py").write_text(PLUG_IN)
    with host(NEWEST, {"PYTHONPATH": str(tmp_path)}, plug_in="plug_in:Refusing") as target:
        (result,) = target.run([trace(add("a", 20, Item("x", 2, 4)), *STEP)])
    assert result.records[-1].raised == ("LookupError", "asked for a")


def test_the_faults_planted_in_a_scheduler_s_manager_are_found(any_release: HostTarget) -> None:
    lane = LANES["scheduler"]
    found = plant(canaries_in(lane, any_release), any_release, lane)
    assert all(found.values())
    assert {name.removesuffix(" (scheduler)").split(",")[0] for name in found} == {
        rule.id
        for rule in rules_for(lane.manager, any_release.release, lane.depth).all
        if (lane.manager, lane.depth, rule.id) not in NO_CANARY and rule.id not in lane.silent_on
    }


@pytest.mark.full
def test_a_release_breaks_no_promise_to_its_manager_but_as_listed(any_release: HostTarget) -> None:
    listed = load()
    for lane in LANES.values():
        if lane.depth == "scheduler" and lane.is_offered_by(any_release.release):
            traces = [lane.trace(seed, any_release.release) for seed in range(20)]
            for each, result in zip(traces, any_release.run(traces), strict=True):
                broken = examine(each, result, any_release).broken
                for one in {one for one in broken if one.startswith("CP-")}:
                    assert may_be(listed, one, None, any_release.release, (lane.name,))


def test_a_promise_is_seen_broken_by_a_preemption_in_the_step_that_encodes(
    newest: HostTarget,
) -> None:
    preempting = LANES["scheduler with loads"].trace(2, NEWEST)
    (result,) = newest.run([preempting])
    violation = examine(preempting, result, newest).violations["CP-4"]
    outcome = result.records[violation.event].outcome
    assert outcome is not None
    assert violation.request in outcome["preempted"]


def test_what_is_ready_elsewhere_is_loaded_in_the_place_of_an_encode(
    any_release: HostTarget,
) -> None:
    events = (Transfer("x", "ready"), add("a", 12, Item("x", 0, 4), Item("y", 4, 4)), *STEP)
    if release_key(any_release.release) < release_key("0.11.1"):
        assert "loads no encoder output" in str(
            ran(any_release, *events, ec_connector=True).illegal
        )
        return
    step = ran(any_release, *events, ec_connector=True).records[2].outcome
    assert (step["loads"], step["encode"]) == ({"a": [0]}, {"a": [1]})


def test_what_not_every_release_has_says_nothing_by_default() -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(SchedulerConfig)}
    assert {name: defaults[name] for name in LATER} == LATER


def under_adapters(made: Trace) -> Trace:
    """The trace, whose items have each adapter of theirs in their identifier, as where adapters
    have weights for what encodes items. No lane of this depth draws that."""
    replace = msgspec.structs.replace

    def named(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, Add) or event.lora is None:
            return event
        adapter = event.lora.lora_name
        items = tuple(
            replace(one, identifier=f"{adapter}:{one.identifier}", mm_hash=one.identifier)
            for one in event.items
        )
        return replace(event, items=items)

    return made.with_events(tuple(map(named, made.events)))


@pytest.mark.full
def test_what_is_encoded_under_an_adapter_is_another_item(any_release: HostTarget) -> None:
    reference = reference_for(any_release)
    if reference is None:
        pytest.skip(f"the reference does not model {any_release.release}")
    plain = [LANES["scheduler"].trace(seed, any_release.release) for seed in range(60)]
    named = [under_adapters(one) for one in plain]
    results = any_release.run(named)
    for one, result in zip(named, results, strict=True):
        assert examine(one, result, any_release, reference).difference is None
    # Without the names two users share an encode that they must not share.
    assert encoded(results) > encoded(any_release.run(plain))


def encoded(results: Sequence[TraceResult]) -> int:
    return sum(
        len(items)
        for result in results
        for record in result.records
        if isinstance(record.outcome, dict)
        for items in record.outcome.get("encode", {}).values()
    )
