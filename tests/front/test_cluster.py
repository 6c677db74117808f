"""A search on a Ray cluster comes to what it comes to on one machine, whatever nodes die."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.search.explore.scopes import SCOPES
from cacheproof.differential.search.explore.tables import TableScope
from cacheproof.differential.search.gallery import kill_matrix
from cacheproof.differential.search.work import SearchTask
from cacheproof.explore import exploring
from cacheproof.proving import jobs as proof_jobs
from cacheproof.proving import proving
from cacheproof.proving.kept import digest_of
from cacheproof.reference.releases import NEWEST
from cacheproof.work import cluster as clusters
from cacheproof.work.cluster import OF_JOBS, ClusterCrew, _do
from cacheproof.work.code_digest import code_digest
from cacheproof.work.workplace import Workplace
from tests.front.conftest import Run

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray, of the extra cluster, is not installed"
)


@pytest.fixture
def cluster() -> Iterator["Cluster"]:
    """A cluster whose head does no work, and two nodes of one CPU each."""
    clusters.quiet_ray()
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def comes_to(run: Run, folder: Path, *arguments: object) -> object:
    """All that a search says, but for how long it took and the name of its folder."""
    folder.mkdir()
    file = folder / "found.json"
    search = ("fuzz", "--target", f"vllm@{NEWEST}", "--depth", "scheduler", "--seeds", "0:20")
    assert run(*search, *arguments, "--json", file, "--findings", folder / "findings").code == 0
    return timeless(json.loads(file.read_text().replace(str(folder), "FOLDER")))


def timeless(told: object) -> object:
    """A document without its seconds."""
    if isinstance(told, dict):
        return {name: timeless(one) for name, one in told.items() if name != "seconds"}
    return list(map(timeless, told)) if isinstance(told, list) else told


def kill_nodes(cluster: "Cluster", patch: pytest.MonkeyPatch) -> list["Future[Any]"]:
    """Have a node die after every tenth job, and another one join. Returns what is submitted."""
    submit, submitted = ClusterCrew.submit, []

    def killing(
        self: ClusterCrew, work: Callable[[Task], Outcome], task: Task
    ) -> "Future[Outcome]":
        submitted.append(submit(self, work, task))
        if len(submitted) % 10 == 0:
            (node, *_) = cluster.worker_nodes
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
        return submitted[-1]

    patch.setattr(ClusterCrew, "submit", killing)
    return submitted


@pytest.mark.full
def test_nodes_that_die_cost_another_run_and_nothing_else(
    run: Run, cluster: "Cluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        submitted = kill_nodes(cluster, patch)
        on_cluster = comes_to(run, tmp_path / "cluster", "--cluster", cluster.address)
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
    same = code_digest(OF_JOBS)
    assert _do((same, begun.append, ("begun",)), len, "job") == 3
    with pytest.raises(HarnessError, match="another cacheproof"):
        _do((same[::-1], begun.append, ("begun",)), len, "job")
    assert begun == ["begun"]


def campaign(run: Run, folder: Path, *arguments: object) -> dict[str, Any]:
    """The report of a small campaign that is run so."""
    folder.mkdir()
    plan = folder / "plan.toml"
    plan.write_text(
        'targets = ["reference"]\nlanes = ["encoder-decoder"]\nseeds = "0:60"\nshard_seeds = 2\n'
    )
    ran = run("campaign", "start", plan, "--store", folder / "store", *arguments, "--json", "-")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.mark.full
def test_a_campaign_whose_nodes_die_comes_to_the_same_digest(
    run: Run, cluster: "Cluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = campaign(run, tmp_path / "here", "--workers", 2)
    with monkeypatch.context() as patch:
        submitted = kill_nodes(cluster, patch)
        on_cluster = campaign(run, tmp_path / "cluster", "--cluster", cluster.address)
    assert len(submitted) > 30
    assert on_cluster["digest"] == here["digest"]


@pytest.mark.full
def test_a_job_that_is_lost_on_the_cluster_changes_the_digest(
    run: Run, cluster: "Cluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = campaign(run, tmp_path / "here", "--workers", 2)
    submit = ClusterCrew.submit

    def losing(self: ClusterCrew, work: Callable[[Task], Outcome], task: Task) -> "Future[Outcome]":
        """A shard comes back with the last of its seeds missing."""
        if isinstance(task, SearchTask) and 30 in task.seeds:
            task = replace(task, seeds=task.seeds[:-1])
        return submit(self, work, task)

    with monkeypatch.context() as patch:
        patch.setattr(ClusterCrew, "submit", losing)
        on_cluster = campaign(run, tmp_path / "cluster", "--cluster", cluster.address)
    assert on_cluster["digest"] != here["digest"]


@pytest.mark.full
def test_a_job_that_ends_every_process_is_given_up(
    cluster: "Cluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "RUNS_MAX", 2)
    with (
        clusters.joined(cluster.address),
        pytest.raises(HarnessError, match="the cluster gave up a job"),
    ):
        list(clusters.results(os._exit, [1]))


@pytest.mark.full
def test_each_task_on_a_cluster_has_a_process_of_its_own_and_raises_what_it_raises(
    cluster: "Cluster",
) -> None:
    with clusters.joined(cluster.address):
        processes = dict(clusters.results(eval, ["__import__('os').getpid()"] * 5))
        assert len({*processes.values()}) == len(processes) == 5
        with pytest.raises(ZeroDivisionError, match="by zero"):
            list(clusters.results(eval, ["1 // 0"]))


def test_a_campaign_without_its_cluster_is_not_begun(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('targets = ["reference"]\nseeds = "0:5"\n')
    store = tmp_path / "store"
    ran = run("campaign", "start", plan, "--store", store, "--cluster", "127.0.0.1:1")
    assert ran.refusal.startswith("--cluster 127.0.0.1:1: ")
    assert not store.exists()


def same_here_and_on(cluster: "Cluster", run: Run, *command: object) -> dict[str, Any]:
    """What a command says, which must be the same at both places, but for the seconds."""
    told = []
    for place in (("--workers", 2), ("--cluster", cluster.address)):
        ran = run(*command, *place, "--json", "-")
        told.append(timeless(json.loads(ran.out)))
    assert told[0] == told[1]
    return told[0]


@pytest.mark.full
def test_an_exploration_is_the_same_on_a_cluster(
    run: Run, cluster: "Cluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"small": [one for one in SCOPES["small"] if isinstance(one, TableScope)]}
    monkeypatch.setattr(exploring, "SCOPES", small)
    told = same_here_and_on(
        cluster, run, "explore", "--target", "reference", "--findings", tmp_path
    )
    assert len(told["scopes"]) == len(small["small"])


@pytest.mark.full
def test_proofs_are_the_same_on_a_cluster(
    run: Run, cluster: "Cluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    def lemmas(wanted: object, seed: int, *, fresh: bool) -> Iterator[proof_jobs.ProofJob]:
        pieces = (proof_jobs.Piece(digest_of("lemmas", str(seed))),)
        yield proof_jobs.ProofJob("lemmas", 1, partial(proof_jobs._prove_lemmas, seed), pieces)

    monkeypatch.setattr(proving, "jobs_for", lemmas)
    told = same_here_and_on(cluster, run, "prove", "--target", "reference", "--fresh")
    assert {row["outcome"] for row in told["evidence"]} == {"holds"}


@pytest.mark.full
def test_the_kill_matrix_is_the_same_on_a_cluster(
    cluster: "Cluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_matrix, "runnable", lambda: kill_matrix.VARIANTS[:40])
    here = kill_matrix.kill_matrix(range(5))
    there = kill_matrix.kill_matrix(range(5), Workplace(cluster=cluster.address).results)
    assert there.to_json() == here.to_json()
    assert any(here.kills.values())
