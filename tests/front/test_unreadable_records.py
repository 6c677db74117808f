"""`audit` says in one line why it cannot read what it is given."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.recording.blocks import MAGIC
from tests.differential.recording.made import OPENED, keyframe, updated, written
from tests.front.conftest import Run

HEAD = [OPENED, keyframe()]
WORKER = msgspec.structs.replace(OPENED, role="worker")
FILE = "scheduler-1-1-000001.cprec"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no record of a scheduler"),
        (MAGIC, "no record of a scheduler"),
        (MAGIC[:7], "no record of a scheduler"),
        (b"text\n", "not a record of an engine; expected a folder or a file (*.cprec)"),
        (
            b"cacheproof-recorder\n",
            "not a record of an engine; expected a folder or a file (*.cprec)",
        ),
        (
            MAGIC.replace(b"1", b"2") + b"x",
            "a record in format 2; expected format 1: audit it with the version of cacheproof that "
            "wrote it",
        ),
        (
            written([[msgspec.structs.replace(OPENED, schema=7)]]),
            "records of schema 7; expected 1: audit it with the version of cacheproof that wrote",
        ),
        (written([[WORKER]]), "no record of a scheduler; expected one that an engine has written"),
        (written([[updated(1)]]), "no record of a scheduler; expected one that an engine has"),
    ],
)
@pytest.mark.parametrize("in_a_folder", [False, True])
def test_what_is_no_record_of_a_scheduler_is_refused(
    run: Run, tmp_path: Path, data: bytes, why: str, in_a_folder: bool
) -> None:
    file = tmp_path / FILE
    file.write_bytes(data)
    refusal = run("audit", tmp_path if in_a_folder else file).refusal
    assert refusal.startswith(f"{file}: {why}")


def test_a_file_that_is_no_record_is_told_how_one_is_made(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("# A page\n")
    refusal = run("audit", file).refusal
    assert refusal.endswith("to have one written: cacheproof record DIR -- vllm serve MODEL")
    assert "CACHEPROOF_RECORD" not in refusal


def _nothing(path: Path) -> None:
    pass


def _link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_nothing, ": No such file or directory; expected a record that can be read"),
        (_link_to_nothing, ": No such file or directory; expected a record that can be read"),
        (
            os.mkfifo,
            ": no regular file; expected a record that can be read, or - for standard input",
        ),
        (_folder, ": no records of an engine there; expected a folder or a file (*.cprec) that"),
    ],
)
def test_a_place_without_records_is_refused(
    run: Run, tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    place = tmp_path / "place"
    make(place)
    assert run("audit", place).refusal.startswith(f"{place}{why}")


def test_a_file_of_a_folder_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    refusal = run("audit", tmp_path).refusal
    assert refusal.startswith(f"{tmp_path / FILE}: no regular file; expected a record that can")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_bytes(written([HEAD]))
    file.chmod(0)
    assert run("audit", file).refusal.startswith(f"{file}: Permission denied; expected a record")


def test_a_scheduler_whose_head_is_missing_voids_the_audit_of_another(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes(written([HEAD]))
    whole = run("audit", tmp_path)
    assert "head of the record" not in whole.out
    other = tmp_path / FILE.replace("1-1", "1-2")
    other.write_bytes(written([[updated(1)]]))
    ran = run("audit", tmp_path)
    assert ran.code == 3
    assert f"{other}: the head of the record is missing: nothing was judged" in ran.out


def test_a_damaged_first_block_costs_no_later_file(run: Run, tmp_path: Path) -> None:
    damaged = bytearray(written([HEAD]))
    damaged[-1] ^= 1
    (tmp_path / FILE).write_bytes(damaged)
    later = tmp_path / FILE.replace("000001", "000002")
    later.write_bytes(written([HEAD], first=2))
    ran = run("audit", tmp_path)
    assert ran.code == 3
    assert f"missing: {len(damaged) - len(MAGIC)} bytes at the end of a file are no" in ran.out


def test_a_file_that_was_only_just_created_ends_no_audit(run: Run, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(written([HEAD]))
    (tmp_path / FILE.replace("000001", "000002")).write_bytes(b"")
    ran = run("audit", tmp_path)
    assert ran.code == 3
    assert "missing: a file ends in its first line" in ran.out
