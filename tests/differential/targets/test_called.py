"""Which functions of a tree each event calls."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.called import WatchedSession
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.reference.releases import NEWEST

ROOT = f"{Path(json.__file__).parents[1]}/"


class Session:
    """Encodes and decodes as its events say."""

    recorder = "its recorder"

    def apply(self, event: dict[str, Any]) -> Any:
        match event["do"]:
            case "decode":
                return json.loads(event["text"])
            case "nothing":
                return None
        return json.dumps({"a": 1}, indent=1)


def called(*events: dict[str, Any], root: str = ROOT) -> list[list[str]]:
    names: list[list[str]] = []
    session = WatchedSession(Session(), root, names)
    for event in events:
        session.apply(event)
    return names


def test_each_event_has_the_functions_that_it_calls_without_line_numbers() -> None:
    encode, decode, nothing = called(
        {"do": "encode"}, {"do": "decode", "text": "[1]"}, {"do": "nothing"}
    )
    assert {"json:dumps", "json.encoder:JSONEncoder.encode"} <= set(encode)
    assert "json:loads" in decode
    assert "json:loads" not in encode
    assert nothing == []


def test_what_a_function_defines_within_itself_is_that_functions() -> None:
    (encode,) = called({"do": "encode"})
    assert "json.encoder:_make_iterencode" in encode
    assert not any("<" in name for name in encode)


def test_functions_of_other_trees_are_left_out() -> None:
    assert called({"do": "encode"}, root="/no/such/tree/") == [[]]


def test_an_event_that_raises_has_called_what_it_called_until_then() -> None:
    names: list[list[str]] = []
    session = WatchedSession(Session(), ROOT, names)
    with pytest.raises(json.JSONDecodeError):
        session.apply({"do": "decode", "text": "]"})
    assert "json:loads" in names[0]
    assert session.recorder == "its recorder"


@pytest.mark.full
def test_a_release_says_what_each_event_of_a_trace_calls() -> None:
    trace = LANES["encoder cache"].trace(0, NEWEST)
    with closing(resolve(f"vllm@{NEWEST}", report=print)) as target:
        assert isinstance(target, HostTarget)
        names = target.called(trace)
        assert target.run([trace])[0].illegal is None
    assert len(names) == len(trace.events)
    manager = "vllm.v1.core.encoder_cache_manager:EncoderCacheManager"
    assert any(f"{manager}.allocate" in of_event for of_event in names)
