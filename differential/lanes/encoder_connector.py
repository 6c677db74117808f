"""Lanes of connectors of external encoder caches."""

from functools import partial

from cacheproof.differential.generators.encoder_connector import connector_trace
from cacheproof.differential.lanes.lane import Lane

SINCE = "0.30.0"
ON_ONE_ENGINE = frozenset({"EX-7", "EX-8", "EX-9", "EX-10", "EX-11"})
"""What engines that share nothing cannot break."""

LANES = (
    Lane(
        "connectors on a disk",
        "encoder_connector",
        "encoder_connector",
        connector_trace,
        frozenset(
            {
                "promised what another engine saved",
                "promised beside an encode",
                "promise that nobody takes",
                "two steps planned",
                "new weights",
                "store out of reach",
                "engine started after another was killed",
                "killed while it saves",
                "entry spoiled",
            }
        ),
        silent_on=frozenset({"EX-2", "EX-3", "EX-6"}),
        since=SINCE,
    ),
    Lane(
        "connectors in memory",
        "encoder_connector",
        "encoder_connector",
        partial(connector_trace, store="cpu"),
        frozenset(
            {
                "promised beside an encode",
                "promise that nobody takes",
                "two steps planned",
                "saved entry gone",
            }
        ),
        silent_on=ON_ONE_ENGINE | {"EX-6"},
        since=SINCE,
    ),
)
