"""A record has what a scheduler's connectors were asked and answered."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cacheproof.reference.releases import NEWEST
from tests.differential.audit.spoiled import records_of
from tests.differential.recording.driven import run_recorded, whole_traces

REST = -1
LANES = {
    "kv_connector": ("scheduler with KV loads", "get_num_new_matched_tokens"),
    "connector": ("scheduler with loads", "has_cache_item"),
}
"""By the name in a record: a lane that has such a connector, and how it is asked what it has."""


@pytest.mark.full
@pytest.mark.parametrize("connector", LANES)
def test_the_calls_of_a_connector_are_recorded(connector: str, tmp_path: Path) -> None:
    lane, question = LANES[connector]
    runs: list[Any] = [(trace, None) for trace in whole_traces(NEWEST, 4, [lane])]
    asked: Counter[str] = Counter()
    has = 0
    for one in run_recorded(NEWEST, runs, tmp_path):
        for record in records_of(one.folder):
            calls = record[REST].get(connector, ()) if record[0] == "s" else ()
            for method, request, _, answer in calls:
                asked[method] += 1
                assert method == "has_cache_item" or request != -1
                has += method == question and bool(answer[0] if request is not None else answer)
    assert asked["update_state_after_alloc"] > 0
    assert 0 < has < asked[question]
