"""Engines that write and read, and their server, killed at random moments: nothing that was
finished is lost, nothing torn is served, and nothing stays behind."""

import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from cacheproof.differential.targets.host.connectors import redis_server
from cacheproof.differential.targets.host.connectors.redis_server import RedisServer
from cacheproof.reference.encoder_connector.entry_file import fault_of, load
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.tiers import RemoteConfig, TierConfig, Tiers

pytestmark = pytest.mark.skipif(
    not redis_server.is_there(),
    reason="no redis-server on PATH; install Debian's package of that name",
)
HEIGHT = 10_000
MEMORY_BYTES = 1_000_000
"""Six entries: whatever else is saved moves one down to the disk."""
ENGINE = f"""
import random, sys
from pathlib import Path
from cacheproof.reference.encoder_connector import entry_file
from cacheproof.reference.encoder_connector.entry_file import EntryRows, fault_of
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.tiers import RemoteConfig, TierConfig, Tiers

what, folder, url, first = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
folders = [TierConfig(folder / "memory", {MEMORY_BYTES}), TierConfig(folder / "disk", 10**10)]
store = Tiers(folders, fault_of, RemoteConfig(url, 5, 0.01))

def key(number):
    return EntryKey(str(number), "m", "", "1", "float32", 4)

def rows(number):
    return random.Random(str(number)).randbytes({HEIGHT} * 16)

def save(number):
    whole = EntryRows("float32", ({HEIGHT}, 4), rows(number))
    assert store.put(key(number), entry_file.parts_of(whole, key(number)))
    print("saved", number, flush=True)

def read(number, held=[]):
    promise = store.promise(key(number))
    if promise is None:
        return
    held.append(promise)
    promise.opened.seek(0)
    right = entry_file.load(promise.opened, key(number)).data == rows(number)
    print("right" if right else "wrong", number, flush=True)
    if len(held) > 3:
        store.give_back(held.pop(0))

draw = random.Random(first)
for number in range(first, 10**9):
    if what == "writer":
        save(number)
    else:
        read(draw.randrange(first))
"""


class EngineProcess:
    """An engine that goes on until it is killed, and says what it has done."""

    def __init__(self, what: str, folder: Path, url: str, first: int) -> None:
        arguments = [what, str(folder), url, str(first)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENGINE, *arguments], stdout=subprocess.PIPE, text=True
        )
        self.lines = [self._line()]

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def kill(self) -> list[str]:
        """All that it has said."""
        self._process.kill()
        assert self._process.stdout is not None
        rest = self._process.stdout.read().split("\n")[:-1]
        self._process.stdout.close()
        self._process.wait()
        return [line.strip() for line in (*self.lines, *rest)]


@pytest.mark.parametrize(
    "kills", [15, pytest.param(200, marks=pytest.mark.full)], ids=["few", "many"]
)
def test_whoever_is_killed_all_that_was_finished_is_there_whole(
    kills: int, folder: Path, server: RedisServer
) -> None:
    draw = random.Random(kills)
    saved: set[int] = set()
    read = 0
    first = 1
    for _ in range(kills):
        engines = [EngineProcess("writer", folder, server.url, first)]
        if saved:
            engines.append(EngineProcess("reader", folder, server.url, first))
        killed = draw.choice(["writer", "reader", "server"])
        time.sleep(draw.uniform(0, 0.05))
        if killed == "server":
            server.kill()
        if killed == "reader":
            engines.reverse()
        said = [line for engine in engines for line in engine.kill()]
        if killed == "server":
            server.start()
        assert not [line for line in said if line.startswith("wrong")]
        read += len([line for line in said if line.startswith("right")])
        finished = {int(line.split()[1]) for line in said if line.startswith("saved")}
        saved |= finished
        first = max(finished) + 2
    folders = [TierConfig(folder / "memory", MEMORY_BYTES), TierConfig(folder / "disk", 10**10)]
    with closing(Tiers(folders, fault_of, RemoteConfig(server.url, 5, 5))) as store:
        for number in saved:
            key = EntryKey(str(number), "m", "", "1", "float32", 4)
            promise = store.promise(key)
            assert promise is not None
            promise.opened.seek(0)
            expected = random.Random(str(number)).randbytes(HEIGHT * 16)
            assert load(promise.opened, key).data == expected
            store.give_back(promise)
        assert read > kills
        for tier in ("memory", "disk"):
            left = sorted(path.suffix for path in (folder / tier / "owners").iterdir())
            assert left == ["", ".lock"]
