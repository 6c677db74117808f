"""Connectors of encoder caches, each with one fault."""

from cacheproof.differential.findings.gallery.variant import Variant, connector_with
from cacheproof.differential.targets.host.connector_faults import CONNECTOR_FAULTS, nothing

VARIANTS: tuple[Variant, ...] = tuple(
    connector_with(fault) for fault in CONNECTOR_FAULTS.values() if fault is not nothing
)
