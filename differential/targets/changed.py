"""A release in which one function is changed: in a host, or as a tree."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.targets.process import BATCH_SECONDS, HostTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

HOST_MODULE = "host.changed"


class ChangedText(NamedTuple):
    """A module's text in which one function is changed: the module's path from the tree's root, the
    function's qualified name, and the text of the whole module."""

    path: str
    name: str
    text: str


class ChangedEnded(HarnessError):
    """The changed release ended its process; the host goes on without the change."""


class Traced(msgspec.Struct, frozen=True):
    """The result of a trace as the host wrote it, the functions that it called (`path:name`), and
    for each path the lines that no trace before it had reached."""

    id: int
    result: msgspec.Raw
    called: list[str]
    lines: dict[str, list[int]]


class _Answer(msgspec.Struct, frozen=True):
    id: int
    functions: int = 0
    results: list[msgspec.Raw] = []
    ended: int | None = None


_ANSWER = msgspec.json.Decoder(_Answer)
_TRACED = msgspec.json.Decoder(Traced)
_RESULT = msgspec.json.Decoder(TraceResult)


class ChangingHost(HostTarget):
    """A host of a release whose functions can be changed, one at a time."""

    def __init__(self, release: InstalledRelease) -> None:
        command, environment = releases.host_command(release)
        name = f"vllm@{release.version}"
        super().__init__(name, release.version, command, environment, module=HOST_MODULE)
        self._is_changed = False

    def change(self, reading: ChangedText) -> None:
        """Run the changed text from now on.

        Raises:
            HarnessError: the function cannot be changed.
        """
        assert self.hello
        self._send({"do": "change", **reading._asdict()})
        if not self._answer().functions:
            raise self._broken(f"has no function {reading.name} of {reading.path}")
        self._is_changed = True

    def restore(self) -> None:
        """Run the release's own text again. Raises HarnessError when the host broke."""
        if self._is_changed:
            self._is_changed = False
            self._send({"do": "restore"})
            self._answer()

    def written(self, traces: Sequence[Trace]) -> list[bytes]:
        """The results of traces, as the host writes them.

        Raises:
            ChangedEnded: the changed release ended its process, or answered what the driver cannot
                take.
            HarnessError: the host broke.
        """
        self._send({"do": "run", "traces": traces, "manager": None, "fault": None})
        results = self._answer().results
        if len(results) != len(traces):
            raise self._broken(f"sent {len(results)} results for {len(traces)} traces")
        return [bytes(one) for one in results]

    def traced(self, trace: Trace, paths: Sequence[str]) -> Traced:
        """The result of a trace under the release's own text, and what it reached of the modules at
        `paths`.

        Raises HarnessError when the host broke.
        """
        assert self.hello
        self._send({"do": "trace", "trace": trace, "paths": paths})
        traced: Traced = self._decode(_TRACED, self._receive(BATCH_SECONDS))
        return traced

    def _answer(self) -> _Answer:
        line = self._receive(BATCH_SECONDS)
        told = _ANSWER.decode(line)
        if told.ended is not None:
            self._received += 1
            self._is_changed = False
            raise ChangedEnded(f"host of {self.name}: the changed release ended with {told.ended}")
        answer: _Answer = self._decode(_ANSWER, line)
        return answer


def decoded(written: bytes) -> TraceResult:
    """A result that a host wrote."""
    return _RESULT.decode(written)


def write_tree(release: InstalledRelease, reading: ChangedText, folder: Path) -> None:
    """Copy the release's tree with the changed text, for the target `path:FOLDER`.

    Raises:
        OSError: the folder is there already, or cannot be written.
    """
    shutil.copytree(release.tree, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / reading.path).write_text(reading.text)
