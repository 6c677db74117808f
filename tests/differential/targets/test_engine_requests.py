"""Real engines whose requests ask for more than a prompt, and what their workers may do wrong then:
docs/explain/runner-requests.md."""

from collections.abc import Sequence
from functools import partial

import pytest

from cacheproof.differential.generators.asked import Asked
from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.generators.whisper import whisper_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.host.faults.engine.embedded import (
    AHEAD_FAULTS,
    EMBEDDED_FAULTS,
)
from cacheproof.differential.targets.host.faults.engine.engine import WORKER_FAULTS
from cacheproof.differential.targets.host.faults.engine.keys import (
    ADAPTER_KEY_FAULTS,
    EMBEDDED_KEY_FAULTS,
    SALT_KEY_FAULTS,
)
from cacheproof.differential.targets.host.faults.engine.models import (
    AUDIO_FAULTS,
    DEEPSTACK_FAULTS,
    GROUP_FAULTS,
)
from cacheproof.differential.targets.host.faults.engine.requests import (
    ADAPTER_FAULTS,
    GIVEN_FAULTS,
    WEIGHT_FAULTS,
)
from cacheproof.differential.targets.host.faults.engine.sessions import FIRST_SESSION_FAULTS
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Adapter, Item
from cacheproof.differential.traces.engine import EngineModel
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace
from tests.differential.targets.beside import answered_alike, refusal_of, replace_config

pytestmark = pytest.mark.full

FAULTY = range(20)
STRIPPED = 710_100
"""A seed in which the pixels of an item are not sent, and it is encoded after a preemption."""
SAMPLES_TOKEN_0 = 700_092
"""A seed that samples token 0 under prompt lookup. A scheduler has that token in the place of each
embedding; in a worker's prompt it stands nowhere."""
ANSWERED: dict[Asked, tuple[EngineModel, ...]] = {
    "salts": ("llava", "qwen2_5_vl", "cohere2_vision"),
    "adapters": ("llava", "qwen2_5_vl", "qwen3_vl"),
    "tower adapters": ("qwen2_5_vl",),
    "embeddings": ("llava", "qwen2_5_vl", "qwen2_audio"),
    "embedded prompts": ("llava", "qwen2_5_vl", "qwen3_vl", "qwen2_audio", "cohere2_vision"),
    "priority": ("llava", "cohere2_vision", "whisper"),
    "whole items": ("llava", "qwen2_5_vl", "cohere2_vision"),
    "weights": ("llava", "qwen2_5_vl", "qwen3_vl", "cohere2_vision", "whisper"),
    "sessions": ("llava", "qwen2_5_vl", "qwen3_vl", "qwen2_audio", "cohere2_vision"),
}
OF = {
    **dict.fromkeys(WORKER_FAULTS, partial(engine_trace, ahead=True)),
    **dict.fromkeys(ADAPTER_FAULTS, partial(engine_trace, asked="adapters")),
    **dict.fromkeys(GIVEN_FAULTS, partial(engine_trace, asked="embeddings")),
    **dict.fromkeys(EMBEDDED_FAULTS, partial(engine_trace, asked="embedded prompts")),
    **dict.fromkeys(WEIGHT_FAULTS, partial(engine_trace, asked="weights")),
    **dict.fromkeys(
        FIRST_SESSION_FAULTS, partial(engine_trace, model="qwen2_5_vl", asked="sessions")
    ),
    **dict.fromkeys(GROUP_FAULTS, partial(engine_trace, model="cohere2_vision")),
    **dict.fromkeys(DEEPSTACK_FAULTS, partial(engine_trace, model="qwen3_vl")),
    **dict.fromkeys(AUDIO_FAULTS, partial(engine_trace, model="qwen2_audio")),
}
"""The traces on which a fault of a worker is looked for."""
OF_KEYS = {
    **dict.fromkeys(SALT_KEY_FAULTS, partial(engine_trace, asked="salts")),
    **dict.fromkeys(ADAPTER_KEY_FAULTS, partial(engine_trace, asked="adapters")),
    **dict.fromkeys(EMBEDDED_KEY_FAULTS, partial(engine_trace, asked="embedded prompts")),
}
OF_PROMPTS_AHEAD = {
    "ends_at_an_embedding": "store",
    "looks_up_what_lay_there": "scheduled",
    "forgets_what_was_sampled": "token",
}
"""What shows that the host no longer puts right what a release does with prompts of embeddings."""


@pytest.mark.parametrize(
    ("model", "asked"), [(model, asked) for asked, models in ANSWERED.items() for model in models]
)
def test_an_engine_decides_and_answers_as_the_runner(
    engine: HostTarget, runner: ReferenceTarget, model: EngineModel, asked: Asked
) -> None:
    for seed in range(4):
        trace = engine_trace(seed, model, asked=asked)
        # A session that starts over with an item that it has hit ends the engine.
        but = "stripped-item" if asked == "sessions" else None
        answered_alike(trace, engine, runner, but=but)


@pytest.mark.parametrize("fault", OF)
def test_a_fault_of_a_worker_is_seen(
    engine: HostTarget, runner: ReferenceTarget, fault: str
) -> None:
    for trace in map(OF[fault], FAULTY):
        (broken,) = engine.run([trace], fault)
        (whole,) = runner.run([trace])
        difference = compare(whole, broken)
        if difference is not None:
            may_end = fault in WORKER_FAULTS | FIRST_SESSION_FAULTS
            assert may_end or difference.field.startswith(("token", "log prob"))
            assert compare(whole, engine.run([trace])[0]) is None
            return
    pytest.fail(f"{fault} was not seen")


def test_prompts_of_embeddings_with_steps_ahead_are_answered_as_by_the_runner(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    for model, seeds in (("llava", range(6)), ("qwen2_5_vl", (*range(6), SAMPLES_TOKEN_0))):
        for seed in seeds:
            trace = engine_trace(seed, model, ahead=True, asked="embedded prompts")
            answered_alike(trace, engine, runner)


def test_an_item_that_a_tower_with_adapters_is_not_sent_is_listed(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    trace = engine_trace(STRIPPED, "qwen2_5_vl", asked="tower adapters")
    examination = examine(trace, engine.run([trace])[0], engine, runner)
    assert examination.difference is None
    kind = "AssertionError in update: Expected number of"
    assert ("SC-8", kind) in examination.by_kind
    assert ("SC-9", "after a preemption") in examination.by_kind
    assert "stripped-item" in [one.name for one in may_be(load(), "SC-8", kind, engine.release)]


@pytest.mark.parametrize("fault", AHEAD_FAULTS)
def test_what_the_host_puts_right_of_prompts_of_embeddings_is_seen(
    engine: HostTarget, runner: ReferenceTarget, fault: str
) -> None:
    traces = [engine_trace(seed, ahead=True, asked="embedded prompts") for seed in range(40)]
    differences = map(compare, runner.run(traces), engine.run(traces, fault))
    fields = {difference.field.split()[0] for difference in differences if difference is not None}
    assert OF_PROMPTS_AHEAD[fault] in fields


@pytest.mark.parametrize("fault", OF_KEYS)
def test_kv_that_an_engine_shares_across_requests_is_named(engine: HostTarget, fault: str) -> None:
    for trace in map(OF_KEYS[fault], FAULTY):
        (broken,) = engine.run([trace], fault)
        if "SC-15" in examine(trace, broken, engine).broken:
            assert "SC-15" not in examine(trace, engine.run([trace])[0], engine).broken
            return
    pytest.fail(f"{fault} was not named")


def test_a_tied_head_that_keeps_old_weights_answers_the_token_of_before(
    wheel: HostTarget, engine: HostTarget, runner: ReferenceTarget
) -> None:
    """Rows of weights stand as many places further as their version says: so do the tokens that the
    runner answers, of the same log probability. See docs/explain/runner-requests.md#new-weights."""
    trace = whisper_trace(0, asked="weights")
    (whole,) = runner.run([trace])
    (broken,) = wheel.run([trace], "keeps_a_tied_head")
    assert compare(whole, wheel.run([trace])[0]) is None
    assert compare(whole, engine.run([trace], "keeps_a_tied_head")[0]) is None  # makes no copy
    difference = compare(whole, broken)
    assert difference is not None
    assert difference.field.startswith("token")
    ours, theirs = difference.left, difference.right
    assert ours[0] - theirs[0] in (1, 2)
    assert ours[1:] == pytest.approx(theirs[1:], abs=1e-4)


def test_rows_that_a_decoder_attends_to_under_an_adapter_end_an_engine(
    engine: HostTarget, runner: ReferenceTarget
) -> None:
    """Their keys and values are computed in the decoder's step, whose mapping is of its tokens."""
    trace = replace_config(whisper_trace(0), max_loras=1)
    sound = (Item("sound 1", 0, 50),)
    step = (Schedule(), Update())
    plain, under = (
        Trace(trace.header, (Add("a", 12, sound, lora=lora), *step))
        for lora in (None, Adapter("skill 1", 1, "adapter 1"))
    )
    answered_alike(plain, engine, runner)
    said = engine.run([under])[0].records[-1].raised
    assert said is not None
    assert "subscript b has size 12" in said.message
    assert "previously seen size 50" in said.message
    assert refusal_of(runner, under) == "the runner has no adapters of a decoder that attends"


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
    """The release fails on a CPU where the two differ: docs/explain/runner-requests.md#adapters."""
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
