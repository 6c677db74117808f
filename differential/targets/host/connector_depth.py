"""Plays a trace for connectors: engines, each a process, on one store in a folder."""

import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .connector_engine import DEPTH_OF_STORE, Engine, EngineProcess, Kit, files_below
from .protocol import Event, HostError, Illegal
from .session import NoCalls

SHARED_MEMORY = Path("/dev/shm")
MakeKit = Callable[[Event, Event, int, Path, str | None], Kit]
"""Configuration, model, version of the weights, the store's folder, and a fault to plant."""


class Raised(Exception):
    """A connector raised into its engine; the type's name is the original's."""


@dataclass(frozen=True)
class Member:
    """An engine of the trace, with what each step that is planned encodes."""

    process: EngineProcess
    model: int
    weights: int
    planned: deque[list[str]] = field(default_factory=deque)


class ConnectorSession:
    """Runs the events of one trace."""

    def __init__(self, config: Event, make_kit: MakeKit, fault: str | None) -> None:
        self.recorder = NoCalls()
        self._config, self._make_kit, self._fault = config, make_kit, fault
        for item in config["items"]:
            _check(item["identifier"])
        self._scratch = Path(tempfile.mkdtemp(prefix="store-"))
        self._root = self._scratch.joinpath(*"abcd"[:DEPTH_OF_STORE], "store")
        self._root.mkdir(parents=True)
        self._around = set(self._beside())
        self._engines: dict[str, Member] = {}
        self._weights = [1] * len(config["models"])
        self._files: dict[str, list[Path]] = {}
        self._unfinished: list[tuple[str, set[Path], Member]] = []

    def close(self) -> None:
        """End all engines and remove the store."""
        for engine in self._engines.values():
            engine.process.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)
        for region in SHARED_MEMORY.glob(f"*{self._scratch.name}*"):
            region.unlink()  # of an engine that was killed

    def apply(self, event: Event) -> Any:
        """What comes of an event. Raises Raised, as the connector did."""
        outcome = getattr(self, f"_{event['event']}")(event)
        if outcome is None:
            return None
        return {**outcome, "bytes": self._bytes(), "outside": self._outside()}

    def _start(self, event: Event) -> dict[str, Any] | None:
        if event["engine"] in self._engines:
            return None
        number = event["model"]
        if number >= len(self._weights):
            raise Illegal(f"model {number} of {len(self._weights)}")
        model, weights = self._config["models"][number], self._weights[number]

        def make() -> Engine:
            kit = self._make_kit(self._config, model, weights, self._root, self._fault)
            return Engine(self._config, number, weights, self._root, kit)

        engine = Member(EngineProcess(make), number, weights)
        self._engines[event["engine"]] = engine
        self._order(event, "start")
        return {"unfinished": self._left_behind(engine)}

    def _left_behind(self, engine: Member) -> list[str]:
        """Files that a killed engine began, where the item is promised to nobody: how large they
        are, since the names of drafts are drawn at random."""
        left: list[str] = []
        for item, files, dead in self._unfinished:
            there = [f"{path.stat().st_size} bytes" for path in sorted(files) if path.exists()]
            if there and (dead.model, dead.weights) == (engine.model, engine.weights):
                promised = engine.process.ask("ask").get("promised", {})
                left += [] if promised.get(item) else there
        self._unfinished = []
        return left

    def _plan(self, event: Event) -> dict[str, Any] | None:
        self._check_items((*event["items"], *event["refused"]))
        engine = self._engines.get(event["engine"])
        said = self._order(event, "plan", event["items"], event["refused"])
        if engine is not None and said is not None:
            engine.planned.append(said["encodes"])
        return said

    def _execute(self, event: Event) -> dict[str, Any] | None:
        engine = self._engines.get(event["engine"])
        if engine is None or not engine.planned:
            return None
        encodes = engine.planned.popleft()
        before = files_below(self._root)
        may_die = event["dies_at"] is not None
        said = self._tell(event["engine"], "execute", event["dies_at"], may_die=may_die)
        if engine.process.has_died:
            appeared = files_below(self._root) - before
            if len(encodes) == 1:  # of several it is not known which was under way
                self._unfinished.append((encodes[0], appeared, engine))
        elif said is not None:
            for item, files in said.pop("files").items():
                if files:
                    self._files[item] = [self._root / file for file in files]
        return said

    def _forget(self, event: Event) -> dict[str, Any] | None:
        return self._order(event, "forget", event["items"])

    def _new_weights(self, event: Event) -> dict[str, Any] | None:
        number = event["model"]
        if number >= len(self._weights):
            raise Illegal(f"model {number} of {len(self._weights)}")
        engines = [name for name, one in self._engines.items() if one.model == number]
        if any(self._engines[name].planned for name in engines):
            return None
        self._weights[number] += 1
        said = [self._tell(name, "new_weights", self._weights[number]) for name in engines]
        return {"told": all(one is not None and one.get("told") for one in said)}

    def _stop(self, event: Event) -> dict[str, Any] | None:
        engine = self._engines.get(event["engine"])
        if engine is None:
            return None
        if not event["killed"]:
            self._order(event, "stop")
        engine.process.kill()
        self._engines.pop(event["engine"], None)
        return {}

    def _spoil(self, event: Event) -> dict[str, Any] | None:
        other = [path for path in self._files.get(event["other"], ()) if path.is_file()]
        spoiled = [path for path in self._files.get(event["item"], ()) if path.is_file()]
        if not spoiled or (event["how"] == "swapped" and not other):
            return None
        for number, path in enumerate(spoiled):
            data = path.read_bytes()
            match event["how"]:
                case "half":
                    data = data[: len(data) // 2]
                case "garbage":
                    data = bytes(byte ^ 0xA5 for byte in data)
                case "swapped":
                    data = other[number % len(other)].read_bytes()
            path.unlink()  # a pin is another name of the same bytes
            if event["how"] != "removed":
                path.write_bytes(data)
        return {}

    def _reach(self, event: Event) -> dict[str, Any] | None:
        away = self._root.with_name("moved away")
        if event["is_there"] != away.exists():
            return None
        if event["is_there"]:
            shutil.rmtree(self._root, ignore_errors=True)
            away.rename(self._root)
        else:
            self._root.rename(away)
        return {}

    def _ask(self, event: Event) -> dict[str, Any] | None:
        if any(engine.planned for engine in self._engines.values()):
            return None
        said = {name: self._tell(name, "ask") for name in list(self._engines)}
        return {"promised": {name: one["promised"] for name, one in said.items() if one}}

    def _order(self, event: Event, order: str, *arguments: Any) -> dict[str, Any] | None:
        """What the engine of an event says; None where it does not run."""
        return self._tell(event["engine"], order, *arguments)

    def _tell(
        self, name: str, order: str, *arguments: Any, may_die: bool = False
    ) -> dict[str, Any] | None:
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
            raise type(kind, (Raised,), {})(text)
        if engine.process.has_died:
            del self._engines[name]
            if not may_die:
                raise type("EngineDied", (Raised,), {})(f"in {order}")
            return {"died": True}
        return said

    def _check_items(self, names: tuple[str, ...]) -> None:
        known = {item["identifier"] for item in self._config["items"]}
        for name in names:
            if name not in known:
                raise Illegal(f"item {name!r} is not among the configuration's")

    def _bytes(self) -> int | None:
        """Of the files of the store, each counted once."""
        if not self._root.exists():
            return None
        files = [path.lstat() for path in files_below(self._root)]
        return sum({one.st_ino: one.st_size for one in files}.values())

    def _outside(self) -> list[str]:
        """What has come to lie beside the store."""
        return sorted(set(self._beside()) - self._around)

    def _beside(self) -> list[str]:
        mine = {self._root, self._root.with_name("moved away")}
        return [
            _in(self._scratch, path)
            for path in self._scratch.rglob("*")
            if path.is_file() and not mine & {path, *path.parents}
        ]


def _check(identifier: str) -> None:
    """Raises Illegal of an identifier that names a file outside the trace's own folder."""
    parts = Path(identifier).parts
    if identifier.startswith("/") or parts.count("..") > DEPTH_OF_STORE:
        raise Illegal(
            f"identifier {identifier!r} leads out of the trace's folder; expected at most "
            f"{DEPTH_OF_STORE} times .. and no / in front"
        )


def _in(folder: Path, path: Path) -> str:
    return os.path.relpath(path, folder)
