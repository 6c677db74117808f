"""The reference's media hash, at media hash depth: in this process or in that of a release."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from cacheproof.differential.targets.host.managers.media_hash_alone import of_reference
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.traces.media_hash import MediaHashConfig
from cacheproof.differential.traces.records import TraceResult, records_of
from cacheproof.differential.traces.trace import Trace

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget

MEDIA_LIBRARIES = ("blake3", "numpy", "PIL")


def missing_media_libraries() -> list[str]:
    """Libraries of arrays, images and digests that this interpreter does without."""
    return [name for name in MEDIA_LIBRARIES if find_spec(name) is None]


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference has the libraries, or a host that hashes for it."""
    return target.media_hash is not None or not missing_media_libraries()


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference knows the trace's digest."""
    config = trace.header.config
    assert isinstance(config, MediaHashConfig)
    is_known = config.algorithm == "blake3" or bool(target.semantics.media.chooses_media_digest)
    return is_there(target) and is_known


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The reference's records. Raises Illegal where its semantics lack what is asked for."""
    config = trace.header.config
    assert isinstance(config, MediaHashConfig)
    if target.media_hash is not None:
        records = target.media_hash.run([trace], fault, target.turned)[0].records
    else:
        hasher = of_reference(target.semantics.media, config.algorithm, fault)
        events = [msgspec.to_builtins(event) for event in trace.events]
        records = records_of(run_events(hasher, events))
    return TraceResult(records)
