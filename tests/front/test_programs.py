"""What needs a program that is not on PATH is left out, and a line says so."""

from pathlib import Path

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.listed.pages import kept_traces

LANE = "connectors over a server"
ARGUMENTS = ("fuzz", "--target", "reference", "--depth", "encoder_connector", "--seeds", "0:1")
NEEDS_A_SERVER = kept_traces()["lmcache-never-closes"]
SAID = f"not searched: {LANE} (no redis-server on PATH)"


@pytest.fixture
def nothing_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def everything_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for lane in LANES.values():
        if lane.program is not None:
            program = tmp_path / lane.program
            program.write_text("#!/bin/sh\n")
            program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.full
@pytest.mark.usefixtures("nothing_on_path")
def test_a_lane_is_left_out_with_a_reason(run, tmp_path: Path) -> None:
    ran = run(*ARGUMENTS, "--findings", tmp_path / "findings")
    assert SAID in ran.err
    assert {lane.name for lane in LANES.values() if lane.lacks} == {LANE, "LMCache over a server"}


@pytest.mark.usefixtures("everything_on_path")
def test_no_lane_is_left_out_where_its_program_is() -> None:
    assert not any(lane.lacks for lane in LANES.values())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nothing_on_path", "no redis-server on PATH; install Debian's package of that name"),
        ("everything_on_path", "redis-server does not start"),
    ],
)
def test_a_trace_is_refused_where_its_server_does_not_start(
    run, request: pytest.FixtureRequest, path: str, said: str
) -> None:
    request.getfixturevalue(path)
    ran = run("replay", NEEDS_A_SERVER, "--target", "reference")
    assert ran.code == 3
    assert said in ran.err
