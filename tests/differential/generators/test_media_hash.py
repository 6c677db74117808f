"""Pairs and traces of media are pure functions of their seeds, and ask of a release what it has."""

from cacheproof.differential.generators.media_hash import (
    MAKERS,
    PAIRS,
    media_hash_trace,
    pair,
)
from cacheproof.differential.traces.trace_file import dump, parse

SEEDS = range(300)


def test_a_pair_is_a_pure_function_of_its_seed() -> None:
    assert [pair(seed) for seed in SEEDS] == [pair(seed) for seed in SEEDS]
    assert pair(1) != pair(2)


def test_every_way_is_taken() -> None:
    assert {pair(seed).way for seed in SEEDS} == set(MAKERS)


def test_a_trace_is_a_pure_function_of_its_seed_and_can_be_read_back() -> None:
    for seed in range(30):
        trace = media_hash_trace(seed)
        assert trace == media_hash_trace(seed)
        assert len(trace.events) == 2 * PAIRS
        assert parse(dump(trace).encode().splitlines(), "trace") == trace


def test_a_release_is_asked_for_the_algorithms_that_it_has() -> None:
    def asked(release: str | None) -> set[str]:
        headers = (media_hash_trace(seed, release=release).header for seed in range(10))
        return {header.config.algorithm for header in headers}  # type: ignore[union-attr]

    assert asked("0.8.5") == asked("0.14.1") == {"blake3"}
    assert asked("0.15.0") == asked(None) == {"blake3", "sha256", "sha512"}
