"""The judge of connectors tells apart what an exception comes of."""

from typing import Any

import pytest

from cacheproof.differential.judges.encoder_connector import (
    OF_MORE_ROWS,
    OUT_OF_REACH,
    EncoderConnectorJudge,
)
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
    EncoderConnectorHeader,
    Execute,
    NewWeights,
    Plan,
    Reach,
    Spoil,
    Start,
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


@pytest.mark.parametrize(
    ("between", "kind"),
    [
        ([NewWeights(0)], ""),
        ([Reach(is_there=False), NewWeights(0), Reach(is_there=True)], OUT_OF_REACH),
        ([Reach(is_there=False), NewWeights(1), Reach(is_there=True), NewWeights(0)], ""),
        ([Reach(is_there=False), NewWeights(0), Reach(is_there=True), NewWeights(0)], ""),
    ],
)
def test_rows_of_old_weights_are_told_apart_by_whether_a_reset_could_reach_them(
    between: list[Any], kind: str
) -> None:
    models = StoringModel("m"), StoringModel("n")
    config = EncoderConnectorConfig((StoredItem("x", 1),), models)
    rows = {"item": 0, "model": 0, "weights": 1, "count": 1, "width": models[0].row_width}
    rows |= {"dtype": models[0].dtype, "whole": True}
    step = {"missing": [], "loaded": {"x": rows}, "landed": [], "copying": False, "rest": None}
    events = [Start("a", 0), *between, Plan("a", ("x",)), Execute("a")]
    judge = EncoderConnectorJudge(
        Trace(EncoderConnectorHeader(SCHEMA, config), tuple(events)), None, Reachability()
    )
    outcomes = {Plan: {"promised": {"x": True}, "encodes": [], "pins": None}, Execute: step}
    for number, event in enumerate(events):
        outcome = {**SPOILT, **outcomes.get(type(event), {})}
        judge.judge(number, event, StepRecord(outcome, [], None, None))
    assert ("EX-7", kind) in judge.by_kind


def test_rows_of_the_gaps_are_told_as_that_whichever_weights_made_them() -> None:
    model = StoringModel("m")
    config = EncoderConnectorConfig((StoredItem("x", 2, gaps=3),), (model,))
    rows = {"item": 0, "model": 0, "weights": 1, "count": 5, "width": model.row_width}
    rows |= {"dtype": model.dtype, "whole": True}
    step = {"missing": [], "loaded": {"x": rows}, "landed": [], "copying": False, "rest": None}
    outcomes = {Plan: {"promised": {"x": True}, "encodes": [], "pins": None}, Execute: step}
    events = [Start("a", 0), NewWeights(0), Plan("a", ("x",)), Execute("a")]
    judge = EncoderConnectorJudge(
        Trace(EncoderConnectorHeader(SCHEMA, config), tuple(events)), None, Reachability()
    )
    for number, event in enumerate(events):
        outcome = {**SPOILT, **outcomes.get(type(event), {})}
        judge.judge(number, event, StepRecord(outcome, [], None, None))
    assert set(judge.by_kind) == {("EX-4", OF_MORE_ROWS), ("EX-7", "")}
