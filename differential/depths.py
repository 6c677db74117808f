"""The depths at which a target is driven: one record each, of the modules that speak of it.

A further depth is its own modules and one line here; whatever treats all depths alike looks its
record up. Modules are named by their place in `differential/`, and imported when they are asked
for: a record names rooms above and below those who read it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

PACKAGE = "cacheproof.differential"
Part = str | ModuleType | SimpleNamespace
"""A module of `differential/`, by its place there, or what stands for one."""


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
        has_timeline: its events can be drawn over time.
        its_own: fields of an outcome that the lockstep with the reference leaves out: what a target
            holds and where, which it promises to nobody.
        candidates: smaller traces that are tried at once; few where each takes long.
    """

    traces: Part
    lanes: tuple[Part, ...]
    reference: Part
    judge: Part
    view: Part
    standalone: Part
    edits: Part | None = None
    has_scheduler: bool = False
    has_ledger: bool = False
    is_executed: bool = False
    has_timeline: bool = False
    its_own: frozenset[str] = frozenset()
    candidates: int = 64

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


def part(module: Part) -> Any:
    """The module of that name; what is none by name stands for itself. Who asks for it says in
    which role: mypy is shown in `roles` that each module of a depth has its own."""
    return import_module(f"{PACKAGE}.{module}") if isinstance(module, str) else module


def _named(
    depth: str,
    *,
    lanes: tuple[str, ...] = (),
    view: str = "",
    edits: str = "",
) -> Depth:
    """A depth of which each room has a module of its name, or of the name that is given."""
    return Depth(
        traces=f"traces.{depth}",
        lanes=tuple(f"lanes.{name}" for name in lanes or (depth,)),
        reference=f"targets.reference_{depth}",
        judge=f"judges.{depth}",
        view=f"findings.views.{view or depth}",
        standalone=f"findings.standalone.{depth}",
        edits=f"findings.shrinking.{edits}" if edits else None,
    )


_OF_MANAGERS = ("encoder_cache", "encoder_decoder")
DEPTHS = {
    "manager": replace(
        _named("manager", lanes=_OF_MANAGERS, view="ledger"), has_ledger=True, has_timeline=True
    ),
    "scheduler": replace(
        _named("scheduler"),
        has_scheduler=True,
        has_ledger=True,
        has_timeline=True,
    ),
    "engine": replace(
        _named("engine", view="scheduler"),
        has_scheduler=True,
        has_ledger=True,
        is_executed=True,
        has_timeline=True,
    ),
    "block_hash": _named("block_hash", edits="block_hash"),
    "media_hash": _named("media_hash", edits="media_hash"),
    "media_identifier": _named("media_identifier"),
    "kv_cache": replace(_named("kv_cache", edits="kv_cache"), has_timeline=True),
    "front_end": _named("front_end"),
    "encoder_connector": replace(
        _named("encoder_connector", edits="encoder_connector"),
        its_own=frozenset({"bytes", "outside", "unfinished", "pins", "copying", "rest"}),
        candidates=4,
    ),
}
