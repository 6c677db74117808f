"""What a writer keeps, what it loses, and that it says so."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.audit.streams import Gap, Numbered, Part
from cacheproof.differential.recording import writer as writer_module
from cacheproof.differential.recording.messages import Keyframe, Opened, Updated
from cacheproof.differential.recording.writer import SUFFIX, Limits, Writer
from tests.differential.recording.made import OPENED, keyframe, parts_of, updated

LONG = 3600.0


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Limits], Writer]]:
    """Writers that go on at once after a loss."""
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.0)
    made: list[Writer] = []

    def begin(limits: Limits) -> Writer:
        made.append(Writer(tmp_path, "scheduler-1-1", limits))
        return made[-1]

    yield begin
    for writer in made:
        writer.close(LONG)


def go_on(writer: Writer, number: int) -> None:
    """A step of an engine: a new file where one is due, and a record."""
    if writer.wants_file:
        writer.begin(OPENED, keyframe(writer.lost))
    writer.put(updated(number))


def numbers_of(parts: list[Part]) -> list[int]:
    """What the records of steps say, in order; nothing of a file's head."""
    messages = [part.message for part in parts if isinstance(part, Numbered)]
    return [one.free_blocks for one in messages if isinstance(one, Updated)]


def test_what_is_put_is_read_as_it_was(make: Callable[[Limits], Writer], tmp_path: Path) -> None:
    writer = make(Limits())
    for number in range(5000):
        go_on(writer, number)
    writer.close(LONG)
    (file,) = files_of(tmp_path)
    assert numbers_of(parts_of(file)) == list(range(5000))
    assert writer.lost == 0


def test_files_follow_each_other_and_never_exceed_their_share(
    make: Callable[[Limits], Writer], tmp_path: Path
) -> None:
    limits = Limits(file_bytes=2_000, total_bytes=16_000)
    writer = make(limits)
    draw = random.Random(0)
    for number in range(20_000):
        go_on(writer, number + draw.getrandbits(40) * 100_000)
        if number % 50 == 0:
            assert writer.flush(LONG)
            assert sum(file.stat().st_size for file in files_of(tmp_path)) <= limits.total_bytes
    writer.close(LONG)
    files = files_of(tmp_path)
    assert len(files) > 4
    assert not files[0].name.endswith(f"000001{SUFFIX}")
    found = [one % 100_000 for one in numbers_of(parts_of(*files))]
    assert found == list(range(found[0], 20_000))
    assert writer.lost == 0


def test_every_file_is_readable_alone(make: Callable[[Limits], Writer], tmp_path: Path) -> None:
    writer = make(Limits(file_bytes=1_000, total_bytes=1 << 20))
    for number in range(2_000):
        go_on(writer, number)
        if number % 100 == 0:
            assert writer.flush(LONG)
    writer.close(LONG)
    files = files_of(tmp_path)
    assert len(files) > 2
    for file in files:
        first, second, *rest = parts_of(file)
        assert isinstance(first, Numbered)
        assert isinstance(second, Numbered)
        assert first.message == OPENED
        assert isinstance(second.message, Keyframe)
        assert not [part for part in rest if isinstance(part, Gap)]


def test_a_file_that_is_full_is_left_for_one_other_only(
    make: Callable[[Limits], Writer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    writer = make(Limits(file_bytes=500, total_bytes=1 << 30))
    go_on(writer, 0)
    gate.reached.wait()
    for number in range(1, 1000):
        writer.put(updated(number))
    gate.open()
    assert writer.flush(LONG)
    assert writer.wants_file
    gate.shut()
    writer.put(updated(1000))
    gate.reached.wait()
    go_on(writer, 1001)  # begins a file while the last one is still being written
    gate.open()
    assert writer.flush(LONG)
    assert not writer.wants_file


class Gate:
    """Holds a writer's thread before each block until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._opened = threading.Event()
        self.reached = threading.Event()
        write = Writer._write

        def held(writer: Writer, *arguments: Any, **named: Any) -> None:
            self.reached.set()
            self._opened.wait()
            write(writer, *arguments, **named)

        monkeypatch.setattr(Writer, "_write", held)

    def open(self) -> None:
        self._opened.set()

    def shut(self) -> None:
        self.reached.clear()
        self._opened.clear()


def test_a_queue_that_is_full_loses_records_counts_them_and_goes_on_in_a_new_file(
    make: Callable[[Limits], Writer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    writer = make(Limits(waiting_records=100))
    numbers = count()
    go_on(writer, next(numbers))
    gate.reached.wait()
    while not writer.lost:
        writer.put(updated(next(numbers)))
    kept = next(numbers) - 1
    for _ in range(10):
        writer.put(updated(next(numbers)))
    lost = writer.lost
    assert lost == 11
    assert writer.wants_file
    gate.open()
    assert writer.flush(LONG)
    after = next(numbers)
    go_on(writer, after)
    writer.close(LONG)
    parts = parts_of(*files_of(tmp_path))
    assert len(files_of(tmp_path)) == 2
    assert [part for part in parts if isinstance(part, Gap)] == [Gap("11 records are missing")]
    assert numbers_of(parts) == [*range(kept), after]
    told = [part.message for part in parts if isinstance(part, Numbered)]
    assert [one.lost for one in told if isinstance(one, Keyframe)] == [0, 11]


def test_a_record_that_is_too_long_is_lost_alone(
    make: Callable[[Limits], Writer], tmp_path: Path
) -> None:
    writer = make(Limits())
    go_on(writer, 0)
    writer.put(Opened(1, "x" * (5 << 20), "", "", 1, 1, 0.0, True))
    assert writer.flush(LONG)
    assert writer.lost == 1
    go_on(writer, 1)
    writer.close(LONG)
    parts = parts_of(*files_of(tmp_path))
    assert numbers_of(parts) == [0, 1]
    assert [part for part in parts if isinstance(part, Gap)] == [Gap("1 records are missing")]


def test_a_record_that_cannot_be_encoded_is_lost_and_told_to_who_puts_the_next(
    make: Callable[[Limits], Writer], tmp_path: Path
) -> None:
    writer = make(Limits())
    go_on(writer, 0)
    writer.put(updated(object()))  # type: ignore[arg-type]
    assert writer.flush(LONG)
    assert writer.lost == 1
    with pytest.raises(TypeError, match="object"):
        writer.put(updated(1))
    go_on(writer, 2)
    writer.close(LONG)
    parts = parts_of(*files_of(tmp_path))
    assert numbers_of(parts) == [0, 2]
    assert [part for part in parts if isinstance(part, Gap)] == [Gap("1 records are missing")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_thread_that_ended_leaves_is_not_said_to_be_written(
    make: Callable[[Limits], Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = make(Limits())
    go_on(writer, 0)
    assert writer.flush(LONG)

    def ends(*_: Any, **__: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(Writer, "_write", ends)
    assert writer.flush(LONG)
    writer.put(updated(1))
    assert not writer.flush(LONG)


FULL_DISK = """
import resource, sys
from pathlib import Path
from cacheproof.differential.recording import writer as writer_module
from tests.differential.recording.made import OPENED, keyframe, updated
from tests.differential.recording.test_writer import LONG, files_of, go_on
writer_module.RETRY_SECONDS = 0.0
folder = Path(sys.argv[1])
writer = writer_module.Writer(folder, "scheduler-1-1", writer_module.Limits())
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
room = int(sys.argv[2])
number = 0
def step():
    global number
    go_on(writer, number)
    number += 1
    assert writer.flush(LONG)
for _ in range(20):
    step()
resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
for _ in range(200):
    step()
files = len(files_of(folder))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
for _ in range(20):
    step()
writer.close(LONG)
print(writer.lost, files)
"""


@pytest.mark.parametrize("room", [0, 10, 100, 2_500])
def test_a_full_disk_loses_records_and_no_more(tmp_path: Path, room: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(room)],
        capture_output=True,
        text=True,
        check=True,
    )
    lost, files = map(int, ran.stdout.split())
    assert lost > 0
    parts = parts_of(*files_of(tmp_path))
    gaps = [part.why for part in parts if isinstance(part, Gap)]
    missing = [int(why.split()[0]) for why in gaps if why.endswith(" records are missing")]
    assert len(missing) == len(gaps)
    assert sum(missing) == lost
    (*_, last) = (
        part.message.lost
        for part in parts
        if isinstance(part, Numbered) and isinstance(part.message, Keyframe)
    )
    assert last == lost
    found = numbers_of(parts)
    assert found == sorted(set(found))
    assert found[:20] == list(range(20))
    assert found[-1] == 239
    if room < 100:
        assert files == 1  # those that stayed empty are deleted


KILLED = """
import sys
from itertools import count
from pathlib import Path
from cacheproof.differential.recording import writer as writer_module
from tests.differential.recording.test_writer import LONG, go_on
limits = writer_module.Limits(file_bytes=4_000, total_bytes=1 << 30)
writer = writer_module.Writer(Path(sys.argv[1]), "scheduler-1-1", limits)
for number in count():
    go_on(writer, number)
    if number % 40 == 0:
        writer.flush(LONG)
        print(number, flush=True)
"""


@pytest.mark.sample(5)
@pytest.mark.parametrize("moment", range(20))
def test_a_process_that_is_killed_leaves_all_that_it_had_written(
    tmp_path: Path, moment: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        for _ in range(1 + 3 * moment):
            flushed = int(started.stdout.readline())
        started.kill()
    found = parts_of(*files_of(tmp_path))
    torn = [part for part in found if isinstance(part, Gap)]
    assert len(torn) <= 1
    assert not torn or found[-1] == torn[0]
    numbers = numbers_of(found)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > flushed
