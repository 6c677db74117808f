"""What is written for Perfetto has the structure that the trace event format asks for."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cacheproof.differential.findings.timeline.perfetto import MICROSECONDS_PER_EVENT, perfetto
from cacheproof.differential.generators.kv_cache import kv_cache_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace
from tests.differential.findings.timeline.runs import FAULTY, IDEAL, STEP, drawn, needed_entry

PHASES = {"X", "C", "i", "M"}
NAMES = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}

Record = dict[str, Any]


def of_perfetto(trace: Trace, target: ReferenceTarget = FAULTY) -> Record:
    found: Record = json.loads(perfetto(drawn(trace, target)))
    return found


def faults(document: Record) -> Iterator[str]:
    """What is wrong with a file of trace events, one sentence each."""
    records = document["traceEvents"]
    processes = {one["pid"] for one in records if one["name"] == "process_name"}
    threads = {(one["pid"], one["tid"]) for one in records if one["name"] == "thread_name"}
    slices: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for one in records:
        phase = one["ph"]
        if phase not in PHASES or (phase == "M" and one["name"] not in NAMES):
            yield f"{one} is of no known kind"
        if one["pid"] not in processes:
            yield f"{one} is of a process without a name"
        if phase in "Xi" and (one["pid"], one["tid"]) not in threads:
            yield f"{one} is of a thread without a name"
        if phase != "M" and not (isinstance(one["ts"], int) and one["ts"] >= 0):
            yield f"{one} is at no time"
        if phase == "X":
            slices[one["pid"], one["tid"]].append(one)
            if one["dur"] <= 0:
                yield f"{one} takes no time"
        if phase == "C" and not all(isinstance(v, int) for v in one["args"].values()):
            yield f"{one} counts nothing"
        if phase == "i" and one["s"] not in "gpt":
            yield f"{one} has no scope"
    for each in slices.values():
        yield from not_nested(each)


def not_nested(slices: list[Record]) -> Iterator[str]:
    """Slices of a thread that neither follow nor contain each other."""
    open_until: list[int] = []
    for one in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
        end = one["ts"] + one["dur"]
        while open_until and open_until[-1] <= one["ts"]:
            open_until.pop()
        if open_until and end > open_until[-1]:
            yield f"{one} ends after what it is in"
        open_until.append(end)


@pytest.mark.parametrize("make", [scheduler_trace, kv_cache_trace])
def test_a_file_is_as_the_format_asks(make: Callable[[int], Trace]) -> None:
    for seed in range(6):
        assert [*faults(of_perfetto(make(seed), IDEAL))] == []


def test_lanes_are_named_tracks_with_slices_and_counters() -> None:
    records = of_perfetto(needed_entry())["traceEvents"]
    processes = {
        one["pid"]: one["args"]["name"] for one in records if one["name"] == "process_name"
    }
    assert [*processes.values()] == [
        "Events",
        "Requests",
        "Scheduler",
        "Encoder cache",
        "Worker's store",
    ]
    counters = {(processes[one["pid"]], one["name"]) for one in records if one["ph"] == "C"}
    assert ("Encoder cache", "free slots") in counters
    lives = [
        (one["ts"], one["dur"], one["args"]["kind"])
        for one in records
        if one["ph"] == "X" and processes[one["pid"]] == "Encoder cache"
    ]
    event = MICROSECONDS_PER_EVENT
    assert (2 * event, 2 * event, "held") in lives


@pytest.mark.parametrize("before", [(), STEP])
def test_the_broken_step_is_an_instant_through_all_tracks(before: tuple[Any, ...]) -> None:
    records = of_perfetto(needed_entry(*before))["traceEvents"]
    broken = [(one["ts"], one["args"]["contract"]) for one in records if one.get("s") == "g"]
    event = 1000 * len(before)
    assert broken == [(event + 4000, "EC-6a"), (event + 5000, "EC-6")]


def without_names(document: Record) -> None:
    document["traceEvents"] = [one for one in document["traceEvents"] if one["ph"] != "M"]


def without_length(document: Record) -> None:
    next(one for one in document["traceEvents"] if one["ph"] == "X")["dur"] = 0


def overlapping(document: Record) -> None:
    two = [one for one in document["traceEvents"] if one["ph"] == "X" and one["pid"] == 1]
    two[0]["dur"] += 500


def begun_and_not_ended(document: Record) -> None:
    next(one for one in document["traceEvents"] if one["ph"] == "X")["ph"] = "B"


@pytest.mark.parametrize("spoil", [without_names, without_length, overlapping, begun_and_not_ended])
def test_a_spoiled_file_is_seen(spoil: Callable[[Record], None]) -> None:
    document = of_perfetto(needed_entry())
    spoil(document)
    assert [*faults(document)]
