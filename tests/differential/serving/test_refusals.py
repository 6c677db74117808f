"""Requests that a server has to refuse, and who sends the same medium after them."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cacheproof.differential.serving.refusals import WAYS, Refusal, refusals

MEDIUM_FAILS = 500


@contextmanager
def serving(fails: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that refuses the first request about a medium, fails so many after it, and answers
    the rest; and what it was sent."""
    sent: list[dict[str, Any]] = []
    seen: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.append(body)
            medium = json.dumps(body["messages"][0]["content"][0])
            statuses = [400, *[MEDIUM_FAILS] * fails, *[200] * 3]
            self.send_response(statuses[seen[medium]])
            seen[medium] += 1
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("fails", "then"), [(0, (200, 200)), (1, (MEDIUM_FAILS, 200)), (2, (MEDIUM_FAILS,) * 2)]
)
def test_each_way_has_a_medium_of_its_own(fails: int, then: tuple[int, int]) -> None:
    with serving(fails) as (url, sent):
        told = list(refusals(url, "llava", 0))
    assert told == [Refusal(way, 400, then) for way in WAYS]
    assert all(one.is_refused and one.failed_after == fails for one in told)
    wrong, right = sent[::3], sent[1::3]
    assert sent[2::3] == right
    for way, first, second in zip(WAYS, wrong, right, strict=True):
        asked = {name: value for name, value in first.items() if second.get(name) != value}
        words = {"messages"} if not WAYS[way] else set()
        assert asked.keys() == WAYS[way].keys() | words


def test_a_connection_that_fails_is_no_refusal() -> None:
    (first, *_) = refusals("http://127.0.0.1:9", "qwen2_audio", 0)
    assert (first.refused, first.then) == (0, (0, 0))
    assert not first.is_refused
    assert first.failed_after == 2
