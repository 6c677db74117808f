"""An event of a release that does not end is ended, and those beside it are not."""

import json
import os
import subprocess
import sys

import pytest

SESSION = """
import json, os, sys, time
from cacheproof.differential.targets.host import session
session.SECONDS_OF_EVENT = 0.1
session.limit_events()
if sys.argv[1] == "in a fork" and (child := os.fork()):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


class Session:
    recorder = session.NoCalls()

    def apply(self, event):
        until = time.process_time() + event
        while time.process_time() < until:
            try:
                sum(range(1000))
            except Exception:
                pass  # a release that goes on whatever happens
        return event


records = session.run_events(Session(), json.loads(sys.argv[2]))
print(json.dumps([(outcome, raised) for outcome, _, raised, _ in records]))
"""


@pytest.mark.parametrize("where", ["here", "in a fork"])
def test_an_event_ends(where: str) -> None:
    assert run(where, [0, 10, 0]) == [
        [0, None],
        [None, ["DoesNotEnd", "no end within 0 s of a processor"]],
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("where", ["here", "in a fork"])
def test_many_events_take_as_long_as_they_like(where: str) -> None:
    assert run(where, [0.02] * 30) == [[0.02, None]] * 30


def run(where: str, events: list[float]) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", SESSION, where, json.dumps(events)],
        env=os.environ,
        check=True,
        capture_output=True,
        text=True,
    )
    records: list[object] = json.loads(done.stdout)
    return records
