"""What the modules of a depth do that others call, a role each, and that they do it.

`depths` names modules by strings, so that no room imports one above it, and mypy sees no further
than that. Here it is shown every module in its role. Nothing imports this file.
"""

from typing import Any, Protocol

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.standalone import block_hash as block_hash_test
from cacheproof.differential.findings.standalone import encoder_connector as encoder_connector_test
from cacheproof.differential.findings.standalone import engine as engine_test
from cacheproof.differential.findings.standalone import kv_cache as kv_cache_test
from cacheproof.differential.findings.standalone import manager as manager_test
from cacheproof.differential.findings.standalone import media_hash as media_hash_test
from cacheproof.differential.findings.standalone import scheduler as scheduler_test
from cacheproof.differential.judges import block_hash as block_hash_judge
from cacheproof.differential.judges import encoder_connector as encoder_connector_judge
from cacheproof.differential.judges import engine as engine_judge
from cacheproof.differential.judges import kv_cache as kv_cache_judge
from cacheproof.differential.judges import manager as manager_judge
from cacheproof.differential.judges import media_hash as media_hash_judge
from cacheproof.differential.judges import scheduler as scheduler_judge
from cacheproof.differential.judges.examination import Judge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.targets import (
    reference_block_hash,
    reference_encoder_connector,
    reference_engine,
    reference_kv_cache,
    reference_manager,
    reference_media_hash,
    reference_scheduler,
)
from cacheproof.differential.targets.host.protocol import Protocol as HostProtocol
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace


class ReferenceModule(Protocol):
    """The reference's side: whether it has that depth, whether it can run a trace, and its run."""

    def is_there(self, target: Any) -> bool: ...

    def runs(self, target: Any, trace: Trace) -> bool: ...

    def run(self, target: Any, trace: Trace, fault: str | None) -> TraceResult: ...


class JudgeModule(Protocol):
    """Makes what judges the records of one trace."""

    def judge_of(
        self, trace: Trace, release: str | None, protocol: HostProtocol, reach: Reachability
    ) -> Judge: ...


class StandaloneModule(Protocol):
    """A pytest file of a finding, or None and why there is none."""

    def standalone_test(self, finding: Finding) -> tuple[str | None, str]: ...


REFERENCES: tuple[ReferenceModule, ...] = (
    reference_manager,
    reference_scheduler,
    reference_engine,
    reference_block_hash,
    reference_media_hash,
    reference_kv_cache,
    reference_encoder_connector,
)
JUDGES: tuple[JudgeModule, ...] = (
    manager_judge,
    scheduler_judge,
    engine_judge,
    block_hash_judge,
    media_hash_judge,
    kv_cache_judge,
    encoder_connector_judge,
)
STANDALONE: tuple[StandaloneModule, ...] = (
    manager_test,
    scheduler_test,
    engine_test,
    block_hash_test,
    media_hash_test,
    kv_cache_test,
    encoder_connector_test,
)
