"""The media hasher at the command line: kinds of collisions, and releases that run nothing else."""

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest

from cacheproof.differential.generators.media_hash import pair
from cacheproof.differential.provision import releases
from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.media_hash import Hash, MediaHashConfig, MediaHashHeader
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump
from tests.front.conftest import Run

pytestmark = pytest.mark.full

OLD, NEW = "vllm@0.8.5", "vllm@0.33.0"
SEARCH = ("fuzz", "--depth", "media_hash", "--seeds", "0:50", "--target")
COLLIDES = 49
"""Seed of a pair whose types no release tells apart."""
MANAGER = (
    '{"depth":"manager","schema":1,"manager":"encoder_cache",'
    '"config":{"capacity":4,"compute_budget":4}}\n'
)


@pytest.fixture(autouse=True, scope="module")
def _provisioned() -> None:
    """A refusal is one line, so that it must not provision a release first."""
    for target in (OLD, NEW):
        releases.install(target.removeprefix("vllm@"), report=lambda text: None)


@pytest.fixture
def collision(tmp_path: Path) -> Path:
    drawn = pair(COLLIDES)
    header = MediaHashHeader(SCHEMA, MediaHashConfig())
    path = tmp_path / "collision.jsonl"
    path.write_text(dump(Trace(header, (Hash(drawn.first), Hash(drawn.second)))))
    return path


def known_without(kind: str, folder: Path) -> Path:
    """The shipped list of known faults without a kind of break."""
    shutil.copytree(str(resources.files("cacheproof") / "faults"), folder)
    for file in folder.glob("media-hash-*/fault.toml"):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if kind not in line))
    return folder


def test_a_collision_of_a_kind_that_is_not_listed_is_told_beside_the_listed_ones(
    run: Run, tmp_path: Path
) -> None:
    where = ("--findings", tmp_path / "findings", "--json", tmp_path / "out.json")
    assert run(*SEARCH, NEW, *where).code == 0
    known = known_without("type of a key", tmp_path / "known")
    ran = run(*SEARCH, NEW, *where, "--known", known)
    assert ran.code == 1
    assert "shows 1 new fault, which breaks " in ran.out
    found = json.loads((tmp_path / "out.json").read_text())["findings"]
    assert [one["kind"] for one in found if one["known_note"] is None] == ["type of a key"]
    assert "beside event 1, type of a key" in ran.out
    assert "media-hash-numbers" in ran.out


def test_a_users_own_trace_collides_by_the_same_name(run: Run, collision: Path) -> None:
    for target in (NEW, OLD):
        ran = run("replay", collision, "--target", target, "--times", 2)
        assert ran.code == 1
        assert "beside event 1, types over the same bytes" in ran.out
    assert run("replay", collision, "--target", "reference", "--times", 2).code == 0


def test_a_release_whose_hasher_runs_alone_refuses_other_depths_by_name(
    run: Run, tmp_path: Path
) -> None:
    refusal = run("fuzz", "--target", OLD, "--depth", "manager").refusal
    assert refusal == (
        "target vllm@0.8.5 has nothing to run at depth manager: it needs vllm@0.10.0 or later; "
        "expected depth media_hash, or another target"
    )
    path = tmp_path / "trace.jsonl"
    path.write_text(MANAGER)
    refusal = run("replay", path, "--target", OLD).refusal
    assert refusal == (
        f"{path}: target vllm@0.8.5 does not run this manager-depth trace; expected a trace of "
        "media_hash, or another target"
    )


def test_a_search_of_such_a_release_is_not_void(run: Run, tmp_path: Path) -> None:
    ran = run(*SEARCH, OLD, "--findings", tmp_path)
    assert ran.code == 0
    assert "MH-3a" in ran.out


def test_two_releases_part_where_a_change_lies_between_them(run: Run) -> None:
    ran = run("diff", OLD, "vllm@0.9.0.1", "--seconds", 5)
    assert ran.code == 1
    assert "in lane media hash" in ran.out
