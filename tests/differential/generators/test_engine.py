"""Traces of engines: what a release would refuse when it starts is not asked for."""

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.generators.scheduler_config import most_blocks
from cacheproof.differential.traces.engine import EngineConfig


def test_the_longest_request_has_its_blocks_whether_one_step_is_in_flight_or_two() -> None:
    in_flight = set()
    for seed in range(200):
        config = engine_trace(seed, "cohere2_vision", ahead=True).header.config
        assert isinstance(config, EngineConfig)
        assert config.num_blocks - 1 >= sum(most_blocks(group, config) for group in config.groups)
        in_flight.add(config.async_scheduling)
    assert in_flight == {False, True}
