"""`audit` ends with an account of what an engine recorded, whatever became of the record; and
`minimise` with a finding that the release alone shows again."""

import random
from pathlib import Path

import pytest

from cacheproof import audit_report
from cacheproof.differential.traces.records import CallRecord
from cacheproof.differential.traces.trace_file import parse
from cacheproof.reference.releases import NEWEST
from tests.differential.audit.spoiled import file_of, records_of, spoil
from tests.differential.recording.driven import Driven, long_trace, run_recorded
from tests.front.conftest import Run

PLANTED = "drops_what_is_encoded"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Driven, Driven]:
    """A record of a right scheduler, and of one with a fault."""
    trace = long_trace(6)
    right, wrong = run_recorded(
        NEWEST,
        [(trace, None), (trace, PLANTED)],
        tmp_path_factory.mktemp("records"),
        7,
        with_kv=True,
    )
    return right, wrong


def test_a_right_record_and_a_wrong_one(run: Run, driven: tuple[Driven, Driven]) -> None:
    right, wrong = (run("audit", one.folder) for one in driven)
    assert (right.code, right.err) == (0, "")
    assert "72 of 72 steps judged, 6 requests" in right.out
    assert "96 of 96 calls of its KV cache judged" in right.out
    assert (wrong.code, wrong.err) == (1, "")
    assert "SC-9 broken in step " in wrong.out


def test_a_gap_is_named_and_voids(run: Run, driven: tuple[Driven, Driven], tmp_path: Path) -> None:
    file = tmp_path / "record.cprec"
    file.write_bytes(file_of(records_of(driven[0].folder), missing=64))
    ran = run("audit", file)
    assert (ran.code, ran.err) == (3, "")
    assert "missing: 8 records are missing" in ran.out


@pytest.mark.parametrize("part", range(4))
def test_no_change_of_a_record_ends_in_a_traceback(
    run: Run, driven: tuple[Driven, Driven], tmp_path: Path, part: int
) -> None:
    file = tmp_path / "record.cprec"
    records = records_of(driven[part % 2].folder)
    codes = set()
    for seed in range(25):
        draw = random.Random(100 * part + seed)
        data = bytearray(file_of(spoil(records, draw)))
        if draw.random() < 0.5:
            for _ in range(draw.randint(1, 20)):
                data[draw.randrange(len(data))] = draw.getrandbits(8)
        file.write_bytes(data)
        ran = run("audit", file, "--json", tmp_path / "audit.json")
        assert ran.code in (0, 1, 2, 3), seed
        assert len(ran.err.splitlines()) == (ran.code == 2), (seed, ran.err)
        codes.add(ran.code)
    assert codes & {1, 3}


def test_a_break_in_a_record_becomes_a_finding_that_replays(run: Run, tmp_path: Path) -> None:
    with (ROOT / "docs" / "findings" / "stripped-item-hit.jsonl").open("rb") as lines:
        trace = parse(lines, "stripped-item-hit")
    (driven,) = run_recorded(NEWEST, [(trace, None)], tmp_path)
    found = tmp_path / "found"
    ran = run("minimise", driven.folder, "--contract", "SC-9", "--findings", found, "--seconds", 60)
    assert ran.code == 1, ran.err
    assert "SC-9" in ran.out
    (file,) = found.glob("*.json")
    again = run("replay", file)
    assert (again.code, again.err) == (1, "")
    assert "SC-9" in again.out


def test_a_break_of_the_kv_cache_is_told_and_is_nothing_to_minimise(
    run: Run, tmp_path: Path
) -> None:
    (driven,) = run_recorded(NEWEST, [(long_trace(4), "kv: leaks_a_block")], tmp_path, with_kv=True)
    ran = run("audit", driven.folder)
    assert (ran.code, ran.err) == (1, "")
    assert "BP-3 broken in step " in ran.out
    assert "minimise" not in ran.out
    refusal = run("minimise", driven.folder, "--contract", "BP-3", "--findings", tmp_path).refusal
    assert refusal == (
        f"{driven.folder}: BP-3 is broken by a KV cache manager, and a record is told as the trace "
        "of a scheduler; expected another contract: search for this one with cacheproof fuzz "
        f"--target vllm@{NEWEST} --depth kv_cache"
    )
    refusal = run("minimise", driven.folder, "--findings", tmp_path).refusal
    assert refusal.startswith(f"{driven.folder}: no break of any contract in it; expected ")


def test_a_record_without_a_break_is_nothing_to_minimise(
    run: Run, driven: tuple[Driven, Driven], tmp_path: Path
) -> None:
    folder = driven[0].folder
    refusal = run("minimise", folder, "--findings", tmp_path).refusal
    assert refusal == (
        f"{folder}: no break of any contract in it; expected a record in which audit finds one"
    )
    refusal = run("minimise", driven[1].folder, "--contract", "XX", "--findings", tmp_path).refusal
    assert refusal.startswith(f"{driven[1].folder}: no break of XX in it; expected one of ")


def test_a_call_that_raised_is_no_call_that_did_what_it_was_for() -> None:
    raised = CallRecord("allocate", "r1", 0, None, None, {"raises": "KeyError"}, None)
    assert audit_report._call(raised, {"r1"}) is None
    took_in = raised._replace(answer=None)
    assert audit_report._call(took_in, {"r1"}) == "r1 takes in #0"
