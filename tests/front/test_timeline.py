"""A replay is drawn where that is asked for; what cannot be is said before anything runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.generators.block_hash import block_hash_trace
from cacheproof.differential.generators.kv_cache import kv_cache_trace
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump
from tests.front.conftest import Run

TIMES = ("--times", 1)


def written(trace: Trace, folder: Path) -> Path:
    path = folder / "trace.jsonl"
    path.write_text(dump(trace))
    return path


def data_of(page: Path) -> dict[str, Any]:
    """What a page shows."""
    text = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    return json.loads(text)


@pytest.mark.parametrize(
    "trace",
    [manager_trace(1, "encoder_cache"), scheduler_trace(3), kv_cache_trace(0)],
    ids=["manager", "scheduler", "kv_cache"],
)
def test_a_replay_is_drawn(run: Run, trace: Trace, tmp_path: Path) -> None:
    page, perfetto = tmp_path / "page.html", tmp_path / "run.json"
    file = written(trace, tmp_path)
    ran = run(
        "replay", file, "--target", "reference", *TIMES, "--html", page, "--perfetto", perfetto
    )
    assert (ran.code, ran.err) == (0, "")
    assert data_of(page)["title"] == "reference: nothing is broken"
    assert len(data_of(page)["events"]) == len(trace.events)
    assert json.loads(perfetto.read_text())["traceEvents"]


@pytest.mark.full
def test_a_finding_is_drawn_with_its_own_contract_first(run: Run, tmp_path: Path) -> None:
    arguments = "--target", "reference@0.28.0", "--depth", "manager", "--seeds", "0:4"
    assert run("fuzz", *arguments, "--findings", tmp_path).code == 0
    (file, *_) = tmp_path.glob("repeated_item_ec_6_*.json")
    page = tmp_path / "page.html"
    assert run("replay", file, *TIMES, "--html", page).code == 1
    shown = data_of(page)
    assert shown["broken"][0]["contract"] == "EC-6"
    assert shown["title"].startswith("reference@0.28.0: EC-6 at event ")
    mended = "--target", "reference@0.33.0"
    assert run("replay", file, *mended, *TIMES, "--html", page).code == 0
    assert data_of(page)["broken"] == []


def test_a_trace_without_lanes_is_refused_before_its_target_is_started(
    run: Run, tmp_path: Path
) -> None:
    file = written(block_hash_trace(0), tmp_path)
    page = tmp_path / "page.html"
    refusal = run("replay", file, "--target", "vllm@9.9.9", "--html", page).refusal
    assert refusal == (
        f"{file}: a block_hash-depth trace has no timeline; expected one of manager, scheduler, "
        "engine, kv_cache"
    )
    assert not page.exists()


def test_a_file_that_cannot_be_written_is_refused_before_the_trace_is_read(
    run: Run, tmp_path: Path
) -> None:
    refusal = run("replay", tmp_path / "none", "--html", tmp_path / "no" / "page.html").refusal
    assert refusal.startswith(f"--html {tmp_path}/no/page.html: cannot be written: no such folder")
