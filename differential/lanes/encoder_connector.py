"""Lanes of connectors of external encoder caches."""

from functools import partial

from cacheproof.differential.generators.encoder_connector import connector_trace
from cacheproof.differential.lanes.lane import Lane

SINCE = "0.30.0"
SINCE_REPORTS = "0.29.0"
"""The first release whose ECCPUConnector is told which copies are done."""
ON_ONE_ENGINE = frozenset({"EX-8", "EX-9", "EX-10", "EX-11"})
"""Contracts that engines that share nothing cannot break."""

ON_PROMISES = frozenset({"EX-1", "EX-2", "EX-4", "EX-7", "EX-10", "EX-11"})
"""Contracts that a connector that promises nothing cannot break."""
OF_ENGINES = frozenset(
    {
        "promised what another engine saved",
        "promised beside an encode",
        "promise that nobody takes",
        "preempted after the connector was told",
        "two steps planned",
        "several requests in a step",
        "aborted before its load",
        "loaded item with gaps",
        "loaded rows of several layers",
        "new weights",
        "store out of reach",
        "engine started after another was killed",
        "killed while it saves",
        "entry spoiled",
    }
)
"""What any search of engines on one store must meet."""

LANES = (
    Lane(
        "connectors on a disk",
        "encoder_connector",
        "encoder_connector",
        connector_trace,
        OF_ENGINES,
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
                "preempted after the connector was told",
                "two steps planned",
                "several requests in a step",
                "aborted before its load",
                "copy under way after its step",
                "load that ends on one rank later than on another",
                "loaded item with gaps",
                "loaded rows of several layers",
                "saved entry gone",
                "item larger than the store",
                "new weights",
            }
        ),
        silent_on=ON_ONE_ENGINE,
        since=SINCE_REPORTS,
    ),
    Lane(
        "connectors over a server",
        "encoder_connector",
        "encoder_connector",
        partial(connector_trace, store="server", hangs=True),
        (OF_ENGINES - {"killed while it saves"}) | {"server hangs"},
        silent_on=frozenset({"EX-2", "EX-3", "EX-6", "EX-9"}),
        project="reference",
        program="redis-server",
    ),
    Lane(
        "LMCache over a folder",
        "encoder_connector",
        "encoder_connector",
        partial(connector_trace, store="remote"),
        OF_ENGINES,
        silent_on=frozenset({"EX-2", "EX-3", "EX-6"}),
        project="lmcache",
    ),
    Lane(
        "LMCache on its disk",
        "encoder_connector",
        "encoder_connector",
        partial(connector_trace, store="disk"),
        frozenset({"new weights", "entry spoiled", "killed while it saves"}),
        silent_on=ON_PROMISES | {"EX-3", "EX-6"},
        project="lmcache",
    ),
    Lane(
        "LMCache in memory",
        "encoder_connector",
        "encoder_connector",
        partial(connector_trace, store="cpu", is_bounded=False),
        frozenset({"two steps planned", "several requests in a step"}),
        silent_on=ON_PROMISES | ON_ONE_ENGINE | {"EX-3", "EX-6"},
        project="lmcache",
    ),
    Lane(
        "LMCache over its own server",
        "encoder_connector",
        "encoder_connector",
        partial(connector_trace, store="lmcache server"),
        OF_ENGINES - {"killed while it saves", "entry spoiled"},
        silent_on=frozenset({"EX-2", "EX-3", "EX-6", "EX-9"}),
        project="lmcache",
        before="0.5.7",
    ),
    Lane(
        "LMCache over a server",
        "encoder_connector",
        "encoder_connector",
        partial(connector_trace, store="server"),
        OF_ENGINES - {"killed while it saves"},
        silent_on=frozenset({"EX-2", "EX-3", "EX-6", "EX-9"}),
        project="lmcache",
        program="redis-server",
    ),
)
