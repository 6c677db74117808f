"""The depths at which a target is driven: one record each, of the modules that speak of it.

A further depth is its own modules and one line here; whatever treats all depths alike looks its
record up. Modules are named by their place in `differential/`, and imported when they are asked
for: a record names rooms above and below those who read it.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

PACKAGE = "cacheproof.differential"


@dataclass(frozen=True, eq=False)
class Depth:
    """What there is of one depth.

    Attributes:
        traces: HEADER, the type of its traces' first line, and EVENTS, those of the others.
        lanes: LANES, the workloads that are searched.
        reference: `run(target, trace, fault)`, which gives the reference's TraceResult, and
            `runs(target, trace)`, whether it can; with None whether it can run any.
        judge: `judge_of(trace, release, protocol, reach)`, which judges records in turn.
        view: VIEW, what a finding's screen shows of it.
        standalone: `standalone_test(finding)`, a pytest file or None, and why there is none.
        edits: EDITS, what makes such traces simpler beyond what is done to any; None: nothing.
        has_scheduler: a scheduler takes the decisions.
        has_ledger: the last record of a trace has the full state of a manager.
        is_executed: steps are executed, by an engine.
    """

    traces: Any
    lanes: tuple[Any, ...]
    reference: Any
    judge: Any
    view: Any
    standalone: Any
    edits: Any = None
    has_scheduler: bool = False
    has_ledger: bool = False
    is_executed: bool = False

    @cached_property
    def header(self) -> type:
        """The type of its traces' first line."""
        header: type = part(self.traces).HEADER
        return header

    @cached_property
    def events(self) -> tuple[type, ...]:
        """The types of its events."""
        events: tuple[type, ...] = part(self.traces).EVENTS
        return events


def part(module: Any) -> Any:
    """The module of that name; what is none by name stands for itself."""
    return import_module(f"{PACKAGE}.{module}") if isinstance(module, str) else module


DEPTHS = {
    "manager": Depth(
        traces="traces.manager",
        lanes=("lanes.encoder_cache", "lanes.encoder_decoder"),
        reference="targets.reference_manager",
        judge="judges.manager",
        view="findings.views.ledger",
        standalone="findings.standalone.manager",
        has_ledger=True,
    ),
    "scheduler": Depth(
        traces="traces.scheduler",
        lanes=("lanes.scheduler",),
        reference="targets.reference_scheduler",
        judge="judges.scheduler",
        view="findings.views.ledger",
        standalone="findings.standalone.scheduler",
        edits="shrinking.scheduler",
        has_scheduler=True,
        has_ledger=True,
    ),
    "engine": Depth(
        traces="traces.engine",
        lanes=("lanes.engine",),
        reference="targets.reference_engine",
        judge="judges.engine",
        view="findings.views.ledger",
        standalone="findings.standalone.engine",
        edits="shrinking.scheduler",
        has_scheduler=True,
        has_ledger=True,
        is_executed=True,
    ),
    "block_hash": Depth(
        traces="traces.block_hash",
        lanes=("lanes.block_hash",),
        reference="targets.reference_block_hash",
        judge="judges.block_hash",
        view="findings.views.block_hash",
        standalone="findings.standalone.block_hash",
        edits="shrinking.block_hash",
    ),
    "media_hash": Depth(
        traces="traces.media_hash",
        lanes=("lanes.media_hash",),
        reference="targets.reference_media_hash",
        judge="judges.media_hash",
        view="findings.views.media_hash",
        standalone="findings.standalone.media_hash",
        edits="shrinking.media_hash",
    ),
    "kv_cache": Depth(
        traces="traces.kv_cache",
        lanes=("lanes.kv_cache",),
        reference="targets.reference_kv_cache",
        judge="judges.kv_cache",
        view="findings.views.kv_cache",
        standalone="findings.standalone.kv_cache",
        edits="shrinking.kv_cache",
    ),
}
