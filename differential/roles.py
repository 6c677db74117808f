"""What the modules of a depth do that others call, a role each, and that they do it.

`depths` names modules by strings, so that no room imports one above it, and mypy sees no further
than that. Here it is shown every module in its role, beside the others of its depth: a judge of
another depth's events is an error. Nothing but a test imports this file.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.shrinking import block_hash as block_hash_edits
from cacheproof.differential.findings.shrinking import encoder_connector as encoder_connector_edits
from cacheproof.differential.findings.shrinking import kv_cache as kv_cache_edits
from cacheproof.differential.findings.shrinking import media_hash as media_hash_edits
from cacheproof.differential.findings.standalone import block_hash as block_hash_test
from cacheproof.differential.findings.standalone import encoder_connector as encoder_connector_test
from cacheproof.differential.findings.standalone import engine as engine_test
from cacheproof.differential.findings.standalone import front_end as front_end_test
from cacheproof.differential.findings.standalone import kv_cache as kv_cache_test
from cacheproof.differential.findings.standalone import manager as manager_test
from cacheproof.differential.findings.standalone import media_hash as media_hash_test
from cacheproof.differential.findings.standalone import media_identifier as media_identifier_test
from cacheproof.differential.findings.standalone import scheduler as scheduler_test
from cacheproof.differential.findings.views import block_hash as block_hash_view
from cacheproof.differential.findings.views import encoder_connector as encoder_connector_view
from cacheproof.differential.findings.views import front_end as front_end_view
from cacheproof.differential.findings.views import kv_cache as kv_cache_view
from cacheproof.differential.findings.views import ledger as ledger_view
from cacheproof.differential.findings.views import media_hash as media_hash_view
from cacheproof.differential.findings.views import media_identifier as media_identifier_view
from cacheproof.differential.findings.views import scheduler as scheduler_view
from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges import block_hash as block_hash_judge
from cacheproof.differential.judges import encoder_connector as encoder_connector_judge
from cacheproof.differential.judges import engine as engine_judge
from cacheproof.differential.judges import front_end as front_end_judge
from cacheproof.differential.judges import kv_cache as kv_cache_judge
from cacheproof.differential.judges import manager as manager_judge
from cacheproof.differential.judges import media_hash as media_hash_judge
from cacheproof.differential.judges import media_identifier as media_identifier_judge
from cacheproof.differential.judges import scheduler as scheduler_judge
from cacheproof.differential.judges.judge import Judge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes import block_hash as block_hash_lanes
from cacheproof.differential.lanes import encoder_cache as encoder_cache_lanes
from cacheproof.differential.lanes import encoder_connector as encoder_connector_lanes
from cacheproof.differential.lanes import encoder_decoder as encoder_decoder_lanes
from cacheproof.differential.lanes import engine as engine_lanes
from cacheproof.differential.lanes import front_end as front_end_lanes
from cacheproof.differential.lanes import kv_cache as kv_cache_lanes
from cacheproof.differential.lanes import media_hash as media_hash_lanes
from cacheproof.differential.lanes import media_identifier as media_identifier_lanes
from cacheproof.differential.lanes import scheduler as scheduler_lanes
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.targets import (
    reference_block_hash,
    reference_encoder_connector,
    reference_engine,
    reference_front_end,
    reference_kv_cache,
    reference_manager,
    reference_media_hash,
    reference_media_identifier,
    reference_scheduler,
)
from cacheproof.differential.targets.host.protocol import Protocol as HostProtocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces import block_hash as block_hash_traces
from cacheproof.differential.traces import encoder_connector as encoder_connector_traces
from cacheproof.differential.traces import engine as engine_traces
from cacheproof.differential.traces import front_end as front_end_traces
from cacheproof.differential.traces import kv_cache as kv_cache_traces
from cacheproof.differential.traces import manager as manager_traces
from cacheproof.differential.traces import media_hash as media_hash_traces
from cacheproof.differential.traces import media_identifier as media_identifier_traces
from cacheproof.differential.traces import scheduler as scheduler_traces
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

EventT = TypeVar("EventT")
EventT_co = TypeVar("EventT_co", covariant=True)
EventT_contra = TypeVar("EventT_contra", contravariant=True)


class TracesModule(Protocol[EventT_co]):
    """The events of a depth."""

    @property
    def EVENTS(self) -> tuple[type[EventT_co], ...]: ...  # noqa: N802


class LanesModule(Protocol):
    """Workloads that are searched."""

    @property
    def LANES(self) -> Sequence[Lane]: ...  # noqa: N802


class ReferenceModule(Protocol):
    """The reference's side: whether it has that depth, whether it can run a trace, and its run."""

    def is_there(self, target: ReferenceTarget) -> bool: ...

    def runs(self, target: ReferenceTarget, trace: Trace) -> bool: ...

    def run(self, target: ReferenceTarget, trace: Trace, fault: str | None) -> TraceResult: ...


class JudgeModule(Protocol[EventT_contra]):
    """Makes what judges the records of one trace."""

    def judge_of(
        self, trace: Trace, release: str | None, protocol: HostProtocol, reach: Reachability
    ) -> Judge[EventT_contra]: ...


class ViewModule(Protocol):
    """What a finding's screen shows."""

    @property
    def VIEW(self) -> View: ...  # noqa: N802


class StandaloneModule(Protocol):
    """A pytest file of a finding, or None and why there is none."""

    def standalone_test(self, finding: Finding) -> tuple[str | None, str]: ...


class EditsModule(Protocol):
    """What makes traces simpler beyond what is done to any."""

    @property
    def EDITS(self) -> Sequence[Callable[[Trace], Iterable[Trace | None]]]: ...  # noqa: N802


@dataclass(frozen=True)
class DepthModules(Generic[EventT]):
    """The modules of one depth, by their roles in a `Depth`."""

    traces: TracesModule[EventT]
    lanes: tuple[LanesModule, ...]
    reference: ReferenceModule
    judge: JudgeModule[EventT]
    view: ViewModule
    standalone: StandaloneModule
    edits: EditsModule | None = None


MODULES: dict[str, DepthModules[Any]] = {
    "manager": DepthModules[manager_traces.ManagerEvent](
        manager_traces,
        (encoder_cache_lanes, encoder_decoder_lanes),
        reference_manager,
        manager_judge,
        ledger_view,
        manager_test,
    ),
    "scheduler": DepthModules[scheduler_traces.SchedulerEvent](
        scheduler_traces,
        (scheduler_lanes,),
        reference_scheduler,
        scheduler_judge,
        scheduler_view,
        scheduler_test,
    ),
    "engine": DepthModules[engine_traces.EngineEvent](
        engine_traces,
        (engine_lanes,),
        reference_engine,
        engine_judge,
        scheduler_view,
        engine_test,
    ),
    "block_hash": DepthModules[block_hash_traces.BlockHashEvent](
        block_hash_traces,
        (block_hash_lanes,),
        reference_block_hash,
        block_hash_judge,
        block_hash_view,
        block_hash_test,
        block_hash_edits,
    ),
    "media_hash": DepthModules[media_hash_traces.MediaHashEvent](
        media_hash_traces,
        (media_hash_lanes,),
        reference_media_hash,
        media_hash_judge,
        media_hash_view,
        media_hash_test,
        media_hash_edits,
    ),
    "kv_cache": DepthModules[kv_cache_traces.KVCacheEvent](
        kv_cache_traces,
        (kv_cache_lanes,),
        reference_kv_cache,
        kv_cache_judge,
        kv_cache_view,
        kv_cache_test,
        kv_cache_edits,
    ),
    "media_identifier": DepthModules[media_identifier_traces.MediaIdentifierEvent](
        media_identifier_traces,
        (media_identifier_lanes,),
        reference_media_identifier,
        media_identifier_judge,
        media_identifier_view,
        media_identifier_test,
    ),
    "front_end": DepthModules[front_end_traces.FrontEndEvent](
        front_end_traces,
        (front_end_lanes,),
        reference_front_end,
        front_end_judge,
        front_end_view,
        front_end_test,
    ),
    "encoder_connector": DepthModules[encoder_connector_traces.EncoderConnectorEvent](
        encoder_connector_traces,
        (encoder_connector_lanes,),
        reference_encoder_connector,
        encoder_connector_judge,
        encoder_connector_view,
        encoder_connector_test,
        encoder_connector_edits,
    ),
}
