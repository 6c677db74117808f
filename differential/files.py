"""Files that users name: read with a limit, written whole or not at all."""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def read(path: Path, bytes_max: int) -> bytes:
    """What is in a regular file, or in /dev/null; a pipe would have its reader wait for a writer.

    Raises:
        OSError: it cannot be read, is another kind of file, or is larger; `strerror` says which.
    """
    if str(path) != os.devnull:
        require_regular(path)
    with path.open("rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        size = f"{bytes_max >> 20} MiB" if bytes_max >> 20 else f"{bytes_max} bytes"
        raise OSError(errno.EFBIG, f"larger than {size}", str(path))
    return data


def write(path: Path, data: bytes) -> None:
    """Put a file in the place of what is there. It appears whole, or the older one stays.

    Raises:
        OSError: it cannot be written.
    """
    require_writable(path)
    path = path.resolve()
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        with draft.open("xb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file, waiting for whoever has it. It is that of a hidden file beside it,
    which stays: removing it would take from others the lock that they wait for.

    Raises:
        OSError: the hidden file cannot be written.
    """
    place = path.resolve()
    with place.with_name(f".{place.name}.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def require_writable(path: Path) -> None:
    """See whether `write` can begin.

    Raises:
        OSError: there is no folder for it, or something else than a regular file has its name.
    """
    if not path.name:
        raise OSError(errno.ENOENT, "no name of a file", str(path))
    with suppress(FileNotFoundError):
        require_regular(path)
    folder = path.resolve().parent
    if not folder.is_dir():
        raise OSError(errno.ENOENT, "no such folder", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, "its folder cannot be written", str(folder))


def require_regular(path: Path) -> None:
    """See whether it is a regular file. Raises OSError with a `strerror` where it is none."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))
