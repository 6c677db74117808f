"""The reference managers as a target, in this process."""

from collections import deque
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from cacheproof.differential.targets import reference_kv_cache as kv_cache
from cacheproof.differential.targets import reference_scheduler as scheduler
from cacheproof.differential.targets.host.block_hash import BlockHashSession
from cacheproof.differential.targets.host.explorer import Explorer, ManagerStates
from cacheproof.differential.targets.host.faults import FAULTS
from cacheproof.differential.targets.host.manager_depth import ManagerSession
from cacheproof.differential.targets.host.media_hash_alone import of_reference
from cacheproof.differential.targets.host.protocol import HASH_SEED, Illegal, Protocol
from cacheproof.differential.targets.host.scheduler_states import SchedulerStates
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.targets.known_texts import Reading
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.block_hash import BlockHashConfig
from cacheproof.differential.traces.manager import ManagerHeader
from cacheproof.differential.traces.media_hash import MediaHashConfig
from cacheproof.differential.traces.records import ExplorerStep, FullState, StepRecord, TraceResult
from cacheproof.differential.traces.scheduler import SchedulerConfig, SchedulerHeader
from cacheproof.differential.traces.trace import AnyEvent, Header, Trace
from cacheproof.reference.block_hash import continue_request, get_request_block_hasher
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.releases import is_modelled
from cacheproof.reference.request import (
    LoRARequest,
    MultiModalFeature,
    PlaceholderRange,
    PromptEmbeds,
    TokenRequest,
)
from cacheproof.reference.semantics import Semantics, unknown
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics

Factory = Callable[[int, EncoderCacheSemantics], Any]
MEDIA_LIBRARIES = ("blake3", "numpy", "PIL")
MANAGERS: dict[str, Factory] = {
    "encoder_cache": EncoderCacheManager,
    "encoder_decoder": EncoderDecoderCacheManager,
}


def missing_media_libraries() -> list[str]:
    """Libraries of arrays, images and digests that this interpreter does without."""
    return [name for name in MEDIA_LIBRARIES if find_spec(name) is None]


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
    )


class ReferenceTarget:
    """Runs traces on the reference, under the semantics of a release or the ideal. `media_hash` is
    a host that hashes media for it, with the libraries of a release; `runner` one that has the
    reference's steps executed, with those of an engine."""

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
        self.release = release
        self.reading: Reading | None = None
        self.semantics = semantics or Semantics.ideal()
        self._protocol = protocol or protocol_of(self.semantics)
        self._managers = managers or MANAGERS
        self._media_hash = media_hash
        self._runner = runner
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
        if depth == "engine":
            return self._runner is not None
        return (
            depth != "media_hash" or self._media_hash is not None or not missing_media_libraries()
        )

    def hash_media_in(self, hasher: HostTarget) -> None:
        """Hash media in that process, which is closed with this target."""
        self._media_hash = hasher

    def runs(self, trace: Trace) -> bool:
        """Whether the reference can run this trace."""
        config = trace.header.config
        if trace.depth == "kv_cache":
            return kv_cache.models(msgspec.to_builtins(config), self.semantics)
        if isinstance(config, MediaHashConfig) and config.algorithm != "blake3":
            return self.runs_depth(trace.depth) and self.semantics.media.chooses_media_digest
        if trace.has_scheduler and not self.runs_depth(trace.depth):
            return False
        if isinstance(config, SchedulerConfig):
            return scheduler.models(self._lines(trace), self.semantics)
        return self.runs_depth(trace.depth)

    def records(self, trace: Trace) -> list[StepRecord]:
        """The step records of one trace. Raises Illegal where those semantics do not know what it
        asks for."""
        return self._run(trace, None).records

    def _result(self, trace: Trace, fault: str | None) -> TraceResult:
        try:
            return self._run(trace, fault)
        except Illegal as reason:
            return TraceResult(_with_states(reason.records), illegal=str(reason))

    def _run(self, trace: Trace, fault: str | None) -> TraceResult:
        if trace.depth == "engine":
            assert self._runner is not None
            return self._runner.run([trace], fault)[0]
        if trace.depth != "scheduler":
            return TraceResult(self._records(trace, fault))
        lines = self._lines(trace)
        session = scheduler.session(lines, self.semantics, fault)
        records = run_events(session, lines["events"])
        return TraceResult(_with_states(records), capacity=session.recorder.manager.cache_size)

    def _lines(self, trace: Trace) -> Any:
        """The trace in lines, as sessions read it; asked whether it runs one, it often runs it."""
        if self._read is None or self._read[0] is not trace:
            self._read = trace, msgspec.to_builtins(trace)
        return self._read[1]

    def _records(self, trace: Trace, fault: str | None) -> list[StepRecord]:
        events = [msgspec.to_builtins(event) for event in trace.events]
        if isinstance(trace.header.config, BlockHashConfig):
            config = trace.header.config
            return run_events(_block_hash_session(config, self.semantics.block_keys, fault), events)
        if isinstance(trace.header.config, MediaHashConfig):
            if self._media_hash is not None:
                return self._media_hash.run([trace], fault)[0].records
            algorithm = trace.header.config.algorithm
            return run_events(of_reference(self.semantics.media, algorithm, fault), events)
        if trace.depth == "kv_cache":
            return kv_cache.run(
                msgspec.to_builtins(trace.header.config), events, self.semantics, fault
            )
        assert isinstance(trace.header, ManagerHeader)
        return _with_states(run_events(self._manager_session(trace.header, fault), events))

    def _manager_session(self, header: ManagerHeader, fault: str | None) -> ManagerSession:
        manager = self._managers[header.manager](
            header.config.capacity, self.semantics.encoder_cache
        )
        if fault is not None:
            FAULTS[fault](manager)
        return ManagerSession(
            msgspec.to_builtins(header),
            manager,
            self._protocol,
            shows_sizes=self.semantics.encoder_cache.remembers_sizes,
        )

    def explorer(
        self, header: Header, alphabet: Sequence[AnyEvent], fault: str | None
    ) -> "ReferenceExplorer":
        """What tries every event of the alphabet in the states of one manager, or scheduler."""
        events = [msgspec.to_builtins(event) for event in alphabet]
        if isinstance(header, SchedulerHeader):
            trace = {"header": msgspec.to_builtins(header), "events": events}
            driven = scheduler.session(trace, self.semantics, fault)
            return ReferenceExplorer(Explorer(driven, SchedulerStates(driven), events))
        assert isinstance(header, ManagerHeader)
        session = self._manager_session(header, fault)
        return ReferenceExplorer(Explorer(session, ManagerStates(session), events))

    def another(self) -> "ReferenceTarget":
        return self

    def close(self) -> None:
        """End the hosts that it has."""
        for host in (self._media_hash, self._runner):
            if host is not None:
                host.close()


class ReferenceExplorer:
    """An explorer in this process, asked as one in a host is."""

    def __init__(self, explorer: Explorer) -> None:
        self.tree = explorer.tree()
        self.source = explorer.source
        self._explorer = explorer
        self._asked: deque[Sequence[int]] = deque()

    def submit(self, states: Sequence[int]) -> None:
        """Ask for the steps from these states."""
        self._asked.append(states)

    def collect(self) -> list[list[ExplorerStep | None]]:
        """The steps that were asked for first."""
        expanded = self._explorer.expand(self._asked.popleft())
        return msgspec.convert(expanded, list[list[ExplorerStep | None]])


def _with_states(records: list[tuple[Any, ...]]) -> list[StepRecord]:
    """The records with their full states as targets report them."""
    return [
        record if record[3] is None else (*record[:3], msgspec.convert(record[3], FullState))
        for record in records
    ]


def _block_hash_session(
    config: BlockHashConfig, semantics: BlockKeySemantics, fault: str | None
) -> BlockHashSession:
    if config.lookahead and not semantics.looks_ahead:
        raise Illegal("block hashes of this release do not look ahead")
    try:
        function = hash_function(semantics, config.algorithm)
    except ValueError as error:
        raise Illegal(str(error)) from error
    hasher = get_request_block_hasher(
        config.block_size, function, config.lookahead, semantics=semantics, seed=HASH_SEED
    )

    def go_on(request: TokenRequest, chunk: TokenRequest) -> None:
        if not semantics.continues_requests:
            raise Illegal("this release does not continue requests")
        kept = request.num_tokens - 1
        continue_request(request, chunk, config.block_size, kept=kept, semantics=semantics)

    def make(event: dict[str, Any], block_hasher: Any) -> TokenRequest:
        features = [
            MultiModalFeature(
                item["identifier"], PlaceholderRange(item["offset"], item["length"]), ""
            )
            for item in event["items"]
        ]
        embeds, tokens = _prompt_embeds(event["embeds"]), event["tokens"]
        if embeds is not None:
            tokens = embeds.token_ids(tokens, zeroes_mixed=semantics.zeroes_embed_positions)
        return TokenRequest(
            event["request"],
            tokens,
            features,
            event["lora"] and LoRARequest(**event["lora"]),
            event["salt"],
            embeds,
            block_hasher,
        )

    return BlockHashSession(make, go_on, hasher, config.block_size, fault)


def _prompt_embeds(rows: list[str | None] | None) -> PromptEmbeds | None:
    if rows is None:
        return None
    width = max(len(row) for row in rows if row is not None) // 2
    tensor = tuple(bytes(width) if row is None else bytes.fromhex(row) for row in rows)
    return PromptEmbeds(tensor, tuple(row is not None for row in rows))
