"""Files that users name: regular ones alone are read, and what is written appears whole or not."""

import os
import resource
import stat
from pathlib import Path

import pytest

from cacheproof.differential import files


def refused(path: Path) -> str:
    with pytest.raises(OSError, match=r"^\[Errno \d+\] ") as caught:
        files.read(path, 10)
    return str(caught.value.strerror)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    (link := tmp_path / "link").symlink_to(fifo)
    for path in (fifo, link, tmp_path, Path("/dev/zero"), Path("/dev/full")):
        assert refused(path) == "no regular file"
    assert files.read(Path("/dev/null"), 10) == b""


def test_no_more_is_read_than_may_be(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(b"0123456789")
    assert files.read(path, 10) == b"0123456789"
    path.write_bytes(b"0123456789a")
    assert refused(path) == "larger than 10 bytes"


def test_a_file_is_replaced_as_a_whole_also_behind_a_link(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_text("older")
    (link := tmp_path / "link").symlink_to(path)
    files.write(link, b"newer")
    assert path.read_text() == "newer"
    assert link.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "link"]


def test_who_may_read_it_is_as_the_user_has_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_what_does_not_fit_leaves_the_older_file(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_text("older")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            files.write(path, b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", "no/such/file", "fifo", "folder", "/dev/full", "x" * 300])
def test_what_cannot_be_written_stays_as_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    os.mkdir("folder")
    with pytest.raises(OSError, match=r"^\[Errno \d+\] "):
        files.write(Path(name), b"x")
    assert sorted(os.listdir()) == ["fifo", "folder"]
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
