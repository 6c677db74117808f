"""The reference's caches of processed media, at the depth of front ends."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from cacheproof.differential.targets.host.faults.front_end import FRONT_END_FAULTS
from cacheproof.differential.targets.host.managers.front_end import FrontEndSession, check
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.targets.host.vllm_objects.media_caches import (
    Asked,
    Caches,
    Lacking,
    Message,
    NeverEnds,
    ProcessorError,
)
from cacheproof.differential.traces.front_end import FrontEndConfig
from cacheproof.differential.traces.records import TraceResult, records_of
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.processor_cache import (
    CacheMiss,
    EvictsForEver,
    Processed,
    ProcessorOnly,
    Receiver,
    Sender,
)
from cacheproof.reference.semantics.front_end import FrontEndSemantics
from cacheproof.reference.shared_media import Moved, SentShared, SharedMedia

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference can run any trace of this depth."""
    return True


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference can run the trace."""
    return True


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The reference's records."""
    config = trace.header.config
    assert isinstance(config, FrontEndConfig)
    plain = msgspec.to_builtins(config)
    check(plain)
    caches = CACHES[config.store](config, target.semantics.front_end)
    FRONT_END_FAULTS[fault or "nothing"](caches)
    session = FrontEndSession(plain, caches)
    events = [msgspec.to_builtins(one) for one in trace.events]
    return TraceResult(records_of(run_events(session, events)))


class ReferenceCaches:
    """A sender and a receiver of the reference."""

    def __init__(self, config: FrontEndConfig, semantics: FrontEndSemantics) -> None:
        self._sender = Sender(config.capacity, semantics)
        self._receiver = Receiver(config.capacity, semantics)

    def process(self, asked: Asked) -> tuple[Any, list[str | None]]:
        send = self._sender.send_unlooked if asked.skips_cache else self._sender.send
        with _told():
            sent = send(asked.names, _processor(asked), asked.modalities)
        return sent, [None if one is None else one.content for _, one in sent.items]

    def withdraw(self, message: Message) -> None:
        """Nothing can be taken back: who misses an item has it processed again."""

    def receive(self, message: Message, worker: int) -> list[str]:
        again = _processor(message.asked)
        try:
            with _told():
                found = self._receiver.receive(message.payload, again)
        except CacheMiss as error:
            if self._receiver.semantics.reports_misses:
                raise Lacking(error.names) from error
            raise KeyError from error
        return [item.content for item in found]

    def close(self) -> None:
        """It is this process's alone."""

    def forget(self, names: Sequence[str]) -> None:
        self._sender.forget(names)

    def reset(self, half: str, server: int) -> None:
        with _told():
            if half != "receiver":
                self._sender.clear()
            if half != "sender":
                self._receiver.clear()

    def state(self) -> list[tuple[list[str], int]]:
        return [(list(one.cache), one.cache.size) for one in (self._sender, self._receiver)]


class ReferenceProcessorOnlyCaches:
    """The reference's caches of API servers, which have no counterpart."""

    def __init__(self, config: FrontEndConfig, semantics: FrontEndSemantics) -> None:
        self._cache = ProcessorOnly(config.capacity, semantics, config.servers)

    def process(self, asked: Asked) -> tuple[Any, list[str | None]]:
        process = _processor(asked)
        if asked.skips_cache:
            told = [process(at).content for at in range(len(asked.names))]
            return told, list(told)
        with _told():
            sent = self._cache.send(asked.names, process, asked.modalities, asked.server)
        told = [item.content for _, item in sent.items if item is not None]
        return told, list(told)

    def withdraw(self, message: Message) -> None:
        """What is kept stays."""

    def receive(self, message: Message, worker: int) -> list[str]:
        return list(message.payload)

    def close(self) -> None:
        """It is this process's alone."""

    def forget(self, names: Sequence[str]) -> None:
        """Nothing is lacking."""

    def reset(self, half: str, server: int) -> None:
        with _told():
            if half != "receiver":
                self._cache.clear(server)

    def state(self) -> list[tuple[list[str], int]]:
        first, *others = [(list(one), one.size) for one in self._cache.caches]
        return [first, ([], 0), *others]


class ReferenceSharedCaches:
    """The reference's store in shared memory, and its workers."""

    def __init__(self, config: FrontEndConfig, semantics: FrontEndSemantics) -> None:
        self._store = SharedMedia(config.capacity, config.largest, config.workers, semantics)

    def process(self, asked: Asked) -> tuple[Any, list[str | None]]:
        process = _processor(asked)
        if asked.skips_cache:
            sent = [SentShared(name, None, process(at)) for at, name in enumerate(asked.names)]
        else:
            sent = self._store.send(asked.names, process, asked.modalities, asked.samples)
        return sent, [None if item is None else item.content for _, _, item in sent]

    def withdraw(self, message: Message) -> None:
        self._store.withdraw(message.payload, message.asked.samples)

    def receive(self, message: Message, worker: int) -> list[str]:
        try:
            return self._store.receive(message.payload)
        except Moved as error:
            raise KeyError from error

    def close(self) -> None:
        """It is this process's alone."""

    def forget(self, names: Sequence[str]) -> None:
        """No worker says that it lacks an item."""

    def reset(self, half: str, server: int) -> None:
        if half != "receiver":
            self._store.clear()

    def state(self) -> list[tuple[list[str], int]]:
        chunks = [f"{name} {read} of {due}" for name, read, due in self._store.chunks()]
        ring = self._store.ring
        return [(self._store.names(), ring.end - ring.start), (chunks, 0)]


CACHES: dict[str, Callable[[FrontEndConfig, FrontEndSemantics], Caches]] = {
    "lru": ReferenceCaches,
    "shm": ReferenceSharedCaches,
    "processor": ReferenceProcessorOnlyCaches,
}


def _processor(asked: Asked) -> Callable[[int], Processed]:
    """Processes the item of a number. Raises ProcessorError where that of the request does, as it
    may be called for whether or not there is anything to process."""
    if asked.fails:
        raise ProcessorError
    processed = [Processed(*content) for content in asked.contents]
    return processed.__getitem__


@contextmanager
def _told() -> Iterator[None]:
    """Tell a session in its own words that a half would never end."""
    try:
        yield
    except EvictsForEver as error:
        raise NeverEnds from error
