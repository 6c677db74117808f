"""The register: what one fault is known by, and what further runs make of its record."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import register_file
from cacheproof.differential.findings.finding import LOCKSTEP, Finding, found_in
from cacheproof.differential.findings.identity import identity_of, ingredients
from cacheproof.differential.findings.register import (
    FaultRecord,
    broke,
    held,
    merge,
    merged,
    of_run,
    record_of,
)
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.manager import Walk
from cacheproof.differential.traces.trace_file import dump, parse
from cacheproof.reference.semantics import Semantics

SEEDS = (0, 8)
DAY, NEXT = "2026-01-30", "2026-02-01"


@cache
def find(release: str, contract: str, seed: int) -> Finding:
    target = ReferenceTarget(
        Semantics.of_vllm(release), name=f"reference@{release}", release=release
    )
    found = found_in(target, manager_trace(seed, "encoder_cache"), contract, times=1)
    assert found is not None
    return found


@pytest.fixture
def record() -> FaultRecord:
    return record_of(find("0.28.0", "EC-6a", 0), "encoder cache", DAY)


def renamed(finding: Finding) -> Finding:
    """The same fault by other names and sizes."""
    text = dump(finding.trace).replace('"a"', '"another"').replace('"x"', '"y"')
    trace = parse(text.encode().splitlines(), "renamed")
    larger = [
        msgspec.structs.replace(event, tokens=event.tokens + 3)
        if isinstance(event, Walk)
        else event
        for event in trace.events
    ]
    return msgspec.structs.replace(finding, events=tuple(larger))


def test_seeds_and_releases_of_one_fault_give_one_identity() -> None:
    found = [find(release, "EC-6a", seed) for release in ("0.24.0", "0.28.0") for seed in SEEDS]
    assert len({one.events for one in found}) > 1
    assert len({identity_of(one).name for one in found}) == 1


def test_an_identity_knows_neither_names_nor_sizes() -> None:
    found = find("0.28.0", "EC-6a", 0)
    assert renamed(found).events != found.events
    assert identity_of(renamed(found)) == identity_of(found)


def test_other_contracts_kinds_and_events_are_other_identities() -> None:
    found = find("0.28.0", "EC-6a", 0)
    others = [
        msgspec.structs.replace(found, contract="EC-6"),
        msgspec.structs.replace(found, kind="another"),
        msgspec.structs.replace(found, events=found.events[:1]),
    ]
    names = [identity_of(one).name for one in (found, *others)]
    assert len(set(names)) == len(names)


def test_what_ends_a_step_is_no_ingredient() -> None:
    assert not {"update", "finish"} & set(ingredients(manager_trace(0, "encoder_cache")))


def test_a_difference_is_known_by_the_field_and_the_call() -> None:
    found = find("0.28.0", "EC-6a", 0)
    parting = {"call": 0, "operation": "can", "field": "answer", "reference": 1, "target": 2}
    one, other = (
        msgspec.convert(
            {**msgspec.to_builtins(found), "parting": {**parting, "field": field}}, Finding
        )
        for field in ("answer", "delta")
    )
    one, other = (msgspec.structs.replace(each, contract=LOCKSTEP) for each in (one, other))
    assert identity_of(one).kind == "answer of can"
    assert identity_of(one).name != identity_of(other).name


def test_a_fault_that_a_newer_release_no_longer_has_is_mended(record: FaultRecord) -> None:
    after = held(record, "vllm@0.33.0", "0.33.0", NEXT)
    assert (record.status, after.status) == ("new", "mended")
    assert after.releases == ["0.28.0"]
    assert after.last == record.first


def test_a_fault_that_an_older_release_does_not_have_is_not_mended(record: FaultRecord) -> None:
    assert held(record, "vllm@0.10.2", "0.10.2", NEXT).status == "new"


def test_a_listed_fault_says_so_until_it_is_mended() -> None:
    found = find("0.28.0", "EC-6a", 0).annotated(None, "a note", "repeated-item")
    listed = record_of(found, "encoder cache", DAY)
    assert listed.status == "listed"
    assert listed.name == f"{listed.identity} repeated-item"
    assert held(listed, "vllm@0.33.0", "0.33.0", NEXT).status == "mended"


def test_a_release_that_holds_between_two_that_break_means_that_it_came_back(
    record: FaultRecord,
) -> None:
    mended = held(record, "vllm@0.32.0", "0.32.0", DAY)
    again = broke(mended, "vllm@0.33.0", "0.33.0", NEXT)
    assert again.status == "came back"
    assert again.releases == ["0.28.0", "0.33.0"]
    assert again.last.release == "0.33.0"


def test_a_checkout_that_held_and_breaks_means_that_it_came_back(record: FaultRecord) -> None:
    mended = held(broke(record, "path:x", None, DAY), "path:x", None, DAY)
    assert broke(mended, "path:x", None, NEXT).status == "came back"


def test_a_fork_that_mends_a_fault_does_not_mend_its_release(record: FaultRecord) -> None:
    assert held(record, "path:x", "0.28.0", NEXT).status == "new"


def test_of_two_records_of_a_target_the_smaller_trace_stays(record: FaultRecord) -> None:
    larger = msgspec.structs.replace(record, events=(*record.events, record.events[-1]))
    assert merged(larger, record).events == record.events
    assert merged(record, larger).events == record.events


def test_a_smaller_trace_of_another_release_does_not_replace_it(record: FaultRecord) -> None:
    smaller = msgspec.structs.replace(
        record, events=record.events[:1], trace_target="reference@0.27.1"
    )
    later = msgspec.structs.replace(smaller, first=msgspec.structs.replace(record.first, date=NEXT))
    assert merged(record, later).events == record.events


def test_records_of_two_faults_are_not_merged(record: FaultRecord) -> None:
    other = msgspec.structs.replace(record, identity="another")
    with pytest.raises(ValueError, match="two faults"):
        merged(record, other)
    assert len(merge({record.identity: record}, [other])) == 2


def test_a_file_gives_back_what_was_added_to_it(record: FaultRecord, tmp_path: Path) -> None:
    path = tmp_path / "register.jsonl"
    assert register_file.load(path) == {}
    register_file.add([record], path)
    after = register_file.add([held(record, "vllm@0.33.0", "0.33.0", NEXT)], path)
    assert register_file.load(path) == after
    assert [one.status for one in after.values()] == ["mended"]


@pytest.mark.parametrize("is_older", [True, False])
def test_of_two_sightings_of_one_day_that_which_is_merged_in_counts(
    record: FaultRecord, is_older: bool
) -> None:
    other = record_of(find("0.24.0", "EC-6a", 0), "encoder cache", DAY)
    one, news = (other, record) if is_older else (record, other)
    known = held(one, news.first.target, news.first.release, DAY)
    assert merged(known, news).status == "came back"


def test_a_trace_that_held_says_nothing_where_the_search_met_the_fault(record: FaultRecord) -> None:
    again = msgspec.structs.replace(record, sightings=())
    replayed = held(again, record.first.target, "0.28.0", NEXT)
    elsewhere = held(again, "vllm@0.33.0", "0.33.0", NEXT)
    assert of_run([replayed, elsewhere], [record]) == [elsewhere, record]
    assert of_run([replayed], []) == [replayed]


ADDS = """
import contextlib, fcntl, sys
from pathlib import Path
from cacheproof.differential import files
from cacheproof.differential.findings import register_file

kept, own, words = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
records = register_file.load(own).values()
lock, load = fcntl.flock, register_file.load

def told(*arguments):
    print("asks", flush=True)
    lock(*arguments)

def loaded(path):
    found = load(path)
    if "waits" in words:
        print("loaded", flush=True)
        sys.stdin.readline()
    return found

fcntl.flock, register_file.load = told, loaded
if "free" in words:
    files.alone = contextlib.nullcontext
register_file.add(records, kept)
print("done", flush=True)
"""
"""Adds the records of a file to a register. One that `waits` does so between reading and writing;
one that is `free` takes no lock."""


def add_at_a_time(folder: Path, records: list[FaultRecord], *words: str) -> set[str]:
    """Two processes add a record each: the second begins while the first has read and not written.
    Returns what the register has then."""
    kept, adding = folder / "kept.jsonl", []
    for number, record in enumerate(records):
        own = folder / f"{number}.jsonl"
        register_file.save({record.identity: record}, own)
        waits = ["waits"] if number == 0 else []
        adding.append(
            subprocess.Popen(
                [sys.executable, "-c", ADDS, kept, own, *waits, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert adding[-1].stdout is not None
        while adding[-1].stdout.readline() not in (["loaded\n"], ["asks\n", "done\n"])[number]:
            pass
    for one in adding:
        one.communicate("go on\n")
        assert one.returncode == 0
    return set(register_file.load(kept))


@pytest.fixture
def two(record: FaultRecord) -> list[FaultRecord]:
    return [record, msgspec.structs.replace(record, identity="0123456789")]


def test_two_processes_that_add_at_a_time_lose_nothing(
    two: list[FaultRecord], tmp_path: Path
) -> None:
    assert add_at_a_time(tmp_path, two) == {one.identity for one in two}


def test_without_the_lock_one_of_them_is_lost(two: list[FaultRecord], tmp_path: Path) -> None:
    assert add_at_a_time(tmp_path, two, "free") == {two[0].identity}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda line: line[:40], "line 1: no record"),
        (lambda line: line.replace('"schema":1', '"schema":7', 1), "schema 7"),
        (lambda line: line.replace('"status":"new"', '"status":"odd"'), "no record"),
        (lambda line: line + line, "stands there twice"),
        (lambda line: line.replace('"request":"a"', '"request":""'), "line 1"),
        (lambda line: "[" * 10_000, "no record"),
    ],
)
def test_a_file_that_is_no_register_is_refused_in_a_line(
    record: FaultRecord, tmp_path: Path, spoil, words: str
) -> None:
    path = tmp_path / "register.jsonl"
    register_file.add([record], path)
    path.write_text(spoil(path.read_text()))
    with pytest.raises(InputError, match=words) as refused:
        register_file.load(path)
    assert "\n" not in str(refused.value)
