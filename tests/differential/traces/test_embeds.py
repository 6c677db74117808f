"""Prompts of embeddings in traces: where they may stand, and at which depth."""

import json
from typing import Any

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump, parse

ROWS = {"identifier": "embeddings 1 of 4", "offset": 0, "length": 4}
CONFIG = {
    "capacity": 16,
    "compute_budget": 16,
    "max_num_batched_tokens": 32,
    "max_num_seqs": 2,
    "max_model_len": 96,
    "block_size": 32,
    "num_blocks": 5,
}


def read(*, depth: str = "engine", takes: bool | None = True, **fields: Any) -> Trace:
    """The trace of a request with these fields, of an engine that takes embeddings or does not."""
    own = {} if takes is None else {"prompt_embeds": takes}
    header = {"depth": depth, "schema": 1, "manager": "encoder_cache", "config": {**CONFIG, **own}}
    add = {"event": "add", "request": "a", "prompt": 8, "embeds": [ROWS], **fields}
    return parse([json.dumps(line).encode() for line in (header, add)], "trace")


def test_rows_may_stand_for_all_tokens_or_some() -> None:
    for prompt in (4, 8):
        trace = read(prompt=prompt)
        assert parse(dump(trace).encode().splitlines(), "again") == trace


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"takes": False}, "of a decoder-only engine that takes prompt_embeds"),
        ({"depth": "scheduler", "takes": None}, "at engine depth"),
        ({"embeds": []}, "0 embeds beside 0 items; expected some"),
        (
            {"items": [{"identifier": "picture 1", "offset": 4, "length": 4}]},
            "1 embeds beside 1 items; expected some and no items",
        ),
        ({"prompt": 3}, "within the prompt of 3 tokens"),
        ({"embeds": [ROWS, ROWS]}, r"embeds at \[0, 0\] that end at \[4, 4\]"),
        ({"embeds": [{**ROWS, "offset": 4}, ROWS]}, "in prompt order"),
        ({"embeds": [{**ROWS, "identifier": "a\nb"}]}, "printable characters"),
    ],
)
def test_rows_that_cannot_stand_there_are_refused_in_a_line(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said) as refused:
        read(**wrong)
    assert str(refused.value).startswith("trace line 2: ")
    assert len(str(refused.value).splitlines()) == 1


def test_a_generated_trace_of_embeddings_is_read_as_it_was_made() -> None:
    for seed in range(9):
        trace = engine_trace(seed, asked="embedded prompts")
        assert parse(dump(trace).encode().splitlines(), "again") == trace
        assert any(getattr(event, "embeds", None) for event in trace.events), seed
