"""Audits all that a folder, a file or a pipe has of engines: each scheduler beside its workers and
its caches of processed media."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.streams import Folder, Gap, Part, RecordStream, folder_or_file
from cacheproof.differential.errors import InputError
from cacheproof.differential.recording.messages import Opened

_BEGUN_MAX = 100
_MIX_EVERY = 256
"""Records of a scheduler after which the records of its workers are read as far."""
WRITTEN_SECONDS = 1.0
FRONT_END_ROLES = frozenset({"sender", "receiver", "answers"})


def _is_beside(other: Opened, scheduler: Opened) -> bool:
    """Whether a process is a scheduler's own, one that it started or, of a front end, one that
    started it."""
    if scheduler.process in (other.process, other.parent):
        return True
    return other.role in FRONT_END_ROLES and other.process == scheduler.parent


class Source:
    """A stream and what was taken from it. `begun` has its `Opened`, after the gaps before it;
    other records before that one are of no use."""

    def __init__(self, stream: RecordStream) -> None:
        self.stream = stream
        self.begun: deque[Part] = deque(maxlen=_BEGUN_MAX)
        self._parts: Iterator[Part] | None = None
        self._is_last = False

    def opened(self, *, last: bool) -> Opened | None:
        """The stream's first record, None until it is there."""
        while self.stream.opened is None and (part := self.take(last=last)) is not None:
            if isinstance(part, Gap) or self.stream.opened is not None:
                self.begun.append(part)
        return self.stream.opened

    def parts(self, *, last: bool) -> Iterator[Part]:
        """All parts that are there, for one who takes them all."""
        if self._parts is None:
            self._parts = self.stream.end() if last else self.stream.read()
            self._is_last = last
        yield from self._parts
        self._parts = None
        if last and not self._is_last:
            yield from self.parts(last=True)

    def take(self, *, last: bool = False) -> Part | None:
        """The next part, None where there is none yet."""
        if self._parts is None:
            self._parts = self.stream.end() if last else self.stream.read()
            self._is_last = last
        part = next(self._parts, None)
        if part is None:
            self._parts = None
            if last and not self._is_last:
                return self.take(last=True)
        return part


class MediaSource:
    """What either half of a cache of processed media, or else a front end, has recorded, with its
    time."""

    def __init__(self, role: str, source: Source) -> None:
        self.role = role
        self._source = source
        self._waiting = deque(source.begun)
        self._now = 0.0

    def next_time(self, *, last: bool) -> float:
        """When the next part was recorded; infinite where there is none yet."""
        if not self._waiting:
            part = self._source.take(last=last)
            if part is None:
                return math.inf
            self._waiting.append(part)
        part = self._waiting[0]
        if isinstance(part, Gap):
            return self._now
        if isinstance(part.message, Opened):
            return part.message.started
        return self._now + getattr(part.message, "time", 0) / 1e6

    def take(self) -> tuple[str, Part, float]:
        """The next part, for which `next_time` was asked."""
        self._now = self.next_time(last=False)
        return self.role, self._waiting.popleft(), self._now


def in_order(
    media: Sequence[MediaSource], until: float, *, last: bool
) -> Iterator[tuple[str, Part, float]]:
    """What the caches of processed media recorded up to a time, in its order: whose part, and
    when."""
    while media:
        # A sender comes before who receives at the same time.
        when, _, of = min(
            (one.next_time(last=last), one.role != "sender", at) for at, one in enumerate(media)
        )
        if when == math.inf or when > until:
            return
        yield media[of].take()


class Audit:
    """Reads what is there and judges it; `look` may be called again for what has come since.

    Raises:
        InputError: there is no record, or one in another format.
    """

    def __init__(self, where: str, *, waits: bool = False) -> None:
        self._where = folder_or_file(where, waits=waits)
        self._sources: dict[str, Source] = {}
        self._workers: dict[str, list[tuple[int, Source]]] = {}
        self._media: dict[str, list[MediaSource]] = {}
        self._unpaired: dict[str, Source] = {}
        self.auditors: dict[str, Auditor] = {}

    def look(self, *, last: bool = False, seen: Callable[[], object] = int) -> int:
        """Judge what has come; `last` where nothing more will. Returns how many parts came; `seen`
        is called now and then."""
        if isinstance(self._where, Folder):
            self._where.look()
            streams = self._where.streams
        else:
            streams = {self._where.name: self._where}
        for stem, stream in streams.items():
            if stem not in self._sources:
                self._sources[stem] = self._unpaired[stem] = Source(stream)
        count = self._pair(last=last)
        for stem, auditor in self.auditors.items():
            count += self._advance(stem, auditor, seen, last=last)
        if last and not self.auditors:
            names = ", ".join(source.stream.name for source in self._sources.values())
            raise InputError(
                f"{names}: no record of a scheduler; expected one that an engine has written, "
                "beside those of its workers"
            )
        return count

    @property
    def unbegun(self) -> list[str]:
        """Streams that cannot be judged, since the head of their files is missing."""
        return [one.stream.name for one in self._unpaired.values() if one.stream.opened is None]

    @property
    def without_scheduler(self) -> list[str]:
        """Records beside which there is none of their scheduler."""
        return [one.stream.name for one in self._unpaired.values() if one.stream.opened is not None]

    def parts(self, stem: str) -> Iterator[Part]:
        """All parts of one scheduler's record, from its beginning; for an audit that has not looked
        yet."""
        if isinstance(self._where, Folder):
            return self._where.streams[stem].end()
        return self._where.end()

    def _pair(self, *, last: bool) -> int:
        """Give each stream that has begun its place."""
        count = 0
        for stem, source in list(self._unpaired.items()):
            opened = source.opened(last=last)
            if opened is None:
                continue
            if opened.role == "scheduler":
                auditor = self.auditors[stem] = Auditor()
                self._workers[stem] = []
                self._media[stem] = []
                for part in source.begun:
                    auditor.feed(part)
                    count += 1
                del self._unpaired[stem]
        for stem, source in list(self._unpaired.items()):
            opened = source.stream.opened
            if opened is None:
                continue
            of = self._engine_of(opened)
            if of is None:
                continue
            del self._unpaired[stem]
            if opened.role in FRONT_END_ROLES:
                self._media[of].append(MediaSource(opened.role, source))
                continue
            rank = len(self._workers[of])
            self._workers[of].append((rank, source))
            for part in source.begun:
                self.auditors[of].feed_worker(rank, part)
        return count

    def _engine_of(self, opened: Opened) -> str | None:
        """The engine that a process belongs to, if its record is there. Several front ends are
        started by who starts the engine."""
        engines = {stem: one.opened for stem, one in self.auditors.items() if one.opened}
        own = [stem for stem, engine in engines.items() if _is_beside(opened, engine)]
        if not own and opened.role in FRONT_END_ROLES:
            own = [stem for stem, engine in engines.items() if engine.parent == opened.parent]
        return next(iter(own), None)

    def _advance(
        self, stem: str, auditor: Auditor, seen: Callable[[], object], *, last: bool
    ) -> int:
        count = 0
        for count, part in enumerate(self._sources[stem].parts(last=last), 1):
            auditor.feed(part)
            if count % _MIX_EVERY == 0:
                self._advance_workers(stem, auditor, last=last)
                if not auditor.media.is_shared:
                    self._advance_media(stem, auditor, auditor.now, last=last)
                seen()
        self._advance_workers(stem, auditor, last=last)
        if last:
            self._end_workers(stem, auditor)
        # What happened a second ago has been written.
        until = math.inf if last else time.time() - WRITTEN_SECONDS
        self._advance_media(stem, auditor, until, last=last)
        if last:
            auditor.end_media()
        return count

    def _advance_media(self, stem: str, auditor: Auditor, until: float, *, last: bool) -> None:
        for role, part, now in in_order(self._media[stem], until, last=last):
            auditor.feed_media(role, part, now)

    def _advance_workers(self, stem: str, auditor: Auditor, *, last: bool) -> None:
        for rank, source in self._workers[stem]:
            while auditor.wants_store(rank):
                part = source.take(last=last)
                if part is None:
                    break
                auditor.feed_worker(rank, part)
        auditor.match_stores()

    def _end_workers(self, stem: str, auditor: Auditor) -> None:
        """Read what workers did after the last judged step: they may have raised."""
        for rank, source in self._workers[stem]:
            while (part := source.take(last=True)) is not None:
                auditor.feed_worker(rank, part)
