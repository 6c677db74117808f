"""The reference as a target, in this process."""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.targets import reference_manager, reference_scheduler
from cacheproof.differential.targets.host.explorer import Explorer, ManagerStates
from cacheproof.differential.targets.host.managers.entry_table import (
    Bytes,
    TableSession,
    TableStates,
)
from cacheproof.differential.targets.host.protocol import Illegal, Protocol
from cacheproof.differential.targets.host.scheduler.states import SchedulerStates
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference_manager import MANAGERS, Factory
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.differential.traces.entry_table import TableEvent, TableHeader
from cacheproof.differential.traces.manager import ManagerHeader
from cacheproof.differential.traces.records import (
    Expansion,
    StepRecord,
    TraceResult,
    records_of,
)
from cacheproof.differential.traces.scheduler import SchedulerHeader
from cacheproof.differential.traces.trace import AnyEvent, Header, Trace
from cacheproof.reference.encoder_connector.entry_table import EntryTable
from cacheproof.reference.releases import is_modelled
from cacheproof.reference.semantics import Semantics, unknown
from cacheproof.spec.entry_table import COMPONENT as ENTRY_TABLE


def protocol_of(semantics: Semantics) -> Protocol:
    """How a scheduler of those semantics calls its manager."""
    return Protocol(
        keyed_by_identifier=True,
        counts_embeds=semantics.encoder_cache.counts_embeds,
        skips_sparse=semantics.encoder_cache.counts_embeds,
        refuses_resized=semantics.encoder_cache.refuses_resized,
        claims_duplicates=semantics.encoder_cache.claims_duplicates,
        resets=semantics.encoder_cache.resets,
        releases_on_update=semantics.encoder_cache.releases_on_update,
        frees_stalled=semantics.encoder_cache.frees_stalled,
        holds_for_drafter=semantics.scheduler.releases_confirmed
        and not semantics.scheduler.releases_ahead,
        rolls_back=semantics.scheduler.rolls_back_for_drafter
        and not semantics.scheduler.ends_at_whole_items,
        clamps=semantics.scheduler.encodes_ahead and not semantics.scheduler.reads_ahead_without,
    )


class ReferenceTarget:
    """Runs traces on the reference, under the semantics of a release or the ideal. `managers` make
    its managers by kind, or its table, in the place of the reference's own. `media_hash` is a host
    that hashes media for it, with the libraries of a release; `runner` a host that executes its
    steps, with the libraries of an engine; `connectors` the host of its engines with connectors,
    once there is one; `turned` are the flags that its hosts are to change; `unmodelled` is the last
    trace that was asked about, and what of it is not modelled, if anything."""

    def __init__(
        self,
        semantics: Semantics | None = None,
        protocol: Protocol | None = None,
        *,
        name: str = "reference",
        release: str | None = None,
        managers: dict[str, Factory] | None = None,
        media_hash: HostTarget | None = None,
        runner: HostTarget | None = None,
    ) -> None:
        self.name = name
        self.projects: tuple[str, ...] = ("vllm", "reference")
        self.release = release
        self.reading: Reading | None = None
        self.tree: Path | None = None
        self.mended: tuple[str, ...] = ()
        self.semantics = semantics or Semantics.ideal()
        self._protocol = protocol or protocol_of(self.semantics)
        self.managers = managers or MANAGERS
        self.media_hash = media_hash
        self.runner = runner
        self.connectors: HostTarget | None = None
        self.turned: Mapping[str, bool] = {}
        self.unmodelled: tuple[Trace, str | None] | None = None
        self._read: tuple[Trace, Any] | None = None

    @property
    def model(self) -> str | None:
        return self.release

    @property
    def announcement(self) -> list[str]:
        if self.release is None or is_modelled(self.release):
            return []
        return [f"{self.name}: {unknown(self.release)}"]

    @property
    def protocol(self) -> Protocol:
        return self._protocol

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return [self._result(trace, fault) for trace in traces]

    def runs_depth(self, depth: str) -> bool:
        is_there: bool = part(DEPTHS[depth].reference).is_there(self)
        return is_there

    def hash_media_in(self, hasher: HostTarget) -> None:
        """Let media be hashed in that process, which is closed with this target."""
        self.media_hash = hasher

    def runs(self, trace: Trace) -> bool:
        """Whether the reference can run this trace."""
        runs: bool = part(DEPTHS[trace.depth].reference).runs(self, trace)
        return runs

    def compares(self, trace: Trace) -> bool:
        """Whether a target is to decide on this trace as the reference does."""
        module = part(DEPTHS[trace.depth].reference)
        return self.runs(trace) and getattr(module, "compares", lambda _: True)(trace)

    def records(self, trace: Trace) -> list[StepRecord]:
        """The step records of one trace. Raises Illegal where the semantics do not model what it
        asks for."""
        return self._run(trace, None).records

    def _result(self, trace: Trace, fault: str | None) -> TraceResult:
        try:
            return self._run(trace, fault)
        except Illegal as reason:
            return TraceResult(records_of(reason.records), illegal=str(reason))

    def _run(self, trace: Trace, fault: str | None) -> TraceResult:
        result: TraceResult = part(DEPTHS[trace.depth].reference).run(self, trace, fault)
        return result

    def lines(self, trace: Trace) -> Any:
        """The trace as sessions read it; kept for the last one, since a trace that is asked about
        is often run next."""
        if self._read is None or self._read[0] is not trace:
            self._read = trace, msgspec.to_builtins(trace)
        return self._read[1]

    def explorer(
        self,
        header: Header | TableHeader,
        alphabet: Sequence[AnyEvent | TableEvent],
        fault: str | None,
    ) -> "ReferenceExplorer":
        """An explorer that tries every event of the alphabet in the states of a manager, scheduler
        or table. No fault is planted in a table: a faulty one is given among the `managers`."""
        events = [msgspec.to_builtins(event) for event in alphabet]
        if isinstance(header, TableHeader):
            assert fault is None
            make = self.managers.get(ENTRY_TABLE, EntryTable)
            table = TableSession(
                msgspec.to_builtins(header.config), Bytes(make(header.config.capacity))
            )
            return ReferenceExplorer(Explorer(table, TableStates(table), events))
        if isinstance(header, SchedulerHeader):
            trace = {"header": msgspec.to_builtins(header), "events": events}
            driven = reference_scheduler.session(trace, self.semantics, fault)
            return ReferenceExplorer(
                Explorer(
                    driven, SchedulerStates(driven), events, driven.recorder.manager.cache_size
                )
            )
        assert isinstance(header, ManagerHeader)
        session = reference_manager.session(self, header, fault)
        return ReferenceExplorer(
            Explorer(session, ManagerStates(session), events, session.recorder.manager.cache_size)
        )

    def another(self) -> "ReferenceTarget":
        return self

    def with_flags(self, flags: Mapping[str, bool]) -> "ReferenceTarget":
        """This reference with some flags changed, on the hosts of this one, which closes them."""
        semantics = self.semantics.changed(flags)
        other = ReferenceTarget(
            semantics,
            name=self.name,
            release=self.release,
            media_hash=self.media_hash,
            runner=self.runner,
        )
        other.turned = {**self.turned, **flags}
        return other

    def close(self) -> None:
        """End the hosts of this reference."""
        for host in (self.media_hash, self.runner, self.connectors):
            if host is not None:
                host.close()


class ReferenceExplorer:
    """An explorer in this process, asked as one in a host is."""

    def __init__(self, explorer: Explorer) -> None:
        self.tree = explorer.tree()
        self.source = explorer.source
        self.capacity = explorer.capacity
        self._explorer = explorer
        self._asked: deque[Sequence[int]] = deque()

    def submit(self, states: Sequence[int]) -> None:
        """Ask for what follows these states."""
        self._asked.append(states)

    def collect(self) -> Expansion:
        """What follows the states that were asked for first."""
        return msgspec.convert(self._explorer.expand(self._asked.popleft()), Expansion)

    def leave(self) -> None:
        """Ask for nothing more."""
        self._asked.clear()
