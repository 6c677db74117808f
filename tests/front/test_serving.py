"""`cacheproof http`: a release's OpenAI server beside the runner, right and with a fault."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.serving import operators, recorder
from cacheproof.differential.serving.answers import AnswerTally
from cacheproof.differential.serving.refusals import WAYS, RefusedRequest
from cacheproof.differential.serving.traffic import (
    UNITS,
    ServedModel,
    ServedTask,
    Traffic,
    traffic,
)
from cacheproof.gpu_runner.jobs import GenerateJob
from cacheproof.serving import serving
from cacheproof.serving.serving import AuditedRecord, ServerReport
from tests.front.conftest import Run

TARGET = "engine@0.32.0"
PLANTED = Path(__file__).parents[1] / "differential" / "serving" / "planted.py"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "vllm@0.32.0"), "no engine of a release; expected engine@VERSION"),
        (("--target", "engine"), "no engine"),
        (("--target", TARGET, "--model", "gpt"), "expected one of llava"),
        (("--target", TARGET, "--seeds", "3"), "expected A:B"),
        (("--target", TARGET, "--requests", "0"), "'--requests'"),
        (("--target", TARGET, "--clients", "many"), "'--clients'"),
        (("--target", TARGET, "--records", "/dev/null/records"), "expected a folder"),
        (
            ("--target", TARGET, "--known", "/no/such/file"),
            "expected a folder with NAME/fault.toml",
        ),
        (("--target", "engine@0.18.0"), "0.18.0"),
        (
            ("--target", TARGET, "--task", "rank"),
            "expected one of generate, embed, classify, score",
        ),
        (("--target", TARGET, "--task", "embed", "--model", "whisper"), "expected one of llava, "),
        (
            ("--target", TARGET, "--task", "score", "--model", "qwen2_audio"),
            "expected one of llava, ",
        ),
        (("--target", TARGET, "--engines", "0"), "'--engines'"),
        (("--target", TARGET, "--api-servers", "x"), "'--api-servers'"),
    ],
)
def test_an_argument_that_means_nothing(run: Run, arguments: tuple[str, ...], words: str) -> None:
    assert words in run("http", *arguments).refusal


@pytest.mark.parametrize(
    ("model", "release", "rate"),
    [
        ("qwen2_5_vl", "0.30.0", 24),
        ("qwen2_5_vl", "0.31.0", None),
        ("qwen3_vl", "0.30.0", None),
    ],
)
def test_beside_a_release_that_drops_the_frame_rate_the_runner_does(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: ServedModel,
    release: str,
    rate: int | None,
) -> None:
    jobs: list[GenerateJob] = []

    def told(job: GenerateJob, **_: object) -> list[dict[str, Any]]:
        jobs.append(job)
        return []

    monkeypatch.setattr(serving, "told_by_child", told)
    asked = traffic(0, model, 1)
    serving.truths_of(model, asked, tmp_path, version=2, release=release, report=print)
    assert [(one.seconds_of_a_frame, one.version) for one in jobs] == [(1 / rate if rate else 0, 2)]


@pytest.mark.full
@pytest.mark.parametrize(("model", "seed"), [("llava", 0), ("whisper", 1)])
def test_a_server_answers_as_the_runner_does(
    run: Run, tmp_path: Path, model: str, seed: int
) -> None:
    records, told = tmp_path / "records", tmp_path / "told.json"
    arguments = ("--model", model, "--seeds", f"{seed}:{seed + 1}", "--requests", "40")
    ran = run("http", "--target", TARGET, *arguments, "--records", records, "--json", told)
    assert ran.code == 0, ran.out
    (server,) = json.loads(told.read_text())["servers"]
    counts = server["counts"]
    assert counts["requests"] == 40
    assert counts["of which equal"] == counts["tokens"] > 300
    assert counts["preemptions"] > 0
    assert counts["clients that left"] > 0
    assert server["differences"] == []
    assert run("audit", records / f"{model}-{seed}").code == 1
    if model == "whisper":  # whose server has no chats
        return
    assert [one["refused"] for one in server["refusals"]] == [400] * len(WAYS)
    # Its processed media are in `lru`, and four of six stay behind; the fault is listed.
    assert sorted(one["then"] for one in server["refusals"]) == [[200, 200]] * 2 + [[500, 200]] * 4
    assert "after 4 of 6 refused requests" in ran.out
    assert "media-left-behind" in server["broken"]["PM-2"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "task"),
    [("llava", "generate"), ("whisper", "generate"), ("llava", "embed"), ("llava", "score")],
)
def test_a_store_that_misreads_is_seen_in_what_clients_get(
    run: Run, monkeypatch: pytest.MonkeyPatch, model: str, task: str
) -> None:
    installed = recorder.installed

    def with_fault(folder: Path) -> Path:
        site = installed(folder)
        shutil.copy(PLANTED, site / "planted.py")
        (points,) = site.glob("*.dist-info/entry_points.txt")
        points.write_text(f"{points.read_text()}planted = planted:register\n")
        return site

    monkeypatch.setattr(recorder, "installed", with_fault)
    arguments = ("--model", model, "--seeds", "1:2", "--requests", "20", "--task", task)
    ran = run("http", "--target", TARGET, *arguments)
    assert ran.code == 1
    said = {"embed": "the embedding is", "score": "the score is"}
    assert said.get(task, "expected") in ran.out


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [
        ("--task", "embed"),
        ("--task", "classify"),
        ("--task", "score"),
        ("--api-servers", "2", "--operator"),
        ("--engines", "2"),
    ],
)
def test_what_is_no_answer_and_several_processes_are_right_too(
    run: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    told = tmp_path / "told.json"
    common = ("--model", "llava", "--seeds", "0:1", "--requests", "60", "--json", told)
    ran = run("http", "--target", TARGET, *common, *arguments)
    assert ran.code == 0, ran.out
    (server,) = json.loads(told.read_text())["servers"]
    counts = server["counts"]
    compared = [counts[f"{unit}s"] for unit in UNITS.values() if f"{unit}s" in counts]
    assert [counts["of which equal"]] == compared
    assert compared[0] > 40


@pytest.mark.full
@pytest.mark.parametrize(
    ("kept", "words"),
    [("", "tokens equal"), ("reset_prefix_cache", ", expected "), ("reset_encoder_cache", "died")],
)
def test_what_is_kept_of_the_weights_before_is_seen(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: str, words: str
) -> None:
    """By an operator who resets all but one cache, of a server with KV blocks for all that it is
    asked; a server that finds rows gone ends."""
    calls = tuple(call for call in operators.LOADS.calls if call != kept)
    loads = operators.LOADS._replace(calls=calls)
    monkeypatch.setattr(operators, "LOADS", loads)
    idle = operators.Operation("nothing", ())  # else most answers are cut short
    monkeypatch.setattr(operators, "OPERATIONS", (loads, idle, idle, idle))

    def roomy(seed: int, model: ServedModel, requests: int, task: ServedTask) -> Traffic:
        drawn = traffic(seed, model, requests, task)
        return replace(drawn, settings=replace(drawn.settings, num_blocks=400))

    monkeypatch.setattr(serving, "traffic", roomy)
    told = tmp_path / "told.json"
    arguments = ("--model", "llava", "--seeds", "2:3", "--requests", "200", "--json", told)
    ran = run("http", "--target", TARGET, *arguments, "--operator")
    assert ran.code == bool(kept), ran.out
    assert words in ran.out
    if words == "died":
        return
    (server,) = json.loads(told.read_text())["servers"]
    assert server["counts"]["answered by other weights than the first"] > 0
    assert server["counts"]["prefix cache hits, tokens"] > 0


@pytest.mark.full
def test_an_answer_about_another_sound_is_told_by_its_cause(run: Run, tmp_path: Path) -> None:
    """Two sounds fit into a step of this server, and it has few KV blocks."""
    told = tmp_path / "told.json"
    arguments = ("--model", "whisper", "--seeds", "2:3", "--requests", "100", "--json", told)
    ran = run("http", "--target", TARGET, *arguments)
    assert ran.code == 0, ran.out
    (server,) = json.loads(told.read_text())["servers"]
    assert server["differences"] == []
    assert server["known"].keys() == {"another-sound"}
    assert "wrong by a known fault" in ran.out


@pytest.mark.full
def test_an_operator_ends_a_server_for_embeddings_by_what_is_listed(run: Run) -> None:
    arguments = ("--model", "llava", "--seeds", "0:1", "--requests", "300", "--task", "embed")
    ran = run("http", "--target", TARGET, *arguments, "--operator")
    assert ran.code == 0, ran.out
    assert "it died (pooling-ended)" in ran.out


@pytest.mark.parametrize(
    ("died", "broken", "differences", "is_unlisted"),
    [
        ("", {}, [], False),
        ("", {"EC-9": ["stale-notice"]}, [], False),
        ("", {"EC-9": []}, [], True),
        ("", {}, ["request 1: token 0 is 1, expected 2"], True),
        ("RuntimeError", {}, [], True),
        ("RuntimeError", {"EC-9": ["stale-notice"]}, [], True),
        ("RuntimeError", {"SC-9": ["stripped-item"]}, [], False),
        ("RuntimeError", {"SC-9": []}, [], True),
        ("RuntimeError", {"PM-8": ["shared-media-moved"]}, [], False),
    ],
)
def test_what_no_listed_fault_does(
    died: str, broken: dict[str, list[str]], differences: list[str], is_unlisted: bool
) -> None:
    tally = AnswerTally(differences=differences)
    told = ServerReport("llava", 0, tally, {}, died, AuditedRecord(broken, ""))
    assert told.is_unlisted is is_unlisted


def test_a_listed_fault_is_a_cause_of_what_was_under_way_when_it_showed() -> None:
    record = AuditedRecord({}, "", mixed={"another-sound": (5.0,)})
    assert record.cause(4.0, 6.0) == record.cause(5.0, 5.0) == "another-sound"
    assert record.cause(1.0, 4.9) == record.cause(5.1, 9.0) == ""


def test_a_front_end_may_end_of_a_listed_fault() -> None:
    for faults, is_unlisted in ((("pooling-ended",), False), ((), True)):
        record = AuditedRecord({}, "", front_end=faults)
        for died in ("AssertionError", ""):  # with several, another may still answer
            told = ServerReport("llava", 0, AnswerTally(), {}, died, record)
            assert told.is_unlisted is is_unlisted


@pytest.mark.parametrize(
    ("failed", "after", "explained", "unexplained"),
    [
        ((), (), (), 0),
        ((5.0,), (), (4.9,), 0),
        ((5.0,), (9.0,), (4.9, 8.9), 0),
        ((5.0,), (9.0,), (4.9,), 1),
        ((5.0,), (), (), 1),
        ((5.0,), (), (5.1,), 1),
        ((50.0,), (), (4.9,), 1),
        ((5.0, 5.1), (), (4.9,), 1),
        ((5.0, 5.1), (), (4.0, 4.9, 5.05), 0),
    ],
)
def test_a_failure_is_known_by_what_the_record_says_of_it(
    failed: tuple[float, ...],
    after: tuple[float, ...],
    explained: tuple[float, ...],
    unexplained: int,
) -> None:
    refusals = [RefusedRequest("too many", 400, (500, 200), after)]
    record = AuditedRecord({}, "", explained)
    tally = AnswerTally(failed_at=list(failed))
    told = ServerReport("llava", 0, tally, {}, "", record, refusals)
    assert told.unexplained == unexplained
    assert told.is_unlisted is bool(unexplained)
