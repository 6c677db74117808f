"""What a followed audit says can be scraped, and the dashboard draws only what is there."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cacheproof.differential.audit.metrics import Metrics
from cacheproof.reference.releases import NEWEST
from tests.differential.audit.spoiled import audit, file_of, parts_of, records_of
from tests.differential.recording.driven import Driven, found_by, long_trace, run_recorded


class Sample(TypedDict):
    """What Prometheus answers of a series: a moment, and the value then."""

    value: tuple[float, str]


class Query(TypedDict):
    """What a panel asks."""

    expr: str


class Panel(TypedDict):
    """A panel of a dashboard."""

    targets: list[Query]


class Dashboard(TypedDict):
    """A dashboard, as far as it is read here."""

    panels: list[Panel]


DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "dashboard.json"
NAME = re.compile(r"\bcacheproof_\w+")
PROMETHEUS = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="no prometheus on PATH; install Debian's package of that name",
)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """A record of a scheduler with a fault."""
    folder = tmp_path_factory.mktemp("records")
    (wrong,) = run_recorded(NEWEST, [(long_trace(4), "drops_what_is_encoded")], folder)
    return wrong


@pytest.fixture
def unended(driven: Driven, tmp_path: Path) -> Path:
    """The record as it is while its engine, this process, still runs."""
    opened, *records, _ = records_of(driven.folder)
    opened[5] = os.getpid()
    file = tmp_path / "record.cprec"
    file.write_bytes(file_of([opened, *records]))
    return file


def served(start: Start, record: Path, steps: int) -> str:
    """The address of the metrics of an audit that has judged all steps."""
    command = start("audit", str(record), "--follow", "--metrics-port", "0")
    assert command.stderr is not None
    (address,) = re.findall(r"http://\S+", command.stderr.readline())
    while command.poll() is None:
        if values(scraped(address)).get("cacheproof_judged_steps_total") == steps:
            return str(address)
    raise AssertionError("the audit has ended")


def scraped(address: str) -> str:
    with urlopen(address) as answer:
        return str(answer.read().decode())


def values(text: str) -> dict[str, float]:
    """Each metric's sum over its labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


@pytest.mark.full
def test_a_followed_audit_serves_what_it_says(start: Start, unended: Path, driven: Driven) -> None:
    account = driven.audited().account
    found = values(scraped(served(start, unended, account.judged_steps)))
    assert found["cacheproof_steps_total"] == account.steps
    assert found["cacheproof_broken_contracts_total"] == sum(account.broken.values()) > 0
    assert found["cacheproof_encoder_cache_hits_total"] == account.traffic.hits
    assert found["cacheproof_encoder_cache_evictions_total"] == account.traffic.evictions


@PROMETHEUS
def test_promtool_has_nothing_against_the_metrics(
    start: Start, unended: Path, driven: Driven
) -> None:
    text = scraped(served(start, unended, driven.audited().account.judged_steps))
    checked = _promtool(text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert _promtool(text.replace("_total", "")).returncode != 0


def _promtool(text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )


@PROMETHEUS
def test_prometheus_scrapes_the_metrics_and_knows_every_expression_of_the_dashboard(
    start: Start, unended: Path, driven: Driven, tmp_path: Path
) -> None:
    account = driven.audited().account
    address = served(start, unended, account.judged_steps)
    target = address.removeprefix("http://").removesuffix("/metrics")
    configuration = tmp_path / "prometheus.json"
    job = {"job_name": "audit", "static_configs": [{"targets": [target]}]}
    configuration.write_text(
        json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = f"127.0.0.1:{free.getsockname()[1]}"
    words = [f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with subprocess.Popen(
        ["prometheus", *words, f"--web.listen-address={own}"], stderr=subprocess.DEVNULL
    ) as prometheus:
        try:
            found: list[Sample] = []
            while not found and prometheus.poll() is None:
                found = _asked(own, "cacheproof_judged_steps_total")
            assert float(found[0]["value"][1]) == account.judged_steps
            for expression in expressions(dashboard()):
                _asked(own, expression)
        finally:
            prometheus.kill()


def _asked(address: str, expression: str) -> list[Sample]:
    """What Prometheus answers; nothing while it does not listen yet. HTTPError where the expression
    is none."""
    try:
        with urlopen(f"http://{address}/api/v1/query?query={quote(expression)}") as answer:
            return json.load(answer)["data"]["result"]
    except URLError as error:
        if isinstance(error.reason, ConnectionRefusedError) or getattr(error, "code", 0) == 503:
            return []
        raise


def test_a_waiting_request_that_is_not_there_has_no_age(driven: Driven) -> None:
    records = records_of(driven.folder)
    output = next(number for number, record in enumerate(records) if record[0] == "u")
    *_, waiting, _ = range(len(records[output]))
    records[output][waiting] = [1 << 20]
    auditor = audit(parts_of(file_of(records[: output + 1])), skips=True)
    metrics = Metrics()
    metrics.publish({"engine": auditor})
    found = values(generate_latest(metrics.registry).decode())
    assert auditor.follower is not None
    assert auditor.follower.waiting == [f"r{1 << 20}"]
    assert "SC-19" in found_by(auditor)
    assert found["cacheproof_oldest_waiting_request_age_seconds"] == 0


def dashboard() -> Dashboard:
    return json.loads(DASHBOARD.read_text())


def expressions(board: Dashboard) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def unknown(board: Dashboard) -> set[str]:
    """Names in a dashboard that are no metric's."""
    metrics = Metrics()
    metrics.publish({})
    lines = generate_latest(metrics.registry).decode().splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    return {name for one in expressions(board) for name in NAME.findall(one)} - names


def test_the_dashboard_draws_only_metrics_that_are_there() -> None:
    assert unknown(dashboard()) == set()


def test_a_metric_of_another_name_is_noticed() -> None:
    renamed = DASHBOARD.read_text().replace("cacheproof_gaps_total", "cacheproof_holes_total")
    assert unknown(json.loads(renamed)) == {"cacheproof_holes_total"}


def test_the_dashboard_is_one_of_grafana_s() -> None:
    board = dashboard()
    assert board["schemaVersion"] >= 36
    assert board["title"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert {"type", "title", "datasource", "gridPos", "fieldConfig", "targets"} <= panel.keys()
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0


@pytest.mark.full
def test_a_followed_audit_waits_for_its_folder(
    start: Start, driven: Driven, tmp_path: Path
) -> None:
    command = start("audit", str(tmp_path / "later"), "--follow")
    shutil.copytree(driven.folder, tmp_path / "later")
    said, _ = command.communicate()
    assert re.search(r"broken +SC-9.*, safety, in step ", said)
    assert command.returncode == 1
