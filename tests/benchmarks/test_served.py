"""A row for each engine and model, and each fault that no list has."""

import json
import subprocess

import pytest

SERVER = {
    "seed": 0,
    "counts": {
        "requests": 60,
        "whole answers": 58,
        "tokens": 1_400,
        "of which equal": 1_399,
        "preemptions": 3,
        "failed once, answered when asked again": 2,
    },
    "broken": {"SC-9": ["stripped-item"], "SC-8": ["stripped-item"], "EC-8b": []},
    "differences": ["c3: token 4 is 7, the runner's 8"],
    "unlisted": False,
    "died": "",
    "unjudged": "",
}
CELLS = ["60", "58", "1,400", "1,399", "3", "2", "1"]
CLEAN = SERVER | {"broken": {}, "differences": []}


@pytest.fixture
def told(script, monkeypatch, capsys):
    """What is printed, and the exit code, where servers say so of an engine's one model."""

    def run(*servers, stderr=""):
        said = json.dumps({"servers": servers}) if servers else ""
        ran = subprocess.CompletedProcess([], 0, said, stderr)
        monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: ran)
        words = ["served.py", "--engine", "0.32.0", "--model", "llava"]
        monkeypatch.setattr(script.sys, "argv", words)
        code = 0
        try:
            script.main()
        except SystemExit as ended:
            code = ended.code
        return code, capsys.readouterr().out.splitlines()[4:]

    return run


def test_a_row_sums_servers_up_and_says_which_faults_are_listed(told):
    code, (row, *notes) = told(SERVER)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["0.32.0", "llava", *CELLS, "EC-8b (not listed); SC-8, SC-9 (stripped-item)"]
    assert code == 1
    assert notes == [
        "0.32.0, llava: seed 0: c3: token 4 is 7, the runner's 8",
        "0.32.0, llava: seed 0: its record breaks EC-8b, which is not listed",
    ]


def test_two_servers_without_a_fault_are_one_row_and_no_note(told):
    code, rows = told(CLEAN, CLEAN | {"seed": 1})
    assert code == 0
    assert [cell.strip() for cell in rows[0].split("|")][3:5] == ["120", "116"]
    assert rows[0].endswith("| none |")
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("broken", "note"),
    [
        ({"unlisted": True}, "something that no listed fault does"),
        ({"died": "killed"}, "it died: killed"),
        ({"unjudged": "no record"}, "not all was judged: no record"),
    ],
)
def test_each_thing_that_is_wrong_is_told(told, broken, note):
    code, (_, said) = told(CLEAN | broken)
    assert code == 1
    assert said == f"0.32.0, llava: seed 0: {note}"


def test_a_server_that_cannot_be_asked_is_told_with_its_reason(told):
    code, (_, said) = told(stderr="one\ncacheproof: no such engine\n")
    assert code == 1
    assert said == "0.32.0, llava: cacheproof: no such engine"


def test_an_engine_is_asked_with_the_models_that_it_is_searched_with(script):
    assert set(script.offered("0.20.0")) == {"llava", "qwen2_5_vl", "whisper"}
    assert set(script.offered("0.32.0")) == set(script.SERVED_MODELS)
