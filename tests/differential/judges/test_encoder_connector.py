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


def _broken(between: list[Any], item: StoredItem, count: int, model: int) -> set[tuple[str, str]]:
    """What breaks where an engine of model 0 is served that many rows of the item that a model has
    made before all this; each by contract and kind."""
    models = StoringModel("m"), StoringModel("n")
    rows = {"item": 0, "model": model, "weights": 1, "count": count, "whole": True}
    rows |= {"width": models[model].row_width, "dtype": models[model].dtype}
    step = {"missing": [], "loaded": {"x": rows}, "landed": [], "copying": False, "rest": None}
    outcomes = {Plan: {"promised": {"x": True}, "encodes": [], "pins": None}, Execute: step}
    events = [Start("a", 0), *between, Plan("a", ("x",)), Execute("a")]
    header = EncoderConnectorHeader(SCHEMA, EncoderConnectorConfig((item,), models))
    judge = EncoderConnectorJudge(Trace(header, tuple(events)), None, Reachability())
    for number, event in enumerate(events):
        outcome = {**SPOILT, **outcomes.get(type(event), {})}
        judge.judge(number, event, StepRecord(outcome, [], None, None))
    return set(judge.by_kind)


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
    assert ("EX-7", kind) in _broken(between, StoredItem("x", 1), 1, model=0)


def test_rows_of_another_model_are_of_no_weights_of_this_one() -> None:
    broken = _broken([NewWeights(0)], StoredItem("x", 1), 1, model=1)
    assert {contract for contract, _ in broken} == {"EX-4"}


def test_rows_of_the_gaps_are_told_as_that_whichever_weights_made_them() -> None:
    broken = _broken([NewWeights(0)], StoredItem("x", 2, gaps=3), 5, model=0)
    assert broken == {("EX-4", OF_MORE_ROWS), ("EX-7", "")}
