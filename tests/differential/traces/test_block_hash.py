"""Traces of block keys: what is legal, what does nothing, and how a continued request is judged."""

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.block_hash import BlockHashConfig
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import parse

HEADER = b'{"depth":"block_hash","schema":1,"config":{"block_size":2,"lookahead":%d}}'
ARRIVES = b'{"event":"prompt","request":"a","tokens":[1,2]}'
DECODES = b'{"event":"decode","request":"a","tokens":[8]}'
GOES_ON = b'{"event":"continue","request":"a","tokens":[3,4,5]}'


def trace(*events: bytes, lookahead: int = 0) -> Trace:
    return parse([HEADER % lookahead, *events], "test")


def outcomes(made: Trace) -> list[object]:
    return [record.outcome for record in ReferenceTarget().records(made)]


def test_a_trace_that_names_no_function_means_sha256() -> None:
    assert trace(ARRIVES).header.config == BlockHashConfig(2, 0, "sha256")


def test_a_function_that_vllm_does_not_have_is_refused() -> None:
    header = HEADER.replace(b'"lookahead":%d', b'"algorithm":"md5"')
    with pytest.raises(InputError, match="Invalid enum value 'md5'"):
        parse([header, ARRIVES], "test")


def test_an_item_that_ends_behind_its_chunk_is_refused() -> None:
    late = GOES_ON[:-1] + b',"items":[{"identifier":"x","offset":2,"length":2}]}'
    with pytest.raises(InputError, match="reaches past the prompt"):
        trace(ARRIVES, DECODES, late)


@pytest.mark.parametrize(
    "events",
    [
        (GOES_ON,),
        (ARRIVES, GOES_ON),
        (ARRIVES, DECODES, GOES_ON, GOES_ON),
        (
            b'{"event":"prompt","request":"a","tokens":[9],"embeds":["0000803f"]}',
            DECODES,
            GOES_ON,
        ),
    ],
    ids=["nobody's", "nothing decoded", "twice", "with embeddings"],
)
def test_more_prompt_that_no_engine_would_bring_does_nothing(events: tuple[bytes, ...]) -> None:
    *before, last = outcomes(trace(*events))
    assert last is None
    assert None not in before


def test_a_request_is_continued_behind_its_last_token() -> None:
    arrived, decoded, went_on = outcomes(trace(ARRIVES, DECODES, GOES_ON))
    afresh = outcomes(trace(b'{"event":"prompt","request":"a","tokens":[1,2,3,4,5]}'))
    assert [went_on] == afresh
    assert arrived == decoded


def test_a_key_that_looked_ahead_at_a_discarded_token_must_stay() -> None:
    """The drafter's KV was computed with it: another key would be that of another content."""
    made = trace(ARRIVES, DECODES, GOES_ON, lookahead=1)
    target = ReferenceTarget()
    (result,) = target.run([made])
    assert examine(made, result, target).violations == {}
    *others, last = result.records
    assert last.outcome["grown"] != last.outcome["fresh"]
    outcome = {**last.outcome, "grown": last.outcome["fresh"]}
    recomputed = TraceResult([*others, last._replace(outcome=outcome)])
    assert "BK-1" in examine(made, recomputed, target).violations
