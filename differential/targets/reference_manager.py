"""The reference managers alone, at manager depth."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.host.managers.manager import ManagerSession
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.traces.manager import ManagerHeader
from cacheproof.differential.traces.records import TraceResult, records_of
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget

Factory = Callable[..., Any]
"""Makes a manager as the reference's own class does, by the same arguments."""
MANAGERS: dict[str, Factory] = {
    "encoder_cache": EncoderCacheManager,
    "encoder_decoder": EncoderDecoderCacheManager,
}


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference can run any trace of this depth."""
    return True


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference can run the trace."""
    return True


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The reference's records."""
    assert isinstance(trace.header, ManagerHeader)
    events = [msgspec.to_builtins(event) for event in trace.events]
    return TraceResult(records_of(run_events(session(target, trace.header, fault), events)))


def session(target: "ReferenceTarget", header: ManagerHeader, fault: str | None) -> ManagerSession:
    """What drives one manager of that reference."""
    manager = target.managers[header.manager](
        header.config.capacity, target.semantics.encoder_cache
    )
    if fault is not None:
        FAULTS[fault](manager)
    return ManagerSession(
        msgspec.to_builtins(header),
        manager,
        target.protocol,
        shows_sizes=target.semantics.encoder_cache.remembers_sizes,
    )
