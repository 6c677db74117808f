"""Proofs that were made before, by a digest of all that they hang on.

A file holds the rows of one text, or of one piece of work that no target's text enters. It is
found by the digest of the text, of the code that proves and of the libraries that it uses; and
what it says is sealed with a key of this cache, so that rows that were changed, cut short or copied
from elsewhere are seen and proved anew. Whoever can read that key can forge a seal: what is handed
to others is to be proved afresh.

Beside them lie the answers of single questions, each sealed alike: of a text in which one method
was changed they tell what is known of the others.
"""

import contextlib
import hashlib
import hmac
import os
import platform
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import msgspec

from cacheproof.differential.provision.cache import Cache
from cacheproof.spec.evidence import Evidence, Outcome
from cacheproof.work.code_digest import code_digest

PROVERS = ("proofs", "reference", "spec")
"""The parts of the package that prove imports, and whose texts it proves."""
LIBRARIES = (
    "blake3", "cbor2", "crosshair-tool", "msgspec", "numpy", "pillow", "torch", "xxhash",
    "z3-solver",
)  # fmt: skip
SETTLED = (Outcome.HOLDS, Outcome.REFUTED)
ENGINES_MAX = 4
"""Most versions of the prover whose proofs are kept."""
KEY_BYTES = 32
KEY_FILE = "seal.key"
ANSWERS_FILE = "answers.sqlite"
SECONDS_TO_WAIT = 10
"""Seconds to wait for another process that writes an answer."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of evidence as JSON, and the seal of these bytes beside what they are of."""

    rows: str
    seal: str


class KeptProofs:
    """The proofs of this version of the prover.

    Attributes:
        folder: where all versions have theirs.
        say: takes a line about what could not be used.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.say = say
        self._engine = engine()

    @classmethod
    def locate(cls, say: Callable[[str], None]) -> "KeptProofs":
        """The store in the cache folder; nothing is created before the first proof is kept."""
        return cls(Cache.locate().proofs, say)

    def rows(self, digest: str) -> list[Evidence] | None:
        """What was proved of a piece of work with that digest; None where nothing is kept, or what
        is kept is not as it was written."""
        path = self._path(digest)
        try:
            data = path.read_bytes()
            key = (self.folder / KEY_FILE).read_bytes()
        except OSError:
            return None
        try:
            kept = msgspec.json.decode(data, type=_File)
            seal = self._seal(key, digest, kept.rows)
            if not hmac.compare_digest(kept.seal.encode(), seal.encode()):
                raise ValueError("its seal is of other rows")
            return msgspec.json.decode(kept.rows, type=list[Evidence])
        except ValueError as error:
            self.say(f"{path}: not as it was kept ({error}); proved anew")
            return None

    def keep(self, digest: str, rows: Sequence[Evidence]) -> None:
        """Keep what is settled: rows that hold beside a change that breaks them, or are refuted. A
        piece of work of which anything else is said is proved again next time, and what was kept of
        it goes. Where the folder takes no more, that is said, and nothing is kept."""
        if not all(row.outcome in SETTLED for row in rows) or not all(
            row.counts for row in rows if row.outcome is Outcome.HOLDS
        ):
            with contextlib.suppress(OSError):  # where there is none
                self._path(digest).unlink()
            return
        text = msgspec.json.encode(rows).decode()
        path = self._path(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = _File(text, self._seal(self._key(), digest, text))
            _write(path, msgspec.json.encode(file))
            self._forget_old_engines()
        except OSError as refusal:
            self.say(f"{path}: cannot be kept ({refusal.strerror}); it will be proved again")

    def answers(self, *, reads: bool = True) -> "KeptAnswers | None":
        """The answers of single questions; without `reads` they are kept, and none is told. None
        where the folder takes none."""
        try:
            (self.folder / self._engine).mkdir(parents=True, exist_ok=True)
            return KeptAnswers(self.folder / self._engine / ANSWERS_FILE, self._key(), reads=reads)
        except (OSError, sqlite3.Error):
            return None

    def _path(self, digest: str) -> Path:
        return self.folder / self._engine / f"{digest}.json"

    def _seal(self, key: bytes, digest: str, rows: str) -> str:
        message = "\0".join((self._engine, digest, rows)).encode()
        return hmac.new(key, message, hashlib.sha256).hexdigest()

    def _key(self) -> bytes:
        path = self.folder / KEY_FILE
        if not path.exists():
            _write(path, secrets.token_bytes(KEY_BYTES), instead=False)
        return path.read_bytes()

    def _forget_old_engines(self) -> None:
        """Remove those of all but the versions that proved something last."""
        engines = [path for path in self.folder.iterdir() if path.is_dir()]
        engines.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in engines[ENGINES_MAX:]:
            if old.name != self._engine:
                shutil.rmtree(old, ignore_errors=True)


class KeptAnswers:
    """Answers of single questions, by their digests. One that was changed is none, and neither is
    one that cannot be read now; one that cannot be kept is asked for again next time.

    Raises:
        sqlite3.Error: the file is none of answers.
    """

    def __init__(self, path: Path, key: bytes, *, reads: bool = True) -> None:
        self._path = path
        self._key = key
        self._reads = reads
        self._of_process: dict[int, sqlite3.Connection] = {}
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS answers"
            " (digest TEXT PRIMARY KEY, seal BLOB, answer BLOB) WITHOUT ROWID"
        )

    @property
    def _file(self) -> sqlite3.Connection:
        """The file, which a fork has to open for itself."""
        process = os.getpid()
        if process not in self._of_process:
            file = sqlite3.connect(self._path, timeout=SECONDS_TO_WAIT, isolation_level=None)
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            self._of_process[process] = file
        return self._of_process[process]

    def read(self, digest: str) -> bytes | None:
        if not self._reads:
            return None
        try:
            found = self._file.execute(
                "SELECT seal, answer FROM answers WHERE digest = ?", (digest,)
            ).fetchone()
        except sqlite3.Error:
            return None
        match found:
            case (bytes() as seal, bytes() as answer) if hmac.compare_digest(
                seal, self._seal(digest, answer)
            ):
                return answer
        return None

    def write(self, digest: str, answer: bytes) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._file.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)",
                (digest, self._seal(digest, answer), answer),
            )

    def _seal(self, digest: str, answer: bytes) -> bytes:
        return hmac.digest(self._key, digest.encode() + answer, "sha256")


def _write(path: Path, data: bytes, *, instead: bool = True) -> None:
    """Write a file as a whole, or not at all; without `instead`, only where there is none."""
    number, name = tempfile.mkstemp(dir=path.parent)  # for its owner's eyes alone
    try:
        with open(number, "wb") as file:
            file.write(data)
        if instead:
            os.replace(name, path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def digest_of(*parts: str) -> str:
    """The digest of a piece of work: 64 hex digits that change with any part."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


@cache
def engine() -> str:
    """The digest of what proves: the code and texts of this package, Python and the libraries."""
    versions = [f"{name} {_version(name)}" for name in LIBRARIES]
    return digest_of(code_digest(PROVERS), platform.python_version(), *versions)[:32]


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "missing"
