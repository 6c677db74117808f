"""The reference's front ends that name items, at the depth of media identifiers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from cacheproof.differential.targets.host.faults.media_identifier import MEDIA_IDENTIFIER_FAULTS
from cacheproof.differential.targets.host.managers.media_identifier import (
    MediaIdentifierSession,
    settings_of,
)
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.targets.host.vllm_objects.media_names import Item
from cacheproof.differential.traces.media_identifier import (
    PICTURES_ALIKE,
    MediaIdentifierConfig,
)
from cacheproof.differential.traces.records import TraceResult, records_of
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.media_identifier import ItemOfRequest, NoData, Server
from cacheproof.reference.semantics.media import MediaSemantics

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
    assert isinstance(config, MediaIdentifierConfig)
    planted = MEDIA_IDENTIFIER_FAULTS[fault or "nothing"]
    session = MediaIdentifierSession(
        lambda *where: planted(ReferenceNamer(config, target.semantics.media, *where))
    )
    events = [msgspec.to_builtins(event) for event in trace.events]
    return TraceResult(records_of(run_events(session, events)))


class ReferenceNamer:
    """A server of the reference."""

    def __init__(
        self, config: MediaIdentifierConfig, semantics: MediaSemantics, engine: int, number: int
    ) -> None:
        self._server = Server(
            semantics,
            asks_for_digests=config.processor_cache or config.prefix_caching,
            adapters_reach=config.adapters_reach,
            number=number,
            settings=settings_of(config.settings, engine),
            alike=PICTURES_ALIKE.get(config.model, 0),
        )

    def name(
        self, request: str, items: Sequence[Item], adapter: str | None, options: int
    ) -> list[str]:
        told = [ItemOfRequest(*item) for item in items]
        try:
            return self._server.name(request, told, adapter, options)
        except NoData as error:
            raise AssertionError from error  # As releases say it.
