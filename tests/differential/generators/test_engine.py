"""Traces of engines: what a release would refuse when it starts is not asked for."""

import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.generators.scheduler_config import most_blocks
from cacheproof.differential.traces.engine import EngineConfig, EngineModel
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.scheduler import Chunk


def test_the_longest_request_has_its_blocks_whether_one_step_is_in_flight_or_two() -> None:
    in_flight = set()
    for seed in range(200):
        config = engine_trace(seed, "cohere2_vision", ahead=True).header.config
        assert isinstance(config, EngineConfig)
        assert config.num_blocks - 1 >= sum(most_blocks(group, config) for group in config.groups)
        in_flight.add(config.async_scheduling)
    assert in_flight == {False, True}


@pytest.mark.parametrize("model", ["llava", "qwen2_5_vl", "qwen3_vl", "cohere2_vision"])
def test_no_session_outgrows_the_model(model: EngineModel) -> None:
    """Whether each turn has a length of its own, or that of the first holds for all."""
    most_chunks = 0
    for seed in range(100):
        trace = engine_trace(seed, model, asked="sessions")
        for added in (one for one in trace.events if isinstance(one, Add) and one.resumable):
            chunks = [
                one
                for one in trace.events
                if isinstance(one, Chunk) and one.request == added.request
            ]
            own = [one.max_tokens for one in chunks]
            for turns in (own, [added.max_tokens for _ in chunks]):
                prompts = added.prompt + sum(one.prompt for one in chunks)
                length = prompts + added.max_tokens + sum(turns)
                assert length <= trace.header.config.max_model_len
            items = [*added.items, *(item for one in chunks for item in one.items)]
            assert len(items) <= 8
            most_chunks = max(most_chunks, len(chunks))
    assert most_chunks > 2
