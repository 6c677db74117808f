"""Shows a campaign in a browser while it runs. The server changes nothing and knows two things: the
page, and the board that the page asks for again and again."""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from cacheproof.board.model import BoardReader
from cacheproof.board.page import as_json, live_page
from cacheproof.differential.errors import CacheproofError, InputError
from cacheproof.differential.search.campaigns.store import CampaignStore
from cacheproof.output.console import CommandOutput
from cacheproof.output.folders import place_for

BOARD = "board.json"
FRESH_SECONDS = 2.0
SHARE_OF_TIME = 5
"""A store whose board takes long to read is left alone for that many times as long."""
_SECONDS_TO_ASK = 10
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Listen:
    """Where a server listens. Others than this machine reach it only where it `is_exposed`."""

    host: str
    port: int
    is_exposed: bool = False

    def address(self) -> tuple[socket.AddressFamily, str]:
        """What to bind.

        Raises:
            InputError: there is no such address, or others could reach it and that was not asked
                for.
        """
        try:
            family, *_, (address, *_) = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM
            )[0]
        except (OSError, UnicodeError):
            raise InputError(
                f"--host {self.host}: no address; expected one of this machine, such as 127.0.0.1"
            ) from None
        if not ipaddress.ip_address(str(address)).is_loopback and not self.is_exposed:
            raise InputError(
                f"--host {self.host}: other machines could read the campaign; expected a loopback "
                "address such as 127.0.0.1, or --expose as well"
            )
        return family, str(address)

    def admits(self, header: str | None) -> bool:
        """Whether a request with this Host header was meant for here. A page of a stranger whose
        name was made to point here (DNS rebinding) asks with that name; an address is no name."""
        try:
            name = urlsplit(f"//{header or ''}").hostname or ""
        except ValueError:
            return False
        if name in {"localhost", self.host.lower()}:
            return True
        if self.is_exposed and name in {socket.gethostname().lower(), socket.getfqdn().lower()}:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback or self.is_exposed
        except ValueError:
            return False


class Boards:
    """The board of a store as JSON, read anew when it is asked for and old; what hinders it is said
    in its place."""

    def __init__(
        self, where: str, reader: BoardReader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._where = where
        self._reader = reader
        self._clock = clock
        self._lock = threading.Lock()
        self._fresh_until = float("-inf")
        self._json = b""

    def json(self) -> bytes:
        """The board, or {"trouble": a sentence}."""
        with self._lock:
            began = self._clock()
            if began >= self._fresh_until:
                self._json = self._read()
                ended = self._clock()
                self._fresh_until = ended + max(FRESH_SECONDS, SHARE_OF_TIME * (ended - began))
            return self._json

    def _read(self) -> bytes:
        try:
            with closing(CampaignStore(self._where, reads_only=True)) as store:
                return as_json(self._reader.read(store))
        except CacheproofError as error:
            return msgspec.json.encode({"trouble": str(error)})


class BoardServer(ThreadingHTTPServer):
    """Serves a board at that place.

    Raises:
        InputError: the place cannot be listened at.
    """

    daemon_threads = True

    def __init__(self, listen: Listen, boards: Boards) -> None:
        self.address_family, address = listen.address()
        self.listen = listen
        self.boards = boards
        try:
            super().__init__((address, listen.port), _Handler)
        except OSError as error:
            raise InputError(
                f"--port {listen.port}: {error.strerror}; expected a port of {listen.host} that is "
                "free"
            ) from None

    @property
    def url(self) -> str:
        """What to open in a browser."""
        address = str(self.server_address[0])
        host = f"[{address}]" if ":" in address else address
        return f"http://{host}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that left is nobody's business."""


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    server_version = "cacheproof"
    sys_version = ""
    timeout = _SECONDS_TO_ASK

    def do_GET(self) -> None:
        if not self.server.listen.admits(self.headers.get("Host")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "asked for another host's page")
            return
        match self.path:
            case "/":
                self._answer("text/html; charset=utf-8", live_page(BOARD))
            case "/board.json":
                self._answer("application/json", self.server.boards.json())
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        self.do_GET()

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def serve(output: CommandOutput, where: str, findings: Path | None, listen: Listen) -> None:
    """Serve the board of a store until Ctrl-C.

    Raises:
        InputError: there is no campaign, or the place cannot be listened at.
    """
    with closing(CampaignStore(where, reads_only=True)) as store:
        shown = store.where
    boards = Boards(where, BoardReader(place_for(where, findings)))
    with BoardServer(listen, boards) as server:
        output.say(f"campaign {shown} at {server.url}; Ctrl-C ends it")
        if listen.is_exposed:
            output.say(
                "exposed: whoever reaches that address can read the plan, the findings, paths, "
                "names of hosts and processes; nothing can be changed"
            )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            output.say("ended")
