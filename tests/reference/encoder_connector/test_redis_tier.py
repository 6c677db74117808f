"""Entries in a real Redis server: whole or absent, whatever becomes of the server."""

import logging
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from cacheproof.differential.targets.host.connectors import redis_server
from cacheproof.differential.targets.host.connectors.redis_server import RedisServer
from cacheproof.reference.encoder_connector import entry_file, part, redis_tier
from cacheproof.reference.encoder_connector.entry_file import EntryRows, fault_of
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.part import Part
from cacheproof.reference.encoder_connector.redis_tier import PREFIX, RedisTier
from cacheproof.reference.encoder_connector.tiers import RemoteConfig, TierConfig, Tiers

pytestmark = pytest.mark.skipif(
    not redis_server.is_there(),
    reason="no redis-server on PATH; install Debian's package of that name",
)
TIMEOUT, PAUSE = 0.3, 5.0


def key(identifier: str) -> EntryKey:
    return EntryKey(identifier, "m", "", "1", "float32", 4)


def parts(identifier: str, count: int = 3) -> list[Part]:
    rows = EntryRows("float32", (count, 4), random.Random(identifier).randbytes(count * 16))
    return entry_file.parts_of(rows, key(identifier))


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as made:
        yield made


@pytest.fixture
def tier(server: RedisServer) -> Iterator[RedisTier]:
    with closing(RedisTier(server.url, TIMEOUT, PAUSE)) as made:
        yield made


@pytest.fixture
def store(server: RedisServer) -> Iterator[Tiers]:
    with closing(Tiers([], fault_of, RemoteConfig(server.url, TIMEOUT, PAUSE))) as made:
        yield made


def promised(store: Tiers, identifier: str) -> EntryRows | None:
    """The rows that are promised of an item, as a worker reads them."""
    promise = store.promise(key(identifier))
    if promise is None:
        return None
    with open(promise.paths[-1], "rb") as file:
        rows = entry_file.load(file, key(identifier))
    store.give_back(promise)
    return rows


def test_an_entry_is_what_was_put_last(tier: RedisTier) -> None:
    assert tier.fetch("x") is None
    assert tier.put("x", [b"other"])
    assert tier.put("x", [b"fir", memoryview(b"st")])
    with closing(tier.fetch("x")) as file:
        file.seek(0)
        assert file.read() == b"first"
    tier.remove("x")
    assert tier.fetch("x") is None


@pytest.mark.parametrize("count", [1, 65535, 65536, 65537, 200_000])
def test_entries_of_many_parts_are_read_whole(store: Tiers, count: int) -> None:
    store.put(key("x"), parts("x", count))
    rows = promised(store, "x")
    assert rows is not None
    assert rows.data == parts("x", count)[1]


def test_what_is_promised_survives_the_server(store: Tiers, server: RedisServer) -> None:
    store.put(key("x"), parts("x"))
    promise = store.promise(key("x"))
    assert promise is not None
    server.kill()
    with open(promise.paths[0], "rb") as file:
        assert entry_file.load(file, key("x")).data == parts("x")[1]
    assert store.promise(key("x")) is None
    store.give_back(promise)


def test_a_server_that_was_stopped_is_used_again(store: Tiers, server: RedisServer) -> None:
    store.put(key("x"), parts("x"))
    server.stop()
    assert promised(store, "x") is None
    assert not store.put(key("y"), parts("y"))
    server.start()
    assert promised(store, "x") is not None
    assert promised(store, "y") is None
    server.kill()
    server.start()
    assert promised(store, "x") is None
    assert store.put(key("x"), parts("x"))
    assert promised(store, "x") is not None


def test_a_server_that_hangs_is_left_alone_for_a_while(
    store: Tiers, server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    now = [0.0]
    monkeypatch.setattr(redis_tier.time, "monotonic", lambda: now[0])
    store.put(key("x"), parts("x"))
    server.hang()
    assert promised(store, "x") is None
    server.go_on()
    assert promised(store, "x") is None
    now[0] += PAUSE
    assert promised(store, "x") is not None
    assert [record.message for record in caplog.records] == [
        f"encoder cache: nothing is read at {server.socket}, 'no answer in 0.3 s'"
    ]


def test_an_entry_that_takes_too_long_is_none(
    tier: RedisTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier.put("x", [bytes(3 * entry_file.PART_BYTES)])
    now = iter((0.0, 0.0, 0.1, 0.2, 10.0, 10.0))
    monkeypatch.setattr(redis_tier.time, "monotonic", lambda: next(now))
    assert tier.fetch("x") is None


def test_memory_of_the_server_is_bounded_by_the_server(folder: Path) -> None:
    with (
        closing(RedisServer(folder, bytes_max=4 << 20)) as server,
        closing(Tiers([], fault_of, RemoteConfig(server.url, TIMEOUT, PAUSE))) as store,
        redis.Redis.from_url(server.url) as client,
    ):
        names = [str(number) for number in range(100)]
        for name in names:
            assert store.put(key(name), parts(name, 4000))
        found = {name: promised(store, name) for name in names}
        there = {name for name, rows in found.items() if rows is not None}
        assert 0 < len(there) < 60
        assert all(found[name].data == parts(name, 4000)[1] for name in there)
        client.config_set("maxmemory-policy", "noeviction")
        assert not all(store.put(key(f"more {name}"), parts(name, 4000)) for name in names)


def test_what_is_saved_is_in_a_folder_and_at_the_server(
    tmp_path: Path, server: RedisServer
) -> None:
    remote = RemoteConfig(server.url, TIMEOUT, PAUSE)
    hosts = [TierConfig(tmp_path / name, 1 << 20) for name in ("one", "other")]
    with (
        closing(Tiers(hosts[:1], fault_of, remote)) as one,
        closing(Tiers(hosts[1:], fault_of, remote)) as other,
    ):
        one.put(key("x"), parts("x"))
        assert promised(other, "x") is not None
        server.kill()
        assert promised(one, "x") is not None
        assert promised(other, "x") is not None  # copied when it was used
        server.start()
        one.clear()
        assert promised(one, "x") is None


def test_a_reset_drops_what_others_have_put(store: Tiers, server: RedisServer, client: Any) -> None:
    client.set("somebody else's", "1")
    with closing(Tiers([], fault_of, RemoteConfig(server.url, TIMEOUT, PAUSE))) as other:
        for number in range(2500):
            other.put(key(str(number)), parts("x", 1))
    store.clear()
    assert client.keys() == [b"somebody else's"]


KINDS = {
    "a list": lambda client, name: client.rpush(name, "a"),
    "a hash": lambda client, name: client.hset(name, "a", "b"),
    "nothing": lambda client, name: client.set(name, b""),
    "a byte": lambda client, name: client.set(name, b"\0"),
    "a stream": lambda client, name: client.xadd(name, {"a": "b"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_other_kinds_are_a_miss(store: Tiers, client: Any, kind: str) -> None:
    KINDS[kind](client, PREFIX + key("x").name)
    assert promised(store, "x") is None


def test_a_thousand_hostile_values_are_misses(
    store: Tiers, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(0)
    original = part.whole(parts("x", 8))
    other = part.whole(parts("y", 8))
    for number in range(1000):
        data = bytearray(original)
        match number % 5:
            case 0:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            case 1:
                data = data[: draw.randrange(len(data))]
            case 2:
                data += draw.randbytes(draw.randint(1, 9))
            case 3:
                data = bytearray(draw.randbytes(draw.randint(1, 300)))
            case 4:
                at = draw.randrange(1, len(original))
                data[at:] = other[at:]
                if data == original:
                    continue
        client.set(PREFIX + key("x").name, bytes(data))
        caplog.clear()
        assert promised(store, "x") is None, data
        assert len(caplog.records) == (1 if data else 0)
        assert client.get(PREFIX + key("x").name) is None or not data
    client.set(PREFIX + key("x").name, original)
    assert promised(store, "x") is not None


def test_without_a_check_a_hostile_value_is_promised(server: RedisServer, client: Any) -> None:
    remote = RemoteConfig(server.url, TIMEOUT, PAUSE)
    client.set(PREFIX + key("x").name, b"anything")
    with closing(Tiers([], lambda file, key: None, remote)) as store:
        assert store.promise(key("x")) is not None


WRITER = """
import random, sys
from cacheproof.reference.encoder_connector import entry_file
from cacheproof.reference.encoder_connector.entry_file import EntryRows
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.redis_tier import RedisTier
tier = RedisTier(sys.argv[1], 5, 5)
for number in range(int(sys.argv[2]), 10**9):
    key = EntryKey(str(number), "m", "", "1", "float32", 4)
    rows = EntryRows("float32", (40_000, 4), random.Random(str(number)).randbytes(640_000))
    if tier.put(key.name, entry_file.parts_of(rows, key)):
        print(number, flush=True)
"""


@pytest.mark.parametrize("who", ["writer", "server"])
def test_whoever_is_killed_nothing_is_torn(
    who: str, server: RedisServer, store: Tiers, request: pytest.FixtureRequest
) -> None:
    """What a writer has finished is there, unless the server was killed."""
    draw = random.Random(who)
    at = 0
    for _ in range(20):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, server.url, str(at)], stdout=subprocess.PIPE
        )
        finished = [int(writer.stdout.readline()) for _ in range(draw.randint(1, 4))]
        if who == "server":
            server.kill()
        writer.send_signal(signal.SIGKILL)
        finished += map(int, writer.stdout.read().split())
        writer.wait()
        writer.stdout.close()
        if who == "server":
            server.start()
        for number in range(at, finished[-1] + 3):
            rows = promised(store, str(number))
            expected = parts(str(number), 40_000)[1]
            assert rows is None or rows.data == expected
            if who == "writer" and number in finished:
                assert rows is not None
        at = finished[-1] + 3


def test_a_password_is_in_no_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        closing(RedisTier("redis://user:secret@127.0.0.1:1/0", TIMEOUT, PAUSE)) as tier,
    ):
        assert tier.fetch("x") is None
        assert not tier.put("x", [b"x"])
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "encoder cache: nothing is read at 127.0.0.1:1: ConnectionError",
        "encoder cache: nothing is written at 127.0.0.1:1: ConnectionError",
    ]
    assert "secret" not in caplog.text


@pytest.mark.full
def test_random_steps_over_all_tiers_promise_what_was_saved(
    tmp_path: Path, server: RedisServer
) -> None:
    """What the server got is promised, while it is there; what is promised is whole."""
    draw = random.Random(0)
    tiers = [TierConfig(tmp_path / "memory", 2000), TierConfig(tmp_path / "disk", 4000)]
    remote = RemoteConfig(server.url, 30, 0)
    whole = {str(number): part.whole(parts(str(number), 1 + number)) for number in range(30)}
    names = list(whole)
    at_server: set[str] = set()
    promises: list[tuple[str, Any]] = []
    is_there, missed = True, 0
    with closing(Tiers(tiers, fault_of, remote)) as store:
        for _ in range(100_000):
            name, luck = draw.choice(names), draw.random()
            if luck < 0.3:
                store.put(key(name), [whole[name]])
                at_server |= {name} if is_there else set()
            elif luck < 0.75:
                promise = store.promise(key(name))
                assert promise is not None or name not in at_server or not is_there
                if promise is None:
                    missed += 1
                else:
                    promises.append((name, promise))
            elif luck < 0.98 or promises[9:]:
                for _ in range(min(len(promises), draw.randrange(5))):
                    kept, promise = promises.pop(draw.randrange(len(promises)))
                    with open(promise.paths[0], "rb") as file:
                        assert file.read() == whole[kept]
                    store.give_back(promise)
            elif luck < 0.983:
                store.clear()
                at_server -= at_server if is_there else set()
            elif luck < 0.985:
                (server.stop if is_there else server.start)()
                is_there = not is_there
    assert missed > 1000


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n",
        b":7\r\n",
        b"$x\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"$5\r\nab\r\n\r\n",
        b"%1\r\n",
        b"",
    ],
)
def test_who_is_no_such_server_is_a_miss(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client, suppress(OSError):
                        while client.recv(4096):
                            client.sendall(said)

        threading.Thread(target=speak, daemon=True).start()
        port = listening.getsockname()[1]
        with closing(RedisTier(f"redis://127.0.0.1:{port}/0", TIMEOUT, 0)) as tier:
            assert tier.fetch("x") is None
            tier.put("x", [b"x"])
            tier.remove("x")
            tier.clear()
        listening.shutdown(socket.SHUT_RDWR)
