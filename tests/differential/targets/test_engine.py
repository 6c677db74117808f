"""Real engines: their scheduler's steps executed by their worker, beside the torch runner."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, get_args

import msgspec
import pytest

from cacheproof.differential.generators.asked import Asked
from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.generators.whisper import whisper_trace
from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.canary import canaries, finds_canary
from cacheproof.differential.targets.host.engine_faults import (
    ADAPTER_FAULTS,
    GIVEN_FAULTS,
    WORKER_FAULTS,
)
from cacheproof.differential.targets.host.engine_key_faults import (
    ADAPTER_KEY_FAULTS,
    SALT_KEY_FAULTS,
)
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Adapter, Group, Item
from cacheproof.differential.traces.engine import EngineModel
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace

pytestmark = pytest.mark.full

Finding = Callable[[str], Trace]
SEEDS = range(4)
LISTED = {"EC-8b", "LV-1", "WM-3a"}
"""What the release breaks of itself: see known.toml; EC-8b costs efficiency alone, and LV-1 is
broken with a drafter alone."""
LISTED_OF_DECODERS = {"ED-1", "ED-2", "ED-5", "EQ-1", "WM-3", "WM-3a"}


def replace_config(trace: Trace, **values: Any) -> Trace:
    config = msgspec.structs.replace(trace.header.config, **values)
    return Trace(msgspec.structs.replace(trace.header, config=config), trace.events)


def beside_runner(
    trace: Trace, engine: HostTarget, runner: ReferenceTarget
) -> tuple[TraceResult, Examination]:
    """What an engine answers, and what is said of it beside the runner."""
    (result,) = engine.run([trace])
    return result, examine(trace, result, engine, runner)


@pytest.mark.parametrize(
    ("model", "ahead"),
    [
        *[(model, False) for model in get_args(EngineModel)],
        *[
            ("llava", True),
            ("qwen2_5_vl", True),
            ("whisper", True),
        ],  # which have a drafter, or none
    ],
)
def test_engine_and_runner_decide_and_answer_alike(
    engine: HostTarget, runner: ReferenceTarget, model: EngineModel, ahead: bool
) -> None:
    decoded = 0
    for seed in SEEDS:
        trace = engine_trace(seed, model, ahead=ahead)
        result, examination = beside_runner(trace, engine, runner)
        assert examination.illegal is None
        assert examination.difference is None
        assert examination.broken <= (LISTED_OF_DECODERS if model == "whisper" else LISTED)
        decoded += sum(
            len(tokens)
            for outcome in (record.outcome for record in result.records)
            if isinstance(outcome, dict)
            for tokens in outcome.get("outputs", {}).values()
        )
    assert decoded > 100


@pytest.mark.parametrize("lane", [name for name, lane in LANES.items() if lane.depth == "engine"])
def test_the_runner_alone_keeps_every_contract(runner: ReferenceTarget, lane: str) -> None:
    for seed in SEEDS:
        trace = LANES[lane].trace(seed, None)
        listed = LISTED_OF_DECODERS if lane.startswith("Whisper") else {"EC-8b", "LV-1"}
        assert examine(trace, runner.run([trace])[0], runner).broken <= listed


def test_a_fault_in_the_store_shows_as_another_token_or_log_probability(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    parted = set()
    for seed in SEEDS:
        trace = engine_trace(seed)
        (broken,) = engine.run([trace], "reads_the_row_before")
        difference = compare(runner.run([trace])[0], broken)
        if difference is not None:
            parted.add(difference.field.split(" of ")[0])
    assert parted
    assert parted <= {"token", "log probability"}


@pytest.mark.parametrize("fault", WORKER_FAULTS)
def test_a_fault_of_a_worker_that_runs_ahead_is_seen(
    engine: HostTarget, runner: ReferenceTarget, fault: str
) -> None:
    for seed in range(20):
        trace = engine_trace(seed, ahead=True)
        (broken,) = engine.run([trace], fault)
        difference = compare(runner.run([trace])[0], broken)
        if difference is not None:
            assert compare(runner.run([trace])[0], engine.run([trace])[0]) is None
            return
    pytest.fail(f"{fault} was not seen")


@pytest.mark.parametrize("model", ["llava", "qwen2_5_vl"])
def test_requests_of_several_salts_are_decided_on_and_answered_alike(
    engine: HostTarget, runner: ReferenceTarget, model: EngineModel
) -> None:
    for seed in SEEDS:
        trace = engine_trace(seed, model, asked="salts")
        _, examination = beside_runner(trace, engine, runner)
        assert examination.illegal is None
        assert examination.difference is None
        assert examination.broken <= LISTED


@pytest.mark.parametrize("asked", ["embeddings", "priority"])
def test_what_requests_of_a_llava_ask_for_is_answered_alike(
    engine: HostTarget, runner: ReferenceTarget, asked: Asked
) -> None:
    for seed in SEEDS:
        trace = engine_trace(seed, asked=asked)
        _, examination = beside_runner(trace, engine, runner)
        assert examination.illegal is None
        assert examination.difference is None
        assert examination.broken <= LISTED


@pytest.mark.parametrize("fault", GIVEN_FAULTS)
def test_embeddings_that_a_worker_takes_otherwise_are_seen(
    engine: HostTarget, runner: ReferenceTarget, fault: str
) -> None:
    for seed in range(20):
        trace = engine_trace(seed, asked="embeddings")
        (broken,) = engine.run([trace], fault)
        difference = compare(runner.run([trace])[0], broken)
        if difference is not None:
            assert difference.field.startswith(("token", "log prob"))
            return
    pytest.fail(f"{fault} was not seen")


@pytest.mark.parametrize("fault", SALT_KEY_FAULTS)
def test_kv_that_an_engine_shares_across_salts_is_named(engine: HostTarget, fault: str) -> None:
    for seed in range(20):
        trace = engine_trace(seed, asked="salts")
        (broken,) = engine.run([trace], fault)
        if "SC-15" in examine(trace, broken, engine).broken:
            return
    pytest.fail(f"{fault} was not named")


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("llava", "adapters"),
        ("qwen2_5_vl", "adapters"),
        ("qwen2_5_vl", "tower adapters"),
        ("qwen3_vl", "adapters"),
    ],
)
def test_requests_under_adapters_are_decided_on_and_answered_alike(
    engine: HostTarget, runner: ReferenceTarget, model: EngineModel, asked: Asked
) -> None:
    for seed in SEEDS:
        trace = engine_trace(seed, model, asked=asked)
        _, examination = beside_runner(trace, engine, runner)
        assert examination.illegal is None
        assert examination.difference is None
        assert examination.broken <= LISTED


@pytest.mark.parametrize("fault", ADAPTER_FAULTS)
def test_an_adapter_that_a_worker_gives_to_another_row_is_seen(
    engine: HostTarget, runner: ReferenceTarget, fault: str
) -> None:
    for seed in range(20):
        trace = engine_trace(seed, asked="adapters")
        (broken,) = engine.run([trace], fault)
        difference = compare(runner.run([trace])[0], broken)
        if difference is not None:
            assert difference.field.startswith(("token", "log prob"))
            return
    pytest.fail(f"{fault} was not seen")


@pytest.mark.parametrize("fault", ADAPTER_KEY_FAULTS)
def test_kv_that_an_engine_shares_across_adapters_is_named(engine: HostTarget, fault: str) -> None:
    for seed in range(20):
        trace = engine_trace(seed, asked="adapters")
        (broken,) = engine.run([trace], fault)
        if "SC-15" in examine(trace, broken, engine).broken:
            return
    pytest.fail(f"{fault} was not named")


@pytest.mark.parametrize(
    ("model", "media", "sizes"),
    [
        ("llava", ("picture 1",), (16, 17)),
        ("qwen2_5_vl", ("picture 1 of 2x2", "film 1 of 1x2x2"), (32, 16)),
    ],
    ids=["a tower with a row more than its item", "a picture and a film"],
)
def test_rows_that_are_mapped_to_adapters_otherwise_than_encoded_end_an_engine(
    engine: HostTarget,
    runner: ReferenceTarget,
    model: EngineModel,
    media: Sequence[str],
    sizes: tuple[int, int],
) -> None:
    """The release fails on a CPU where the two differ: docs/runner-requests.md#adapters."""
    trace = engine_trace(0, model, asked="tower adapters" if model != "llava" else "adapters")
    header = replace_config(
        trace, tower_adapters=True, capacity=64, compute_budget=64, max_num_batched_tokens=96
    ).header
    length = 16 if model == "llava" else 4
    items = tuple(
        Item(f"skill 1:{name}", 2 + number * (length + 2), length, name)
        for number, name in enumerate(media)
    )
    for lora, under in ((Adapter("skill 1", 1, "adapter 1"), items), (None, _plain(items))):
        asked = Trace(header, (Add("a", 40, under, lora=lora), Schedule(), Update()))
        (result,) = engine.run([asked])
        (ours,) = runner.run([asked])
        if lora is None:
            assert compare(ours, result) is None
            continue
        assert ours.records[-1].raised is None
        said = result.records[-1].raised
        assert said is not None
        assert said.type == "RuntimeError"
        assert f"subscript b has size {sizes[0]}" in said.message
        assert f"previously seen size {sizes[1]}" in said.message


def _plain(items: Sequence[Item]) -> tuple[Item, ...]:
    """The items as encoded under no adapter."""
    return tuple(Item(str(one.mm_hash), one.offset, one.length) for one in items)


def test_an_adapter_that_no_engine_has_is_refused(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    trace = engine_trace(0, asked="adapters")
    without = replace_config(trace, max_loras=0)
    many = replace_config(trace, max_loras=3)
    foreign = Trace(
        trace.header, (Add("a", 40, lora=Adapter("skill 1", 1, "elsewhere")), Schedule(), Update())
    )
    for target in (engine, runner):
        assert "an engine without adapters is asked for adapter" in refusal_of(target, without)
        assert refusal_of(target, foreign) == "no adapter is called elsewhere"
    assert refusal_of(engine, many) == "the engine was made for 2 adapters"


def refusal_of(target: HostTarget | ReferenceTarget, trace: Trace) -> str:
    """Why a target does not run a trace."""
    (result,) = target.run([trace])
    assert result.illegal is not None
    return result.illegal


@pytest.mark.parametrize("name", ["LLaVA", "Qwen3-VL", "Qwen2-Audio", "Cohere2Vision"])
def test_every_canary_of_an_engine_is_found(engine: HostTarget, name: str) -> None:
    lane = LANES[name]
    planted = canaries(lane.manager, engine.release, {"WM-3a"}, lane.depth)
    assert {canary.contract for canary in planted} == {"EQ-1", "WM-1"}
    for canary in planted:
        assert finds_canary(canary, engine, map(lane.make, range(40))), canary.name


def test_a_batch_of_outputs_stays_in_memory_for_one_of_them(
    engine: HostTarget, runner: ReferenceTarget, finding: Finding
) -> None:
    trace = finding("encoder-batch-memory.jsonl")
    _, examination = beside_runner(trace, engine, runner)
    assert examination.broken == {"WM-3a"}
    assert examination.violations["WM-3a"].why == "w.held <= w.capacity is false: 12288 <= 8192"
    assert examine(trace, runner.run([trace])[0], runner).broken == set()


def test_an_item_whose_data_stayed_behind_stops_the_engine(
    engine: HostTarget, runner: ReferenceTarget, finding: Finding
) -> None:
    trace = finding("stripped-item.jsonl")
    for of_model, raised in (
        (trace, "RuntimeError"),
        (_squares(trace, "qwen2_5_vl"), "AssertionError"),
        (_squares(trace, "qwen3_vl"), "AssertionError"),
        (_in_tiles(trace), "RuntimeError"),
    ):
        (result,) = engine.run([of_model])
        assert result.records[-1].raised.type == raised
        assert examine(of_model, result, engine).broken == {"SC-8", "SC-9"}
        assert examine(of_model, runner.run([of_model])[0], runner).broken == {"SC-8", "SC-9"}


def test_a_medium_that_a_model_cannot_take_is_refused(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    whisper, llava = engine_trace(0, "whisper"), engine_trace(0)
    as_pictures = _renamed(whisper, "x")
    as_sounds = _renamed(llava, "sound 1")
    for trace, why in (
        (as_pictures, "x is of kind image, which whisper cannot take"),
        (as_sounds, "sound 1 is of kind audio, which llava cannot take"),
    ):
        for target in (engine, runner):
            assert target.run([trace])[0].illegal == why


def test_a_trace_with_other_groups_than_the_engines_is_refused(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    trace = engine_trace(0, "cohere2_vision")
    groups = trace.header.config.groups
    for other in ((), groups[::-1], (Group("sliding_window", 32, 15), groups[1])):
        for target in (engine, runner):
            asked = replace_config(trace, groups=other, prefix_cache_retention_interval=None)
            refused = refusal_of(target, asked)
            assert refused.startswith("the groups of the engine's KV cache are [{'kind': 'slid")


def _squares(trace: Trace, model: EngineModel) -> Trace:
    """The same for a model of pictures of any size: theirs have as many rows."""
    of_squares = _renamed(trace, "{} of 4x4")
    return Trace(replace_config(trace, model=model).header, of_squares.events)


def _in_tiles(trace: Trace) -> Trace:
    """The same for a model of tiles, whose layers of windows take blocks as well: the pictures are
    a token longer, with four rows fewer."""
    mask = (False, *((True,) * 4 + (False,)) * 3, False)
    events = tuple(
        msgspec.structs.replace(
            event,
            items=tuple(
                Item(f"{item.identifier} of 1x2", item.offset, len(mask), is_embed=mask)
                for item in event.items
            ),
        )
        if isinstance(event, Add)
        else event
        for event in trace.events
    )
    groups = engine_trace(0, "cohere2_vision").header.config.groups
    widened = replace_config(trace, model="cohere2_vision", groups=groups, num_blocks=10)
    return Trace(widened.header, events)


def _renamed(trace: Trace, pattern: str) -> Trace:
    """The same, with other names for its media."""
    events = tuple(
        msgspec.structs.replace(
            event,
            items=tuple(
                msgspec.structs.replace(item, identifier=pattern.format(item.identifier))
                for item in event.items
            ),
        )
        if isinstance(event, Add)
        else event
        for event in trace.events
    )
    return Trace(trace.header, events)


def test_the_memory_of_copies_is_seen(engine: HostTarget) -> None:
    trace = engine_trace(0)
    (plain,) = engine.run([trace])
    (broken,) = engine.run([trace], "keeps_what_it_cut_off")
    assert "WM-3a" not in examine(trace, plain, engine).broken
    assert "WM-3a" in examine(trace, broken, engine).broken


def test_a_configuration_that_the_engine_refuses_is_illegal(engine: HostTarget) -> None:
    trace = engine_trace(0)
    small = replace_config(trace, max_num_batched_tokens=1, max_num_seqs=4)
    (result,) = engine.run([small])
    assert result.illegal is not None
    large = replace_config(trace, num_blocks=10_000)
    (result,) = engine.run([large])
    assert result.illegal == "the engine was made for num_blocks up to 256"
    (result,) = engine.run([replace_config(trace, scheduler_reserve_full_isl=False)])
    assert result.illegal == "the engine was made without scheduler_reserve_full_isl"
    (result,) = engine.run([trace.under_runner("second")])
    assert result.illegal == "a CPU's worker has the first model runner"
    (result,) = engine.run([trace])
    assert result.illegal is None


def test_who_comes_back_hears_the_sound_of_who_is_new(
    engine: HostTarget, runner: ReferenceTarget, finding: Finding
) -> None:
    trace = finding("another-sound.jsonl")
    result, examination = beside_runner(trace, engine, runner)
    assert examination.difference is None
    assert examination.violations["EQ-1"].why == "p.one == p.other is false: (531,) == (426,)"
    assert {"EQ-1", "WM-6"} <= examine(trace, runner.run([trace])[0], runner).broken
    last = [
        outcome["outputs"]
        for outcome in (record.outcome for record in result.records)
        if "outputs" in outcome
    ]
    assert last[2]["c"] == last[0]["b"]


def test_who_hits_kv_that_nobody_computed_answers_otherwise(
    engine: HostTarget, finding: Finding
) -> None:
    """In an engine of its own: what the blocks hold is what traces before have left in them."""
    trace = finding("uncomputed-hit-engine.jsonl")
    with closing(engine.another()) as fresh:
        (result,) = fresh.run([trace])
        violations = examine(trace, result, fresh).violations
    kinds = {name: one.kind for name, one in violations.items()}
    assert kinds == {"SC-15": "left by a preemption", "EQ-1": "over KV that is not right"}
    assert violations["EQ-1"].why == "p.one == p.other is false: (786,) == (720,)"


def test_every_canary_of_an_engine_with_an_encoder_decoder_is_found(engine: HostTarget) -> None:
    lane = LANES["Whisper"]
    planted = canaries(lane.manager, engine.release, (), lane.depth)
    assert {canary.contract for canary in planted} == {"EQ-1", "WM-3", "WM-3a"}
    for seed in SEEDS:  # where the release breaks none of them by itself
        trace = whisper_trace(seed)
        broken = examine(trace, engine.run([trace])[0], engine).broken
        assert not broken & {canary.contract for canary in planted}
    for canary in planted:
        assert finds_canary(canary, engine, map(whisper_trace, SEEDS)), canary.name


def test_a_model_wants_its_own_manager(engine: HostTarget) -> None:
    trace = whisper_trace(0)
    (result,) = engine.run([replace_config(trace, model="llava")])
    assert result.illegal == "the engine's model wants the manager encoder_cache"
