"""Connectors of encoder caches, each with one fault. The reference's waits for its saves."""

from cacheproof.differential.search.gallery.variant import Variant, connector_with
from cacheproof.differential.targets.host.connectors.faults import (
    CONNECTOR_FAULTS,
    nothing,
    reports_saves_early,
)

VARIANTS: tuple[Variant, ...] = tuple(
    connector_with(fault)
    for fault in CONNECTOR_FAULTS.values()
    if fault not in (nothing, reports_saves_early)
)
