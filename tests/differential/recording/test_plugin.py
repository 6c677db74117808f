"""A recorder that is off leaves no trace, and one that fails does not reach the engine."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cacheproof.differential.recording import attaching, plugin
from cacheproof.reference.releases import NEWEST
from tests.differential.recording.driven import (
    Driven,
    Failure,
    audited,
    long_trace,
    run_recorded,
)

OFF = """
import sys
from cacheproof.differential.recording import plugin
before = list(sys.meta_path)
plugin.register()
name = "cacheproof.differential.recording."
print(sorted(one.removeprefix(name) for one in sys.modules if one.startswith(name)))
print(sys.meta_path == before)
"""
ENGINE = """
import logging
from cacheproof.differential.recording import plugin
logging.basicConfig(format="%(message)s")
plugin.register()
from vllm.v1.core.sched.scheduler import Scheduler
print(Scheduler("a model").model, Scheduler.__init__.__name__)
"""
SCHEDULER = """
class Scheduler:
    def __init__(self, model):
        self.model = model
"""


def ran(text: str, *paths: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A program run with these modules at hand and these variables set."""
    path = os.pathsep.join([*map(str, paths), *filter(None, sys.path)])
    names = (plugin.FOLDER, plugin.PLAIN, plugin.SALT, plugin.LIMITS, plugin.KV)
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**kept, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("variables", [{}, {plugin.FOLDER: ""}, {plugin.PLAIN: "1"}])
def test_without_a_folder_nothing_is_imported_and_nothing_wrapped(
    variables: dict[str, str],
) -> None:
    assert ran(OFF, **variables).stdout == "['plugin']\nTrue\n"


def test_with_a_folder_it_is_otherwise(tmp_path: Path) -> None:
    first, second = ran(OFF, **{plugin.FOLDER: str(tmp_path)}).stdout.splitlines()
    assert "attaching" in first
    assert second == "False"


@pytest.fixture
def other_engine(tmp_path: Path) -> Path:
    """An engine that is made as no release is."""
    folder = tmp_path / "vllm" / "v1" / "core" / "sched"
    folder.mkdir(parents=True)
    (folder / "scheduler.py").write_text(SCHEDULER)
    return tmp_path


def test_an_engine_of_another_make_runs_unrecorded(other_engine: Path) -> None:
    records = other_engine / "records"
    ended = ran(ENGINE, other_engine, **{plugin.FOLDER: str(records)})
    assert ended.stdout == "a model __init__\n"
    assert ended.stderr.startswith("cacheproof: nothing is recorded: ")
    assert list(records.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        (plugin.LIMITS, "many", "ValueError: invalid literal for int"),
        (plugin.SALT, "salt", "ValueError: non-hexadecimal number"),
        (plugin.FOLDER, "/proc/none", "FileNotFoundError: "),
    ],
)
def test_a_variable_that_is_wrong_is_told_and_the_engine_runs(
    other_engine: Path, variable: str, value: str, why: str
) -> None:
    given = {plugin.FOLDER: str(other_engine / "records"), variable: value}
    ended = ran(ENGINE, other_engine, **given)
    assert ended.stdout == "a model __init__\n"
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"cacheproof: nothing is recorded: {why}")


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """A run whose recorder works."""
    folder = tmp_path_factory.mktemp("right")
    (driven,) = run_recorded(NEWEST, [(long_trace(4), None)], folder, with_kv=True)
    return driven


FAILURES: list[Failure] = [
    ("engine", "SchedulerRecording", name, False)
    for name in ("_scheduled", "_updated", "_added", "_before", "_standing", "_tick")
] + [
    ("requests", "Numbers", "add", False),
    ("ledger", "ManagerRecorder", "_sizes", False),
    ("ledger", "ManagerRecorder", "_are_others_as_before", False),
    ("ledger", "ManagerRecorder", "_delta_of", False),
    ("kv_cache", "KVCacheRecording", "_facts_of", False),
    ("kv_cache", "KVCacheRecording", "_note", False),
    ("kv_reading", "ManagerReader", "touched", False),
    ("kv_reading", "ManagerReader", "_changed_table", False),
    ("writer", "Writer", "put", False),
    ("writer", "Writer", "put", True),
    ("writer", "Writer", "_append", True),
]


@pytest.mark.full
@pytest.mark.parametrize(
    "failure", [pytest.param(failure, marks=pytest.mark.sample(9)) for failure in FAILURES]
)
def test_what_goes_wrong_in_the_recorder_ends_the_record_and_not_the_engine(
    failure: Failure, right: Driven, tmp_path: Path
) -> None:
    (failing,) = run_recorded(
        NEWEST, [(right.trace, None)], tmp_path, fails_in=failure, with_kv=True
    )
    assert failing.result.records == right.result.records
    assert right.audited().account.gap_count == 0
    *_, is_forever = failure
    account = audited(failing.folder).account
    assert account.judged_steps < right.audited().account.judged_steps
    if not is_forever:  # else nothing can be written any more
        assert account.gaps == ["the recording ended: RuntimeError: on purpose"]
        assert account.raised == {"recording: RuntimeError": 1}


def test_a_recorder_that_has_ended_keeps_no_calls() -> None:
    from cacheproof.differential.recording.ledger import ManagerRecorder
    from cacheproof.reference.encoder_cache import EncoderCacheManager

    manager = EncoderCacheManager(8)
    recorder = ManagerRecorder(manager)
    manager.get_freed_mm_hashes()
    assert len(recorder.calls) == 1
    recorder.end()
    manager.get_freed_mm_hashes()
    assert recorder.calls == []


def test_all_is_written_before_an_engine_says_that_it_is_dead() -> None:
    """Its server ends then, and whoever holds both may kill what is left."""
    told: list[str] = []

    class Slow:
        def flush(self, seconds: float) -> bool:
            told.append("flushed")
            return True

    class EngineCoreProc:
        def _send_engine_dead(self) -> str:
            told.append("dead")
            return "sent"

    module = SimpleNamespace(EngineCoreProc=EngineCoreProc)
    writers: list[Any] = []
    attaching.flush_before_death(module, writers)
    writers.append(Slow())
    assert EngineCoreProc()._send_engine_dead() == "sent"
    assert told == ["flushed", "dead"]
