"""A server of HTTP that is no release's."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@contextmanager
def replying(reply: Callable[[Body], tuple[int, bytes]]) -> Iterator[tuple[str, list[Body]]]:
    """Its address, and what it was sent; it replies with a status and a text."""
    sent: list[Body] = []

    def of_body(path: str, text: bytes) -> tuple[int, bytes]:
        sent.append(json.loads(text))
        return reply(sent[-1])

    with _serving(of_body) as url:
        yield url, sent


@contextmanager
def replying_to(reply: Callable[[str], tuple[int, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Its address, and where it was posted to; it replies with a status and a text."""
    posted: list[str] = []

    def of_path(path: str, text: bytes) -> tuple[int, bytes]:
        posted.append(path)
        return reply(path)

    with _serving(of_path) as url:
        yield url, posted


@contextmanager
def _serving(reply: Callable[[str, bytes], tuple[int, bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            status, text = reply(self.path, text)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
