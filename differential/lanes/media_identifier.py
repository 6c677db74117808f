"""The lane of identifiers of media."""

from cacheproof.differential.generators.media_identifier import media_identifier_trace
from cacheproof.differential.lanes.lane import Lane

LANES = (
    Lane(
        "media identifier",
        "media_identifier",
        "media_identifier",
        media_identifier_trace,
        frozenset(
            {
                "no cache asks for digests",
                "an item named by its client",
                "an identifier given as an id",
                "named after a restart",
                "named by another server",
                "an engine with settings of its own",
                "an item of an encoder's rows",
                "more pictures than a model processes alike",
            }
        ),
        by_release=True,
    ),
)
