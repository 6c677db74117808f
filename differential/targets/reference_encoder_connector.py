"""The reference's connector, at the depth of connectors: its engines are processes of a host."""

import os
import sys
from typing import TYPE_CHECKING

from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
    Execute,
    NewWeights,
    Reach,
    Spoil,
)
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget

MODULE = "host.connectors.reference"
LONGEST = 255
"""Characters of an identifier that a folder of that name can have."""
BEYOND = (Spoil, Reach, NewWeights)
"""Events of which connectors promise different things, so that contracts alone judge them."""


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference can run any trace of this depth."""
    return True


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference can run the trace."""
    config = trace.header.config
    assert isinstance(config, EncoderConnectorConfig)
    return config.store != "remote"


def compares(trace: Trace) -> bool:
    """Whether all connectors decide alike: of a store without bounds that nobody disturbs."""
    config = trace.header.config
    assert isinstance(config, EncoderConnectorConfig)
    return (
        config.store == "disk"
        and config.capacity is None
        and len(config.models) == 1
        and all(len(item.identifier) <= LONGEST for item in config.items)
        and not any(isinstance(event, BEYOND) for event in trace.events)
        and not any(isinstance(one, Execute) and one.dies_at is not None for one in trace.events)
    )


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The reference's records."""
    return host(target).run([trace], fault)[0]


def host(target: "ReferenceTarget") -> HostTarget:
    """The host of that target's engines, which is closed with it."""
    if target.connectors is None:
        target.connectors = HostTarget(
            "reference connectors",
            None,
            [sys.executable, "-P"],
            {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            module=MODULE,
            depths=("encoder_connector",),
            is_forked=True,
        )
    found: HostTarget = target.connectors
    return found
