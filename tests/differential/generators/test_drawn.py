"""Which fields of a trace some lane gives another value than the one that says nothing. A field
that no lane draws is searched by nobody, and is listed here with the reason."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.findings.shrinking.fields import fields_of
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.traces.base import tag_of
from tests.differential.traces.fields import config_of, paths

SEEDS = 300
"""Of each lane, at most: some fields are rare."""
SEEDS_AT_LEAST = 20
OF_TOWERS = "adapters of what encodes items rename them: at engine depth, and in a test"
UNREAD = "managers do not read it"
IN_TURN = "generators write an update for each step; shrinking joins them"
NOT_TAKEN = "engines of this depth do not take it"
UNDRAWN = {
    "manager": {
        **dict.fromkeys(
            (
                "add.max_tokens", "add.priority", "add.lora", "add.salt", "add.skip_reading",
                "add.stop_after", "add.resumable", "add.sends", "add.embeds",
                "add.embeds.identifier", "add.embeds.offset", "add.embeds.length",
                "update.accepts",
            ),
            UNREAD,
        ),
        "add.items.mm_hash": OF_TOWERS,
        "update.steps": IN_TURN,
    },
    "scheduler": {
        "config.one_text": "what is explored, where two texts would be two states",
        "add.items.mm_hash": OF_TOWERS,
        "chunk.items.mm_hash": OF_TOWERS,
        **dict.fromkeys(
            (
                "add.embeds", "add.embeds.identifier", "add.embeds.offset", "add.embeds.length",
            ),
            "rows in the place of tokens are no decision of a scheduler: at engine depth",
        ),
        "update.steps": IN_TURN,
    },
    "engine": {
        **dict.fromkeys(
            (
                "config.long_prefill_token_threshold_adaptive", "config.max_num_active_seqs",
                "config.scheduler_reserve_full_isl", "config.watermark",
                "config.prefill_schedule_interval", "add.stop_after", "add.skip_reading",
                "chunk.stop_after",
            ),
            "decisions alone: at scheduler depth",
        ),
        **dict.fromkeys(
            ("config.ec_connector", "config.kv_connector", "add.sends"), NOT_TAKEN
        ),
        "config.v2_model_runner": "a search gives traces of odd seeds to the second runner",
        "config.one_text": "what is explored, at scheduler depth",
        "config.as_released": "asked for by hand, of a fault that is put right else",
        "chunk.items.mm_hash": "sessions have no adapters of towers",
        "chunk.items.is_embed": "sessions are of a model whose items are dense",
        "update.steps": IN_TURN,
        "update.accepts": "the engine's model says which drafts are accepted",
    },
    "block_hash": dict.fromkeys(
        (
            "prompt.items.mm_hash", "prompt.items.is_embed", "continue.items.mm_hash",
            "continue.items.is_embed",
        ),
        "keys of blocks read identifiers and places",
    ),
    "kv_cache": {
        **dict.fromkeys(
            ("arrive.items.mm_hash", "arrive.items.is_embed"),
            "keys of blocks read identifiers and places",
        ),
        "reset_prefix.running": "who starts over is the scheduler's affair",
    },
}  # fmt: skip
"""By depth, and by the configuration or event and the field."""


def fields(depth: str) -> Iterator[str]:
    """All fields of a depth's traces. One without a default is drawn wherever it stands."""
    for holder in (config_of(depth), *DEPTHS[depth].events):
        for path in paths(holder):
            yield f"{_named(depth, holder)}.{'.'.join(path)}"


def drawn(depth: str) -> set[str]:
    """The fields to which some trace of the depth's lanes gives a value that is not plain, in as
    many seeds as all take that are not listed."""
    found: set[str] = set()
    lanes = [lane for lane in LANES.values() if lane.depth == depth]
    wanted = set(fields(depth)) - set(UNDRAWN.get(depth, {}))
    for seed in range(SEEDS):
        if seed >= SEEDS_AT_LEAST and found >= wanted:
            break
        for lane in lanes:
            trace = lane.trace(seed, None)
            for one in (trace.header.config, *trace.events):
                found |= set(_not_plain(one, _named(depth, type(one))))
    return found


def _named(depth: str, holder: type[msgspec.Struct]) -> str:
    return "config" if holder is config_of(depth) else tag_of(holder)


@cache
def _plain(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a type, with the value that says nothing where there is one."""
    return {field.name: field.plain for field in fields_of(kind)}


def _not_plain(holder: msgspec.Struct, where: str) -> Iterator[str]:
    for name, plain in _plain(type(holder)).items():
        value = getattr(holder, name)
        if value != plain:
            yield f"{where}.{name}"
        for one in value if isinstance(value, tuple) else ():
            if isinstance(one, msgspec.Struct):
                yield from _not_plain(one, f"{where}.{name}")


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_field_that_no_lane_draws_says_why(depth: str) -> None:
    missing = set(fields(depth)) - drawn(depth)
    assert missing == set(UNDRAWN.get(depth, {}))


def test_a_field_that_is_plain_is_not_drawn() -> None:
    (first, *_) = (lane for lane in LANES.values() if lane.depth == "scheduler")
    trace = first.trace(0, None)
    plain = msgspec.structs.replace(trace.header.config, policy="fcfs", max_loras=0)
    other = msgspec.structs.replace(plain, policy="priority")
    assert "config.policy" not in set(_not_plain(plain, "config"))
    assert "config.policy" in set(_not_plain(other, "config"))
