"""Traces of names are pure functions of their seeds, and offer what their release has."""

from cacheproof.differential.generators.media_identifier import media_identifier_trace
from cacheproof.differential.traces.media_identifier import MediaIdentifierConfig
from cacheproof.differential.traces.trace_file import dump, parse

SEEDS = range(100)


def test_a_trace_is_a_pure_function_of_its_seed_and_can_be_read_back() -> None:
    for seed in SEEDS:
        trace = media_identifier_trace(seed)
        assert trace == media_identifier_trace(seed)
        assert parse(dump(trace).encode().splitlines(), "trace") == trace


def test_adapters_reach_an_encoder_where_the_release_has_a_switch_for_that() -> None:
    def reach(release: str | None) -> set[bool]:
        configs = [media_identifier_trace(seed, release=release).header.config for seed in SEEDS]
        assert all(isinstance(one, MediaIdentifierConfig) for one in configs)
        return {one.adapters_reach for one in configs}  # type: ignore[union-attr]

    assert reach("0.13.0") == {False}
    assert reach("0.14.0") == reach(None) == {False, True}


def test_engines_have_settings_and_pictures_come_as_rows_of_an_encoder() -> None:
    traces = [media_identifier_trace(seed) for seed in SEEDS]
    settings = {one for trace in traces for one in trace.header.config.settings}
    assert settings == {0, 1, 2}
    items = [item for trace in traces for event in trace.events
             for item in getattr(event, "items", ())]  # fmt: skip
    assert {item.modality for item in items} == {"image", "audio", "image_embeds"}
