"""The judge of connectors tells apart what an exception comes of."""

import pytest

from cacheproof.differential.judges.encoder_connector import EncoderConnectorJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
    EncoderConnectorHeader,
    Execute,
    Spoil,
    StoredItem,
    StoringModel,
)
from cacheproof.differential.traces.records import Raised, StepRecord
from cacheproof.differential.traces.trace import Trace

SPOILT = {"bytes": 0, "outside": []}


@pytest.mark.parametrize(
    ("text", "kind"),
    [("File name too long", ""), ("Input/output error", "after a file was spoiled")],
)
def test_a_name_that_no_file_can_have_raises_whatever_was_done_to_the_store(
    text: str, kind: str
) -> None:
    config = EncoderConnectorConfig((StoredItem("x", 1),), (StoringModel("m"),))
    events = Spoil("x", "half"), Execute("a")
    trace = Trace(EncoderConnectorHeader(SCHEMA, config), events)
    judge = EncoderConnectorJudge(trace, None, Reachability())
    judge.judge(0, events[0], StepRecord(SPOILT, [], None, None))
    judge.judge(1, events[1], StepRecord(None, [], Raised("OSError", text), None))
    assert set(judge.by_kind) == {("EX-5", kind)}
