"""A served campaign: it keeps up with what others write, and tells strangers nothing."""

import html
import http.client
import json
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from cacheproof.board.model import BoardReader
from cacheproof.board.serving import FRESH_SECONDS, SHARE_OF_TIME, Boards, BoardServer, Listen
from cacheproof.differential.errors import InputError
from cacheproof.differential.search.campaigns.store import CampaignStore
from tests.differential.findings.timeline import browser as browsers
from tests.front import board_stores
from tests.front.board_stores import BEGUN, early_release, enlist, made, search

LOOPBACK = "127.0.0.1"
needs_browser = pytest.mark.skipif(not browsers.is_there(), reason=browsers.REASON)


@dataclass
class SteppingClock:
    """Time that goes on by so much whenever somebody looks, or when it is told to."""

    step: float = 0.0
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@dataclass
class Served:
    """A server in a thread of this process."""

    server: BoardServer
    clock: SteppingClock

    def ask(
        self, path: str = "/", host: str | None = None, method: str = "GET"
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self.server.server_port)
        with closing(connection):
            headers = {} if host is None else {"Host": host}
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read()

    def let_pass(self) -> None:
        """So much time that the board is read anew."""
        self.clock.now += FRESH_SECONDS + 1

    def board(self) -> dict:
        self.let_pass()
        return json.loads(self.ask("/board.json")[1])


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Serves a store until the test ends."""
    with ExitStack() as stack:

        def served(where: Path) -> Served:
            reader, clock = BoardReader(tmp_path, lambda: BEGUN + 2000.0), SteppingClock()
            boards = Boards(str(where), reader, clock)
            server = stack.enter_context(BoardServer(Listen(LOOPBACK, 0), boards))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return Served(server, clock)

        yield served


@pytest.fixture
def where(tmp_path: Path) -> Path:
    board_stores.small(tmp_path / "store").close()
    return tmp_path / "store"


def test_a_page_and_its_board_are_served_and_nothing_else(serve, where: Path) -> None:
    served = serve(where)
    answer, body = served.ask()
    assert answer.status == 200
    assert body.startswith(b"<!DOCTYPE html>")
    assert "connect-src 'self'" in html.unescape(body.decode())
    for name, value in {
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }.items():
        assert answer.getheader(name) == value
    assert "frame-ancestors 'none'" in (answer.getheader("Content-Security-Policy") or "")
    assert served.board()["title"] == "vllm@0.33.0"
    for path in ("/campaign.sqlite", "/../campaign.sqlite", "/findings/", "/board.json/x"):
        assert served.ask(path)[0].status == 404
    head, nothing = served.ask("/board.json", method="HEAD")
    assert (head.status, nothing) == (200, b"")
    assert served.ask(method="POST")[0].status == 501


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:80", "127.9.9.9:8000"])
def test_a_request_for_this_machine_is_answered(serve, where: Path, host: str) -> None:
    assert serve(where).ask(host=host)[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "192.0.2.7", "localhost.evil.example", "[", ""]
)
def test_a_request_for_another_name_is_refused(serve, where: Path, host: str) -> None:
    for path in ("/", "/board.json"):
        answer, body = serve(where).ask(path, host=host)
        assert answer.status == 421
        assert b"vllm" not in body


def test_an_exposed_server_admits_addresses_and_its_own_names_alone() -> None:
    exposed = Listen("0.0.0.0", 0, is_exposed=True)
    for name in ("192.0.2.7:1", "localhost", socket.gethostname(), "[2001:db8::1]:8723"):
        assert exposed.admits(name)
    for name in ("evil.example", None, "", "a b"):
        assert not exposed.admits(name)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_a_place_that_others_reach_needs_a_word(host: str) -> None:
    with pytest.raises(InputError, match="other machines could read the campaign"):
        Listen(host, 0).address()
    assert Listen(host, 0, is_exposed=True).address()[1] == host


def test_a_host_that_is_none_is_refused(run, where: Path) -> None:
    refusal = run("campaign", "serve", "--store", where, "--host", "no host").refusal
    assert refusal == (
        "--host no host: no address; expected one of this machine, such as 127.0.0.1"
    )


def test_a_port_that_is_taken_is_refused(run, where: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        refusal = run("campaign", "serve", "--store", where, "--port", str(port)).refusal
    assert refusal == (
        f"--port {port}: Address already in use; expected a port of 127.0.0.1 that is free"
    )


def test_a_store_that_is_not_there_is_refused(run, tmp_path: Path) -> None:
    refusal = run("campaign", "serve", "--store", tmp_path / "nothing").refusal
    assert "no campaign; expected one that start has begun" in refusal
    assert not (tmp_path / "nothing").exists()


def test_the_board_keeps_up_with_what_others_write(serve, tmp_path: Path) -> None:
    with closing(made(tmp_path / "store")) as store:
        served = serve(tmp_path / "store")
        assert served.board()["targets"][0]["traces"] == 0
        runner = enlist(store, 0.0)
        search(store, runner, 0, 10.0)
        assert served.board()["targets"][0]["traces"] == board_stores.SHARD_TRACES
        with store.writing():  # nobody waits for a reader, nor a reader for somebody who writes
            assert served.board()["targets"][0]["traces"] == board_stores.SHARD_TRACES


def test_a_board_that_was_just_read_is_not_read_anew(serve, tmp_path: Path) -> None:
    with closing(made(tmp_path / "store")) as store:
        served = serve(tmp_path / "store")
        _, first = served.ask("/board.json")
        search(store, enlist(store, 0.0), 0, 10.0)
        assert served.ask("/board.json")[1] == first
        assert served.board() != json.loads(first)


def test_a_board_that_is_costly_is_read_seldom(where: Path, tmp_path: Path) -> None:
    reads = []

    class Counting(BoardReader):
        def read(self, store: CampaignStore):
            reads.append(store)
            return super().read(store)

    clock = SteppingClock(step=10.0)
    boards = Boards(str(where), Counting(tmp_path), clock)
    for _ in range(10):
        boards.json()
    assert len(reads) == 1 + 9 // (SHARE_OF_TIME + 1)


def test_a_store_that_vanishes_is_said_and_may_come_back(serve, where: Path) -> None:
    served = serve(where)
    assert served.board()["title"] == "vllm@0.33.0"
    away = where.with_name("away")
    where.rename(away)
    assert "no campaign; expected one that start has begun" in served.board()["trouble"]
    away.rename(where)
    assert served.board()["title"] == "vllm@0.33.0"


def test_nothing_in_the_store_is_changed(serve, where: Path) -> None:
    before = {one: one.read_bytes() for one in where.rglob("*") if one.is_file()}
    serve(where).board()
    assert {one: one.read_bytes() for one in where.rglob("*") if one.is_file()} == before


def line_of(started: "subprocess.Popen[str]") -> str:
    """The next line that a command says."""
    assert started.stderr is not None
    return started.stderr.readline()


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", [(), ("--host", "0.0.0.0", "--expose")])
def test_the_command_says_where_it_is_and_ends_with_ctrl_c(
    start: Callable[..., "subprocess.Popen[str]"], where: Path, options: tuple[str, ...]
) -> None:
    started = start("campaign", "serve", "--store", str(where), "--port", "0", *options)
    said = line_of(started)
    port = int(said.rpartition(":")[2].partition("/")[0])
    if options:
        assert "exposed: whoever reaches that address can read the plan" in line_of(started)
    connection = http.client.HTTPConnection(LOOPBACK, port)
    with closing(connection):
        connection.request("GET", "/board.json")
        assert json.loads(connection.getresponse().read())["title"] == "vllm@0.33.0"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate()
    assert (started.returncode, out, err) == (0, "", "ended\n")


@pytest.mark.full
@needs_browser
def test_a_page_shows_what_comes_and_says_what_is_gone(serve, tmp_path: Path) -> None:
    with closing(made(tmp_path / "store")) as store, browsers.started() as browser:
        served = serve(tmp_path / "store")
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.clock.install()
        page.goto(served.server.url)
        page.wait_for_selector("#pace >> text=No shard has ended yet.")
        kinds, listed = early_release(1)
        search(store, enlist(store, 0.0), 0, 10.0, kinds=kinds, listed=listed)
        served.let_pass()
        page.clock.run_for(6000)
        page.wait_for_selector(".fault >> text=early-release")
        page.locator(".fault summary").press("Enter")
        search(store, enlist(store, 0.0), 1, 20.0)
        served.let_pass()
        page.clock.run_for(6000)
        page.wait_for_selector("#head >> text=2 / 20")
        assert page.locator(".fault details").get_attribute("open") is not None
        assert page.is_hidden("#trouble")
        shutil.rmtree(tmp_path / "store")
        served.let_pass()
        page.clock.run_for(6000)
        page.wait_for_selector("#trouble >> text=no campaign")
        assert page.locator(".fault").count() == 1  # what was known stays
        assert said == []
        served.server.shutdown()
        served.server.server_close()
        page.clock.run_for(6000)
        page.wait_for_selector("#trouble >> text=does not answer")
