"""A folder of entries: bounded, whole or absent, and nobody's pins but one's own."""

import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from cacheproof.reference.encoder_connector import directory_tier
from cacheproof.reference.encoder_connector.directory_tier import DirectoryTier
from cacheproof.reference.encoder_connector.entry_table import EntryTable

CONTENT = 10_000
WRITER = f"""
import sys
from pathlib import Path
from cacheproof.reference.encoder_connector.directory_tier import DirectoryTier
tier = DirectoryTier(Path(sys.argv[1]), int(sys.argv[2]))
for number in range(int(sys.argv[3]), 10**9):
    if tier.put(f"{{number:064d}}", [b"%064d" % number * {CONTENT}], 64 * {CONTENT}):
        print(number, flush=True)
"""


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[DirectoryTier]:
    with closing(DirectoryTier(tmp_path / "tier", 100)) as made:
        yield made


def name(number: int) -> str:
    return f"{number:064d}"


def put(tier: DirectoryTier, number: int, data: bytes) -> bool:
    return tier.put(name(number), [data], len(data))


def content(tier: DirectoryTier, number: int) -> bytes | None:
    """The bytes of an entry; None: there is none."""
    pinned = tier.pin(name(number))
    if pinned is None:
        return None
    data = pinned.read_bytes()
    tier.unpin(pinned)
    return data


def test_an_entry_is_what_was_put_first(tier: DirectoryTier) -> None:
    assert content(tier, 1) is None
    assert put(tier, 1, b"first")
    assert put(tier, 1, b"other")
    assert content(tier, 1) == b"first"


def test_the_entry_that_was_not_used_for_longest_makes_room(tier: DirectoryTier) -> None:
    for number in range(4):
        assert put(tier, number, bytes(25))
    content(tier, 0)
    assert put(tier, 4, bytes(50))
    assert [tier.contains(name(number)) for number in range(5)] == [True, False, False, True, True]
    assert tier.num_bytes() == 100


def test_what_is_pinned_stays_and_counts(tier: DirectoryTier) -> None:
    put(tier, 1, b"x" * 60)
    pinned = tier.pin(name(1))
    assert pinned is not None
    assert not put(tier, 2, bytes(60))
    tier.remove(name(1))
    assert not tier.contains(name(1))
    assert pinned.read_bytes() == b"x" * 60
    assert tier.num_bytes() == 60
    assert not put(tier, 2, bytes(60))
    tier.unpin(pinned)
    assert put(tier, 2, bytes(60))


def test_what_is_larger_than_the_tier_is_skipped_and_evicts_nothing(
    tier: DirectoryTier, caplog: pytest.LogCaptureFixture
) -> None:
    put(tier, 1, bytes(90))
    assert not put(tier, 2, bytes(101))
    assert not put(tier, 3, bytes(101))
    assert tier.contains(name(1))
    assert len(caplog.records) == 1


def test_another_owner_sees_entries_and_heeds_pins(tier: DirectoryTier) -> None:
    with closing(DirectoryTier(tier.root, 100)) as other:
        put(tier, 1, bytes(70))
        pinned = other.pin(name(1))
        assert pinned is not None
        assert not put(tier, 2, bytes(70))
    assert put(tier, 2, bytes(70))


def test_an_entry_that_is_pinned_while_room_is_made_stays(tier: DirectoryTier) -> None:
    with closing(DirectoryTier(tier.root, 100)) as other:

        class Late(DirectoryTier):
            def _idle(self) -> Iterator[tuple[Path, os.stat_result]]:
                found = list(super()._idle())
                assert other.pin(name(1)) is not None
                return iter(found)

        put(tier, 1, bytes(40))
        put(tier, 2, bytes(40))
        with closing(Late(tier.root, 100)) as late:
            assert not put(late, 3, bytes(90))
            assert late.num_bytes() == 40
            assert late.contains(name(1))


def test_a_restart_finds_what_was_stored(tier: DirectoryTier) -> None:
    put(tier, 1, b"kept")
    tier.close()
    with closing(DirectoryTier(tier.root, 100)) as again:
        assert content(again, 1) == b"kept"


def test_the_pins_of_the_dead_are_given_back(tier: DirectoryTier) -> None:
    put(tier, 1, bytes(70))
    script = (
        f"{WRITER.split('for number')[0]}tier.pin({name(1)!r}); import os; os.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", script, str(tier.root), "100"])
    assert died.returncode == -signal.SIGKILL
    assert len(list((tier.root / "owners").glob("*/*"))) == 1
    assert put(tier, 2, bytes(70))
    assert [path.suffix for path in sorted((tier.root / "owners").iterdir())] == ["", ".lock"]


def test_whoever_is_killed_as_it_moves_an_entry_on_loses_none(tier: DirectoryTier) -> None:
    put(tier, 1, b"finished")
    died = subprocess.run([sys.executable, "-c", EVICTS_AND_DIES, str(tier.root), name(2)])
    assert died.returncode == -signal.SIGKILL
    with closing(DirectoryTier(tier.root, 100)) as again:  # which buries the dead
        assert content(again, 1) == b"finished"


EVICTS_AND_DIES = """
import os, sys
from pathlib import Path
from cacheproof.reference.encoder_connector.directory_tier import DirectoryTier
tier = DirectoryTier(Path(sys.argv[1]), 100, evicted=lambda *_: os.kill(os.getpid(), 9))
tier.put(sys.argv[2], [bytes(95)], 95)
"""


@pytest.mark.parametrize("hostile", ["folder", "fifo", "link", "link to nothing"])
def test_what_is_no_file_is_no_entry(tier: DirectoryTier, hostile: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    entry = tier.root / "entries" / name(1)[:2] / name(1)[2:]
    entry.parent.mkdir()
    if hostile == "folder":
        entry.mkdir()
    elif hostile == "fifo":
        os.mkfifo(entry)
    else:
        entry.symlink_to(tmp_path / ("secret" if hostile == "link" else "nothing"))
    assert content(tier, 1) is None
    assert put(tier, 2, bytes(100))


@pytest.mark.parametrize("gone", ["root", "entries", "owners"])
def test_a_folder_that_is_gone_is_a_miss_and_a_line_of_log(
    tier: DirectoryTier, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(tier, 1, b"x")
    root = tier.root if gone == "root" else tier.root / gone
    root.rename(tier.root.parent / "elsewhere")
    for _ in range(3):
        assert tier.pin(name(1)) is None or gone == "owners"
        assert not put(tier, 2, b"y") or gone in ("entries", "owners")
        tier.num_bytes()
        tier.clear()
    assert len(caplog.records) <= 3


def test_an_engine_that_is_stopped_with_the_lock_stops_no_other(
    tier: DirectoryTier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(directory_tier, "LOCK_SECONDS", 0.0)
    put(tier, 1, b"x")
    with (tier.root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert content(tier, 1) == b"x"
        assert not put(tier, 2, b"y")
    assert "EBUSY" in caplog.text
    assert put(tier, 2, b"y")


def test_a_full_disk_is_a_miss_and_leaves_nothing(
    tier: DirectoryTier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "truncate", full)
    assert not put(tier, 1, b"x")
    assert tier.num_bytes() == 0
    assert "ENOSPC" in caplog.text


class Named:
    """A table of entries beside a tier of one owner: an entry of each number at a time, each with a
    name that is given once, and the entries that are pinned."""

    def __init__(self, bytes_max: int) -> None:
        self.table = EntryTable(bytes_max)
        self.names: dict[int, str] = {}
        self.given = 0
        self.pins: dict[Path, str] = {}

    def entry(self, number: int) -> str:
        return self.names.get(number, "")

    def put(self, number: int, size: int) -> bool:
        if self.table.contains(self.entry(number)):
            return True
        self.given += 1
        name = f"{number}-{self.given}"
        if not self.table.begin(name, size):
            return False
        self.table.publish(name)
        self.names[number] = name
        return True

    def pin(self, number: int, pinned: Path | None) -> bool:
        if not self.table.pin(self.entry(number)):
            return pinned is None
        if pinned is not None:
            self.pins[pinned] = self.entry(number)
        return pinned is not None

    @property
    def taken(self) -> int:
        return self.table.capacity - self.table.free


@pytest.mark.parametrize(
    "steps", [1_500, pytest.param(100_000, marks=pytest.mark.full)], ids=["few", "many"]
)
def test_a_tier_decides_as_the_table(tmp_path: Path, steps: int) -> None:
    decides_as_the_table(DirectoryTier, tmp_path, steps)


class EvictsPinned(DirectoryTier):
    """Pins are not heeded."""

    def _idle(self) -> Iterator[tuple[Path, os.stat_result]]:
        return ((entry, os.lstat(entry)) for entry in self._entries())


class EvictsTheNewest(DirectoryTier):
    """The entry that was used last goes first."""

    def _idle(self) -> Iterator[tuple[Path, os.stat_result]]:
        for entry, found in super()._idle():
            os.utime(entry, ns=(0, 10**15 - found.st_mtime_ns))
            yield entry, os.lstat(entry)


class ForgetsWhatIsRemoved(DirectoryTier):
    """The bytes of a pin whose entry was removed are not counted."""

    def num_bytes(self) -> int:
        return sum(os.lstat(entry).st_size for entry in self._entries())


class KeepsTheLast(DirectoryTier):
    """Another entry of a name replaces the first."""

    def contains(self, name: str) -> bool:
        return False

    def _publish(self, name: str, made: Path) -> None:
        self._entry(name).parent.mkdir(exist_ok=True)
        made.rename(self._entry(name))


@pytest.mark.parametrize(
    "faulty", [EvictsPinned, EvictsTheNewest, ForgetsWhatIsRemoved, KeepsTheLast]
)
def test_a_faulty_tier_parts_from_the_table(tmp_path: Path, faulty: type[DirectoryTier]) -> None:
    with pytest.raises(AssertionError):
        decides_as_the_table(faulty, tmp_path, 1_500)


def decides_as_the_table(of: type[DirectoryTier], folder: Path, steps: int) -> None:
    """Random steps of one owner, each held against the table."""
    draw = random.Random(7)
    times = iter(range(10**9))
    with closing(of(folder / "tier", 1000)) as tier:
        beside = Named(1000)
        for _ in range(steps):
            number, chance = draw.randrange(14), draw.random()
            if chance < 0.5:
                size = draw.choice([draw.randrange(1, 400), draw.randrange(900, 1100)])
                assert put(tier, number, bytes(size)) == beside.put(number, size)
                used(tier, number, next(times))
            elif chance < 0.75 or not beside.pins:
                if len(beside.pins) > 4:
                    continue
                pinned = tier.pin(name(number))
                assert beside.pin(number, pinned)
                used(tier, number, next(times))
            elif chance < 0.95:
                pinned = draw.choice(sorted(beside.pins))
                tier.unpin(pinned)
                beside.table.unpin(beside.pins.pop(pinned))
            elif chance < 0.999:
                tier.remove(name(number))
                beside.table.remove(beside.entry(number))
            else:
                tier.clear()
                beside.table.clear()
            assert tier.num_bytes() == beside.taken <= 1000
        assert beside.table.order


def used(tier: DirectoryTier, number: int, at: int) -> None:
    """Give an entry's last use an hour of its own: files of one tick of the clock tie."""
    entry = tier.root / "entries" / name(number)[:2] / name(number)[2:]
    if entry.exists() and entry.stat().st_mtime_ns > 10**12:
        os.utime(entry, ns=(at, at))


@pytest.mark.parametrize(
    "kills", [25, pytest.param(200, marks=pytest.mark.full)], ids=["few", "many"]
)
def test_a_writer_that_is_killed_leaves_whole_entries_and_loses_none(
    tmp_path: Path, kills: int
) -> None:
    finished = killed(WRITER, tmp_path, kills)
    with closing(DirectoryTier(tmp_path, 10**9)) as tier:
        for number in finished:
            assert content(tier, number) == b"%064d" % number * CONTENT
        assert torn(tmp_path) == []
        assert [path.suffix for path in sorted((tmp_path / "owners").iterdir())] == ["", ".lock"]


@pytest.mark.full
def test_a_writer_that_publishes_before_it_writes_leaves_torn_entries(tmp_path: Path) -> None:
    killed(WRITER.replace("tier = ", PUBLISHES_FIRST + "tier = "), tmp_path, 25)
    assert torn(tmp_path)


PUBLISHES_FIRST = """
def publish_first(self, made, parts, write=DirectoryTier._write):
    name = made.name.rpartition("-")[0]
    publish(self, name, made)
    write(self, self._entry(name), parts)
publish, DirectoryTier._write = DirectoryTier._publish, publish_first
DirectoryTier._publish = lambda *_: None
"""


def killed(script: str, folder: Path, kills: int) -> list[int]:
    """The numbers that writers say they have put, each killed at a moment of its own."""
    draw = random.Random(3)
    finished: list[int] = []
    for kill in range(kills):
        arguments = [str(folder), str(10**9), str(kill * 10**6)]
        with subprocess.Popen(
            [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(draw.randrange(1, 6)):
                finished.append(int(writer.stdout.readline()))
            with suppress(subprocess.TimeoutExpired):
                writer.wait(timeout=draw.uniform(0, 0.003))
            writer.kill()
            finished += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    return finished


def torn(folder: Path) -> list[int]:
    """The numbers of entries that are not whole."""
    numbers = {int(one.parent.name + one.name): one for one in (folder / "entries").glob("*/*")}
    return [at for at, one in numbers.items() if one.read_bytes() != b"%064d" % at * CONTENT]


def test_several_processes_stay_within_the_bytes_and_read_whole_entries(tmp_path: Path) -> None:
    bytes_max = 5 * 64 * CONTENT
    arguments = [sys.executable, "-c", WRITER, str(tmp_path), str(bytes_max)]
    with closing(DirectoryTier(tmp_path, bytes_max)) as tier:
        writers = [
            subprocess.Popen([*arguments, str(start)], stdout=subprocess.DEVNULL)
            for start in (0, 0, 10**6)
        ]
        try:
            read = 0
            while read < 300:
                for entry in list((tmp_path / "entries").glob("*/*")):
                    number = int(entry.parent.name + entry.name)
                    data = content(tier, number)
                    assert data in (None, b"%064d" % number * CONTENT)
                    read += data is not None
                assert tier.num_bytes() <= bytes_max
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
