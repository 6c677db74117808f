"""Real engines: their scheduler's steps executed by their worker, beside the torch runner."""

from collections.abc import Callable
from typing import get_args

import msgspec
import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.generators.whisper import whisper_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.canary import Planting, canaries
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Group, Item
from cacheproof.differential.traces.engine import EngineModel
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.trace import Trace
from tests.differential.targets.beside import (
    LISTED,
    LISTED_OF_DECODERS,
    answered_alike,
    beside_runner,
    refusal_of,
    replace_config,
)

pytestmark = pytest.mark.full

Finding = Callable[[str], Trace]
SEEDS = range(4)


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
        result = answered_alike(engine_trace(seed, model, ahead=ahead), engine, runner)
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
        listed = LISTED_OF_DECODERS if lane.startswith("Whisper") else LISTED - {"WM-3a"}
        if lane.endswith("sessions"):
            listed = listed | {"SC-8", "SC-9"}  # stripped-item, after a preemption
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


@pytest.mark.parametrize("name", ["LLaVA", "Qwen3-VL", "Qwen2-Audio", "Cohere2Vision"])
def test_every_canary_of_an_engine_is_found(engine: HostTarget, name: str) -> None:
    lane = LANES[name]
    planted = canaries(lane.manager, engine.release, {"WM-3a"}, lane.depth)
    assert {canary.contract for canary in planted} == {"EQ-1", "WM-1"}
    for canary in planted:
        assert Planting(engine, map(lane.make, range(40))).finds(canary), canary.name


def test_a_batch_of_outputs_stays_in_memory_for_one_of_them(
    engine: HostTarget, runner: ReferenceTarget, finding: Finding
) -> None:
    trace = finding("encoder-batch-memory")
    _, examination = beside_runner(trace, engine, runner)
    assert examination.broken == {"WM-3a"}
    assert examination.violations["WM-3a"].why == "w.held <= w.capacity is false: 12288 <= 8192"
    assert examine(trace, runner.run([trace])[0], runner).broken == set()


def test_an_item_whose_data_stayed_behind_stops_the_engine(
    engine: HostTarget, runner: ReferenceTarget, finding: Finding
) -> None:
    trace = finding("stripped-item-engine")
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
    (result,) = engine.run([trace])
    assert result.illegal is None


def test_more_films_than_the_engine_was_made_for_are_illegal(engine: HostTarget) -> None:
    films = tuple(Item("film 0 of 1x2x2", 2 + 8 * at, 4) for at in range(5))
    header = engine_trace(0, "qwen2_5_vl").header
    five = Trace(header, (Add("a", 48, films),))
    (result,) = engine.run([five])
    assert result.illegal == "the engine was made for 4 of modality video in a prompt"
    (result,) = engine.run([Trace(header, (Add("a", 48, films[:4]),))])
    assert result.illegal is None


def test_who_comes_back_hears_the_sound_of_who_is_new(
    engine: HostTarget, runner: ReferenceTarget, finding: Finding
) -> None:
    trace = finding("another-sound")
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
    engine: HostTarget, runner: ReferenceTarget, finding: Finding
) -> None:
    """Whatever traces came before: a trace finds zeros where it has written nothing."""
    trace = finding("uncomputed-hit-engine")
    for seed in (0, 1):
        engine.run([engine_trace(seed)])
        (result,) = engine.run([trace])
        examination = examine(trace, result, engine, runner)
        kinds = {name: one.kind for name, one in examination.violations.items()}
        assert kinds == {"SC-15": "left by a preemption", "EQ-1": "over KV that is not right"}
        assert examination.violations["EQ-1"].why == "p.one == p.other is false: (786,) == (720,)"
        assert examination.difference is None


def test_every_canary_of_an_engine_with_an_encoder_decoder_is_found(engine: HostTarget) -> None:
    lane = LANES["Whisper"]
    planted = canaries(lane.manager, engine.release, (), lane.depth)
    assert {canary.contract for canary in planted} == {"EQ-1", "WM-3", "WM-3a"}
    for seed in SEEDS:  # where the release breaks none of them by itself
        trace = whisper_trace(seed)
        broken = examine(trace, engine.run([trace])[0], engine).broken
        assert not broken & {canary.contract for canary in planted}
    for canary in planted:
        assert Planting(engine, map(whisper_trace, SEEDS)).finds(canary), canary.name


def test_a_model_wants_its_own_manager(engine: HostTarget) -> None:
    trace = whisper_trace(0)
    (result,) = engine.run([replace_config(trace, model="llava")])
    assert result.illegal == "the engine's model wants the manager encoder_cache"
