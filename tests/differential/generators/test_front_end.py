"""Traces of front ends are pure functions of their seeds; every order is there once."""

from cacheproof.differential.generators.front_end import (
    every_order_trace,
    front_end_trace,
    orders_in_all,
    processor_only_trace,
    several_answers_trace,
    several_servers_trace,
    shared_memory_trace,
)
from cacheproof.differential.traces.front_end import ResetMedia
from cacheproof.differential.traces.trace_file import dump, parse

SEEDS = range(100)


def test_a_trace_is_a_pure_function_of_its_seed_and_can_be_read_back() -> None:
    for make in (
        front_end_trace,
        every_order_trace,
        processor_only_trace,
        shared_memory_trace,
        several_answers_trace,
        several_servers_trace,
    ):
        for seed in SEEDS:
            trace = make(seed)
            assert trace == make(seed)
            assert parse(dump(trace).encode().splitlines(), "trace") == trace


def test_every_order_is_there_once_with_all_ways_to_go_on_and_a_reset_at_every_place() -> None:
    traces = {(one.header.config, one.events) for one in map(every_order_trace, _all())}
    assert len(traces) == orders_in_all()
    lives = {
        tuple(type(event) for event in events if getattr(event, "request", "") == "a")
        for _, events in traces
    }
    assert len(lives) == 3
    resets = {
        (place, event.half)
        for _, events in traces
        for place, event in enumerate(events)
        if isinstance(event, ResetMedia)
    }
    halves = ("both", "sender", "receiver")
    assert resets == {(place, half) for place in range(7) for half in halves}


def _all() -> range:
    return range(orders_in_all())
