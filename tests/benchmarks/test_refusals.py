"""A row for each engine's server and kind of cache."""

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.serving.refusals import RefusedRequest

TOLD = [
    RefusedRequest("no tokens", 400, (500, 200)),
    RefusedRequest("too long", 400, (500, 500)),
    RefusedRequest("unknown", 200, (200, 200)),
]


@pytest.fixture
def lines(script, monkeypatch, capsys):
    """What is printed below the table's head, where servers are asked so."""

    def run(of_server, *words):
        monkeypatch.setattr(script, "of_server", of_server)
        monkeypatch.setattr("sys.argv", ["refusals.py", "--engine", "0.32.0", *words])
        script.main()
        return capsys.readouterr().out.splitlines()[4:]

    return run


def test_rows_count_who_was_refused_and_who_was_not_answered_after(lines):
    assert lines(lambda version, kind: TOLD if kind == "shm" else TOLD[2:]) == [
        "| 0.32.0 | lru | 0 of 1 | 0 | 0 |",
        "| 0.32.0 | shm | 2 of 3 | 2 | 1 |",
        "| 0.32.0 | none | 0 of 1 | 0 | 0 |",
    ]


def test_each_way_is_told_when_asked_for(lines):
    assert lines(lambda version, kind: TOLD[:1], "--verbose")[:2] == [
        "| 0.32.0 | lru | 1 of 1 | 1 | 0 |",
        "  no tokens: 400, then (500, 200)",
    ]


def test_a_server_that_does_not_start_says_why(lines):
    def fails(version, kind):
        raise HarnessError("it does not start")

    assert lines(fails)[0] == "| 0.32.0 | lru | it does not start | | |"
