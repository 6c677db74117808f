"""A search on a Ray cluster comes to what it comes to on one machine, whatever nodes die."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cacheproof.cluster import SEARCHING, _do
from cacheproof.differential.errors import HarnessError
from cacheproof.kept_proofs import code_digest
from cacheproof.reference.releases import NEWEST
from tests.front.conftest import Run

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install cacheproof[cluster]")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster whose head does no work, and two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def comes_to(run: Run, folder: Path, *arguments: object) -> Any:
    """All that a search says, but for how long it took and where its findings lie."""
    folder.mkdir()
    file = folder / "found.json"
    search = ("fuzz", "--target", f"vllm@{NEWEST}", "--depth", "scheduler", "--seeds", "0:20")
    assert run(*search, *arguments, "--json", file, "--findings", folder / "findings").code == 0

    def timeless(told: Any) -> Any:
        if isinstance(told, dict):
            return {name: timeless(one) for name, one in told.items() if name != "seconds"}
        return list(map(timeless, told)) if isinstance(told, list) else told

    return timeless(json.loads(file.read_text()))


@pytest.mark.full
def test_nodes_that_die_cost_another_run_and_nothing_else(
    run: Run, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cacheproof.cluster import ClusterCrew

    submit, submitted = ClusterCrew.submit, []

    def killing(self: ClusterCrew, work: Any, task: Any) -> Any:
        """Behind every tenth job a node dies, and another one joins."""
        submitted.append(submit(self, work, task))
        if len(submitted) % 10 == 0:
            (node, *_) = cluster.worker_nodes
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
        return submitted[-1]

    monkeypatch.setattr(ClusterCrew, "submit", killing)
    on_cluster = comes_to(run, tmp_path / "cluster", "--cluster", cluster.address)
    monkeypatch.undo()
    assert len(submitted) > 20
    assert on_cluster == comes_to(run, tmp_path / "here", "--workers", 1)
    assert on_cluster["findings"]


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1", "rubbish"])
def test_where_no_cluster_is_one_line_says_so(run: Run, address: str) -> None:
    ran = run("fuzz", "--target", "reference", "--seeds", "0:5", "--cluster", address)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith(f"cacheproof: --cluster {address}: ")
    assert "expected auto, or HOST:PORT" in line


def test_workers_and_a_cluster_are_one_too_many(run: Run) -> None:
    ran = run("fuzz", "--target", "reference", "--cluster", "auto", "--workers", 2)
    assert (ran.code, ran.out) == (2, "")
    assert "--workers and --cluster: expected one of them, or neither" in ran.err


def test_a_node_with_another_text_refuses_its_jobs() -> None:
    begun: list[str] = []
    same = code_digest(SEARCHING)
    assert _do((same, begun.append, ("begun",)), len, "job") == 3
    with pytest.raises(HarnessError, match="another cacheproof"):
        _do((same[::-1], begun.append, ("begun",)), len, "job")
    assert begun == ["begun"]
