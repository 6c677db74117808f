"""Plays a trace for connectors: engines, each a process, that share one store."""

import os
import re
import shutil
import tempfile
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ..protocol import Event, HostError, Illegal, Json
from ..session import NoCalls
from .engine import DEPTH_OF_STORE, MakeKit
from .engine_process import Asked, EngineProcess
from .lmcache_server import LMCacheServerStore
from .store import LMCACHE_SERVER, SERVER, FolderStore, ServerStore, Store

SHARED_MEMORY = Path("/dev/shm")


class ConnectorRaised(Exception):
    """A connector raised into its engine; the type has the name of the original."""


@dataclass(frozen=True)
class Member:
    """An engine of the trace, with the items that each of its planned steps encodes."""

    process: EngineProcess
    model: int
    weights: int
    planned: deque[list[str]] = field(default_factory=deque)


class ConnectorSession:
    """Runs the events of one trace for connectors."""

    def __init__(self, config: Event, make_kit: MakeKit, fault: str | None) -> None:
        self.recorder = NoCalls()
        self._config, self._make_kit, self._fault = config, make_kit, fault
        for item in config["items"]:
            _check(item["identifier"])
        server = _server_of(config["store"])
        if server is not None:
            self._config = {**config, "url": server.url}
        self._scratch = Path(tempfile.mkdtemp(prefix="store-"))
        self._root = self._scratch.joinpath(*"abcd"[:DEPTH_OF_STORE], "store")
        self._root.mkdir(parents=True)
        self._around = set(self._beside())
        self._engines: dict[str, Member] = {}
        self._weights = [1] * len(config["models"])
        self._saved: dict[str, list[str]] = {}
        self._unfinished: list[tuple[str, set[str], Member]] = []
        self._store: Store = server or FolderStore(self._root)

    def close(self) -> None:
        """End all engines and remove the store."""
        for engine in self._engines.values():
            engine.process.kill()
        self._store.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        for region in SHARED_MEMORY.glob(f"*{self._scratch.name}*"):
            region.unlink()  # of an engine that was killed

    def apply(self, event: Event) -> Json:
        """The outcome of an event, None for a no-op. Raises ConnectorRaised where the connector
        raised."""
        outcome = getattr(self, f"_{event['event']}")(event)
        if outcome is None:
            return None
        return {**outcome, "bytes": self._bytes(), "outside": self._outside()}

    def _start(self, event: Event) -> Event | None:
        if event["engine"] in self._engines:
            return None
        number = event["model"]
        if number >= len(self._weights):
            raise Illegal(f"model {number} of {len(self._weights)}")
        weights = self._weights[number]
        asked = Asked(self._config, number, weights, self._store, self._root, self._fault)
        engine = Member(EngineProcess(self._make_kit, asked), number, weights)
        self._engines[event["engine"]] = engine
        self._order(event, "start")
        return {"unfinished": self._left_behind(engine)}

    def _left_behind(self, engine: Member) -> list[str]:
        """Sizes of what killed engines began to store of items that nobody is promised; sizes,
        since the names of drafts are drawn at random."""
        left: list[str] = []
        for item, names, dead in self._unfinished:
            data = (self._store.read(name) for name in sorted(names))
            there = [f"{len(one)} bytes" for one in data if one is not None]
            if there and (dead.model, dead.weights) == (engine.model, engine.weights):
                promised = engine.process.ask("ask").get("promised", {})
                left += [] if promised.get(item) else there
        self._unfinished = []
        return left

    def _plan(self, event: Event) -> Event | None:
        self._check_items((*event["items"], *event["refused"], *event["preempted"]))
        engine = self._engines.get(event["engine"])
        said = self._order(event, "plan", requests_of(event), event["refused"], event["preempted"])
        if engine is not None and said is not None:
            engine.planned.append(said["encodes"])
        return said

    def _execute(self, event: Event) -> Event | None:
        engine = self._engines.get(event["engine"])
        if engine is None or not engine.planned:
            return None
        encodes = engine.planned.popleft()
        before = self._store.names()
        may_die = event["dies_at"] is not None
        if may_die and not isinstance(self._store, FolderStore):
            raise Illegal("an engine dies at a byte of a file, and the store has none")
        given = event["dies_at"], event["late"]
        said = self._tell(event["engine"], "execute", *given, may_die=may_die)
        if engine.process.has_died:
            appeared = self._store.names() - before
            if len(encodes) == 1:  # of several it is not known which was under way
                self._unfinished.append((encodes[0], appeared, engine))
        elif said is not None:
            self._saved |= {item: names for item, names in said.pop("files").items() if names}
        return said

    def _abort_planned(self, event: Event) -> Event | None:
        return self._order(event, "abort")

    def _forget(self, event: Event) -> Event | None:
        return self._order(event, "forget", event["items"])

    def _new_weights(self, event: Event) -> Event | None:
        number = event["model"]
        if number >= len(self._weights):
            raise Illegal(f"model {number} of {len(self._weights)}")
        engines = [name for name, one in self._engines.items() if one.model == number]
        if any(self._engines[name].planned for name in engines):
            return None
        self._weights[number] += 1
        weights = self._weights[number]
        return _by_field({name: self._tell(name, "new_weights", weights) for name in engines})

    def _stop(self, event: Event) -> Event | None:
        engine = self._engines.get(event["engine"])
        if engine is None:
            return None
        if not event["killed"]:
            self._order(event, "stop")
        engine.process.kill()
        self._engines.pop(event["engine"], None)
        return {}

    def _spoil(self, event: Event) -> Event | None:
        other = [data for _, data in self._read(event["other"])]
        spoiled = self._read(event["item"])
        if not spoiled or (event["how"] == "swapped" and not other):
            return None
        for number, (name, data) in enumerate(spoiled):
            match event["how"]:
                case "half":
                    self._store.replace(name, data[: len(data) // 2])
                case "garbage":
                    self._store.replace(name, bytes(byte ^ 0xA5 for byte in data))
                case "swapped":
                    self._store.replace(name, other[number % len(other)])
                case "removed":
                    self._store.replace(name, None)
        return {}

    def _read(self, item: str | None) -> list[tuple[str, bytes]]:
        """What was stored when an item was last saved, as far as it is still stored."""
        found = [(name, self._store.read(name)) for name in self._saved.get(item or "", ())]
        return [(name, data) for name, data in found if data is not None]

    def _reach(self, event: Event) -> Event | None:
        if event["is_there"] == self._store.is_there:
            return None
        if event["is_there"]:
            self._store.come_back()
        else:
            self._store.leave(hangs=event["hangs"])
        return {}

    def _ask(self, event: Event) -> Event | None:
        if any(engine.planned for engine in self._engines.values()):
            return None
        return _by_field({name: self._tell(name, "ask") for name in list(self._engines)})

    def _order(self, event: Event, order: str, *arguments: Json) -> Event | None:
        """The answer of an event's engine; None where it does not run."""
        return self._tell(event["engine"], order, *arguments)

    def _tell(self, name: str, order: str, *arguments: Json, may_die: bool = False) -> Event | None:
        engine = self._engines.get(name)
        if engine is None:
            return None
        said = engine.process.ask(order, *arguments)
        if "host" in said:
            raise HostError(said["host"])
        if "illegal" in said:
            raise Illegal(said["illegal"])
        if "raises" in said:
            kind, text = said["raises"]
            text = re.sub(rf"{re.escape(str(self._scratch))}\S*", "a file", text)
            raise type(kind, (ConnectorRaised,), {})(text)
        if engine.process.has_died:
            del self._engines[name]
            if not may_die:
                raise type("EngineDied", (ConnectorRaised,), {})(f"in {order}")
            return {"died": True}
        return said

    def _check_items(self, names: tuple[str, ...]) -> None:
        known = {item["identifier"] for item in self._config["items"]}
        for name in names:
            if name not in known:
                raise Illegal(f"item {name!r} is not among the configuration's")

    def _bytes(self) -> int | None:
        """Bytes of all that is in the store; None where that cannot be seen."""
        return self._store.num_bytes()

    def _outside(self) -> list[str]:
        """Files that have come to lie beside the store."""
        return sorted(set(self._beside()) - self._around)

    def _beside(self) -> list[str]:
        mine = {self._root, self._root.with_name("moved away")}
        return [
            _in(self._scratch, path)
            for path in self._scratch.rglob("*")
            if path.is_file() and not mine & {path, *path.parents}
        ]


def _server_of(store: str) -> ServerStore | LMCacheServerStore | None:
    """The server of a trace; None where its store is a folder, or memory."""
    if store == LMCACHE_SERVER:
        return LMCacheServerStore()
    return ServerStore() if store == SERVER else None


def _by_field(said: dict[str, Event | None]) -> Event:
    """Answers of engines, by field and then by engine."""
    answers = {name: one for name, one in said.items() if one}
    fields = dict.fromkeys(field for one in answers.values() for field in one)
    return {field: {name: one[field] for name, one in answers.items()} for field in fields}


def requests_of(event: Event) -> list[list[str]]:
    """The items of each request of a step."""
    items = event["items"]
    places = [0, *sorted({place for place in event["apart"] if 0 < place < len(items)}), None]
    return [items[first:last] for first, last in pairwise(places)]


def _check(identifier: str) -> None:
    """Raises Illegal for an identifier that names a file outside the trace's own folder."""
    parts = Path(identifier).parts
    if identifier.startswith("/") or parts.count("..") > DEPTH_OF_STORE:
        raise Illegal(
            f"identifier {identifier!r} leads out of the trace's folder; expected at most "
            f"{DEPTH_OF_STORE} times .. and no / in front"
        )


def _in(folder: Path, path: Path) -> str:
    return os.path.relpath(path, folder)
