"""A pytest file that needs only vLLM, for each depth that a script can hold.

Whoever reads such a file needs to know nothing of this project.
"""

from collections.abc import Callable

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.standalone.block_hash import block_hash_test
from cacheproof.differential.findings.standalone.kv_cache import kv_cache_test
from cacheproof.differential.findings.standalone.manager import manager_test
from cacheproof.differential.findings.standalone.media_hash import media_hash_test
from cacheproof.differential.findings.standalone.scheduler import scheduler_test


def _engine_test(finding: Finding) -> tuple[str | None, str]:
    return None, "an engine is made of more than a script can hold"


_WRITERS: dict[str, Callable[[Finding], tuple[str | None, str]]] = {
    "manager": manager_test,
    "scheduler": scheduler_test,
    "engine": _engine_test,
    "block_hash": block_hash_test,
    "media_hash": media_hash_test,
    "kv_cache": kv_cache_test,
}


def standalone_test(finding: Finding) -> str | None:
    """The file's text; None where `why_none` says why."""
    return _WRITERS[finding.trace.depth](finding)[0]


def why_none(finding: Finding) -> str:
    """Why a finding has no standalone test; empty when it has one."""
    text, reason = _WRITERS[finding.trace.depth](finding)
    return reason if text is None else ""
