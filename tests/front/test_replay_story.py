"""What a replay of kept traces tells, on the reference, which decides as releases do."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding as findings_of
from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.targets.named import TargetKind, named, semantics_of
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.manager import Update
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump
from cacheproof.listed.facts import listed_by_name, newest_having, newest_showing, trace_showing
from cacheproof.listed.pages import is_brought, kept_traces
from cacheproof.output.console import CommandOutput
from cacheproof.replay.story import Story, print_story, story_of
from tests.front.conftest import Run

KNOWN = fault_folders.load()
NEWEST, OLDER = "reference@0.33.0", "reference@0.28.0"
TOLD_BY_A_HOST = {"engine", "encoder_connector"}
"""Depths of which the reference has no decisions of its own here."""


def trace_of(name: str) -> Trace:
    trace = load(kept_traces()[name])
    assert isinstance(trace, Trace)
    return trace


def story(name: str, on: str, known: list[KnownFault] = KNOWN, trace: Trace | None = None) -> Story:
    """The story of a trace on a release's decisions."""
    what = trace or trace_of(name)
    with closing(resolve(on, report=print)) as target:
        runs = findings_of.replay(what, target, 2, None, target)
        return story_of(kept_traces()[name], what, target, runs, known, reference_for(target))


def screen(told: Story, capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed of it."""
    capsys.readouterr()
    print_story(CommandOutput(None), told)
    return capsys.readouterr().out


def marked(text: str) -> int:
    """The event that the lanes mark, which is the one named as the first wrong step."""
    (number,) = re.findall(r"^\s*>(\d+) ", text, re.MULTILINE)
    assert f"first wrong step: event {number}\n" in text
    return int(number)


def test_a_story_names_the_first_wrong_event_and_the_known_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = story("uncomputed-hit", NEWEST)
    text = screen(told, capsys)
    assert marked(text) == 12
    assert "A step reads of a KV block only what was computed" in text
    assert "8 scheduled, in blocks 2 1 4, resumed" in text
    assert "uncomputed-hit: A prefix hit on KV that nobody computed" in text
    assert "avoid by --scheduling-policy fcfs" in " ".join(text.split())
    assert told.verdict.sentence.endswith("It is the known fault uncomputed-hit.")


def test_another_first_wrong_event_makes_another_story(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = trace_of("uncomputed-hit")
    later = trace.with_events([Schedule(), Update(), *trace.events])
    assert marked(screen(story("uncomputed-hit", NEWEST, trace=later), capsys)) == 14
    before = trace.with_events(trace.events[:11])
    assert story("uncomputed-hit", NEWEST, trace=before).found == ()


def test_a_break_that_no_list_covers_is_said_to_be_new(capsys: pytest.CaptureFixture[str]) -> None:
    told = story("uncomputed-hit", NEWEST, [])
    assert told.verdict.sentence.endswith("No known fault explains SC-15.")
    assert "known    not listed" in screen(told, capsys)


def test_a_fault_that_a_trace_shows_comes_before_others_that_it_breaks_on_the_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = story("lost-budget", NEWEST)
    assert [(one.contract, one.fault) for one in told.found] == [
        ("SC-12", "lost-budget"),
        ("CP-4", "phantom-entry"),
        ("WM-1", "phantom-entry"),
    ]
    assert "broken as well\n  CP-4 at event 9: " in screen(told, capsys)


def test_a_break_is_the_fault_that_its_trace_is_known_to_show_on_a_release() -> None:
    """The list has the fault, and not this way in which it shows."""
    (whole,) = (one for one in KNOWN if one.name == "uncomputed-hit")
    (cause,) = whole.cause
    known = [replace(whole, cause=(replace(cause, contracts=("EQ-1",), kinds={}),))]
    told = story("uncomputed-hit", OLDER, known)
    assert [one.fault for one in told.found] == ["uncomputed-hit"]
    mine = trace_of("uncomputed-hit")
    with closing(resolve(OLDER, report=print)) as target:
        runs = findings_of.replay(mine, target, 2, None, target)
        unlisted, told = (
            story_of(Path("mine.jsonl"), mine, target, runs, some, reference_for(target))
            for some in (known, KNOWN)
        )
    assert [one.fault for one in unlisted.found] == [None]
    assert [one.fault for one in told.found] == ["uncomputed-hit"]  # by its cause, as listed


def test_another_trace_that_is_called_alike_is_not_taken_for_it() -> None:
    trace = trace_of("salt-adapter")
    assert is_brought(Path("salt-adapter/trace.jsonl"), trace)
    assert not is_brought(Path("uncomputed-hit/trace.jsonl"), trace)
    assert not is_brought(Path("mine.jsonl"), trace)


def test_safety_comes_before_efficiency() -> None:
    assert [one.contract for one in story("stripped-item", NEWEST).found] == ["SC-9", "EC-8b"]


def test_a_trace_that_breaks_nothing_is_shown_with_the_target_that_breaks_on_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = story("salt-adapter", NEWEST)
    text = screen(told, capsys)
    assert "which vllm@0.30.0 has." in told.verdict.sentence
    assert "   2  b arrives" in text
    assert "salt-adapter: A salt passes for an adapter's name" in text
    assert "first wrong step" not in text


def test_a_trace_of_nobody_that_breaks_nothing_has_no_fault() -> None:
    trace = trace_of("salt-adapter")
    with closing(resolve(NEWEST, report=print)) as target:
        runs = findings_of.replay(trace, target, 2, None, target)
        told = story_of(Path("mine.jsonl"), trace, target, runs, KNOWN, reference_for(target))
    assert told.fault is None
    assert told.verdict.command == ""


def test_a_trace_that_only_differs_from_the_reference_is_told_by_both_sides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = trace_of("phantom-entry-before")
    with closing(resolve(OLDER, report=print)) as target:
        newest = ReferenceTarget(semantics_of("0.33.0"), target.protocol)
        runs = findings_of.replay(trace, target, 2, newest, target)
        told = story_of(Path("mine.jsonl"), trace, target, runs, [], newest)
    difference = told.found[-1]
    assert difference.contract == findings_of.LOCKSTEP
    text = screen(Story(told.file, told.what, told.target, told.runs, (difference,), None), capsys)
    assert "reference" in text
    assert marked(text) == difference.event + 1


def tellable() -> Iterator[tuple[str, str]]:
    """Traces and the reference of the newest release that was seen to break on each."""
    for name in kept_traces():
        newest = newest_having([*listed_by_name().values()], name)
        assert newest is not None
        on, trace = f"reference@{named(newest).version}", trace_of(name)
        if named(newest).kind is TargetKind.RELEASE and trace.depth not in TOLD_BY_A_HOST:
            with closing(resolve(on, report=print)) as target:
                assert isinstance(target, ReferenceTarget)
                if target.runs(trace):
                    yield name, on


@pytest.mark.parametrize(("name", "on"), [*tellable()])
def test_each_trace_of_the_findings_breaks_as_its_fault_where_it_was_last_seen(
    name: str, on: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = story(name, on)
    if name == "session-lost":  # what happens to the client no contract says
        assert told.found == ()
        return
    assert told.fault is not None
    assert name in told.fault.traces
    assert told.found[0].contract in told.fault.contracts
    text = screen(told, capsys)
    assert marked(text) == told.found[0].event + 1
    assert told.found[0].title in " ".join(text.split())
    assert told.verdict.command == f"cacheproof explain {told.fault.name}"


def test_an_engine_is_shown_as_its_scheduler_is() -> None:
    assert part(DEPTHS["engine"].view).VIEW is part(DEPTHS["scheduler"].view).VIEW


def test_every_trace_is_known_by_the_newest_target_that_breaks_on_it() -> None:
    faults = listed_by_name()
    shown = {
        ("phantom-entry", "phantom-entry-before"): "vllm@0.30.0",
        ("phantom-entry", "phantom-entry-engine"): "engine@0.33.0",
        ("kv-load-freed", "kv-load-freed-sent"): "vllm@0.11.0",
        ("contains-and-get", "contains-and-get"): "lmcache@0.5.6",
    }
    for (fault, trace), target in shown.items():
        assert newest_showing(faults[fault], trace) == target
    assert newest_showing(faults["phantom-entry"], "salt-adapter") is None


@pytest.mark.parametrize(
    ("fault", "release", "shown"),
    [
        ("phantom-entry", "0.33.0", ("phantom-entry", "vllm@0.33.0")),
        ("phantom-entry", "0.28.0", ("phantom-entry-before", "vllm@0.28.0")),
        ("phantom-entry", "0.10.2", None),
        ("another-sound", "0.32.0", ("another-sound", "engine@0.32.0")),
        ("contains-and-get", "0.5.6", ("contains-and-get", "lmcache@0.5.6")),
        ("repeated-item", "0.28.0", None),
    ],
)
def test_a_trace_is_found_that_shows_a_fault_on_a_release(
    fault: str, release: str, shown: tuple[str, str] | None
) -> None:
    assert trace_showing(listed_by_name()[fault], release) == shown


def test_a_trace_without_a_target_runs_where_its_fault_was_last_seen(
    run: Run, tmp_path: Path
) -> None:
    engine = run("replay", kept_traces()["another-sound"], "--target", "vllm@0.33.0").refusal
    assert engine.endswith("expected --target engine@0.33.0, which takes it")
    renamed = tmp_path / "mine.jsonl"
    renamed.write_text(dump(trace_of("salt-adapter")))
    assert run("replay", renamed).refusal.endswith("give one with --target")


def test_a_replay_as_a_command_begins_and_ends_with_its_verdict(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "told.json"
    ran = run(
        "replay", kept_traces()["salt-adapter"], "--target", OLDER, "--times", 2,
        "--json", written,
    )  # fmt: skip
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == lines[-3]
    assert "It is the known fault salt-adapter." in lines[0]
    assert lines[-1] == "  cacheproof explain salt-adapter"
    told = json.loads(written.read_text())
    assert told["verdict"] == lines[0]
    assert told["fault"] == "salt-adapter"
    assert [(one["contract"], one["event"]) for one in told["broken"]] == [("BK-1", 2), ("BK-2", 2)]


def test_a_target_that_refuses_a_trace_is_told_which_one_takes_it(run: Run) -> None:
    refusal = run("replay", kept_traces()["salt-adapter"], "--target", "engine@0.32.0").refusal
    assert refusal.endswith("expected --target vllm@0.30.0, which takes it")


def test_a_missing_story_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load(Path("no-such.jsonl"))
